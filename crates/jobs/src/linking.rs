//! The dynamic linking of a program: whether a library can be preloaded into it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The segment that names the loader (elf(5)).
const INTERPRETER: u32 = 3;
/// The longest path of a loader, and of the program of a script.
const LONGEST: u64 = 4096;
/// More program headers than these are not looked at.
const MOST_HEADERS: u16 = 512;
/// The number of this machine in an ELF file.
const MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    62
} else if cfg!(target_arch = "aarch64") {
    183
} else {
    243
};

/// Why a library of ours cannot be put in front of a program's, or that it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linking {
    /// By the loader of our C library, which takes ours in front.
    Dynamic,
    /// By the loader of another C library, word size or processor.
    OtherLoader,
    /// It has no loader.
    Static,
    /// It gains privileges when it starts: its loader takes nothing from its user.
    Privileged,
}

impl Linking {
    /// Looks at the program at `path`; of a script, at the program that runs it. What cannot be read, and what is neither, is [`Linking::Dynamic`]: it will say by itself what is wrong.
    #[must_use]
    pub fn of(path: &Path) -> Linking {
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let gains =
            |data: fs::Metadata| gains_privileges(data.mode(), (data.uid(), data.gid()), own);
        if fs::metadata(path).is_ok_and(gains) {
            return Linking::Privileged;
        }
        match read(path) {
            Ok(FileFormat::Elf(linking)) => linking,
            // The kernel follows a few of them; the last one counts.
            Ok(FileFormat::Script(program)) => match read(&program) {
                Ok(FileFormat::Elf(linking)) => linking,
                Ok(FileFormat::Script(_) | FileFormat::Other) | Err(_) => Linking::Dynamic,
            },
            Ok(FileFormat::Other) | Err(_) => Linking::Dynamic,
        }
    }
}

/// Returns whether a program of this mode, owner and group runs as somebody else than its user and group.
fn gains_privileges(mode: u32, file: (u32, u32), own: (u32, u32)) -> bool {
    (mode & 0o4000 != 0 && file.0 != own.0) || (mode & 0o2000 != 0 && file.1 != own.1)
}

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FileFormat {
    Elf(Linking),
    /// A script of this program.
    Script(PathBuf),
    Other,
}

fn read(path: &Path) -> io::Result<FileFormat> {
    // A pipe that somebody put there would hold us up.
    if !fs::metadata(path)?.is_file() {
        return Ok(FileFormat::Other);
    }
    contents(&mut File::open(path)?)
}

fn contents(file: &mut (impl Read + Seek)) -> io::Result<FileFormat> {
    let mut head = Vec::new();
    file.by_ref().take(64).read_to_end(&mut head)?;
    if head.starts_with(b"#!") {
        file.seek(SeekFrom::Start(2))?;
        let mut line = Vec::new();
        file.take(LONGEST).read_to_end(&mut line)?;
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words = line.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty());
        let program = words.next().unwrap_or_default().to_vec();
        return Ok(FileFormat::Script(std::ffi::OsString::from_vec(program).into()));
    }
    if !head.starts_with(b"\x7fELF") {
        return Ok(FileFormat::Other);
    }
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let head: [u8; 64] = head.try_into().map_err(|_| short())?;
    let half = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
    // Of 64 bits, in the order of bytes of this machine, for its processor.
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if head[4] != 2 || head[5] != order || half(18) != MACHINE {
        return Ok(FileFormat::Elf(Linking::OtherLoader));
    }
    let wide = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).map_err(|_| short());
    let (start, size, count) = (wide(&head[32..40])?, half(54), half(56));
    for index in 0..count.min(MOST_HEADERS) {
        let at = start.saturating_add(u64::from(size) * u64::from(index));
        file.seek(SeekFrom::Start(at))?;
        let mut entry = [0; 56];
        file.read_exact(&mut entry)?;
        if entry[..4] == INTERPRETER.to_ne_bytes() {
            file.seek(SeekFrom::Start(wide(&entry[8..16])?))?;
            let mut path = Vec::new();
            file.take(wide(&entry[32..40])?.min(LONGEST)).read_to_end(&mut path)?;
            let is_glibc = path.windows(8).any(|part| part == b"ld-linux");
            let linking = if is_glibc { Linking::Dynamic } else { Linking::OtherLoader };
            return Ok(FileFormat::Elf(linking));
        }
    }
    Ok(FileFormat::Elf(Linking::Static))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    fn of(bytes: &[u8]) -> FileFormat {
        contents(&mut Cursor::new(bytes)).unwrap()
    }

    #[test]
    fn programs_of_every_kind_are_told_apart() {
        let program = fs::read("/proc/self/exe").unwrap();
        assert_eq!(of(&program), FileFormat::Elf(Linking::Dynamic));
        // Its loader's name is another's, then its entry is none.
        let mut other = program.clone();
        let name = program.windows(8).position(|part| part == b"ld-linux").unwrap();
        other[name..name + 8].copy_from_slice(b"ld-musl-");
        assert_eq!(of(&other), FileFormat::Elf(Linking::OtherLoader));
        let mut without = program.clone();
        let count = usize::from(u16::from_ne_bytes([program[56], program[57]]));
        for at in (0..count).map(|index| 64 + index * 56) {
            if without[at..at + 4] == INTERPRETER.to_ne_bytes() {
                without[at] = 0;
            }
        }
        assert_eq!(of(&without), FileFormat::Elf(Linking::Static));
        // Of another word size, and of another processor.
        for (at, byte) in [(4, 1), (18, 3)] {
            let mut other = program.clone();
            other[at] = byte;
            assert_eq!(of(&other), FileFormat::Elf(Linking::OtherLoader), "{at}");
        }
        assert_eq!(of(b"#! /bin/sh -e\nexit 0"), FileFormat::Script("/bin/sh".into()));
        assert_eq!(of(b"#!\n"), FileFormat::Script("".into()));
        assert_eq!(of(b""), FileFormat::Other);
        assert!(contents(&mut Cursor::new(b"\x7fELF\x02\x01")).is_err());
    }

    #[test]
    fn a_script_is_judged_by_the_program_that_runs_it() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            let mut file = File::options().write(true).create_new(true).open(&path).unwrap();
            io::Write::write_all(&mut file, bytes).unwrap();
            path
        };
        let mut other = fs::read("/proc/self/exe").unwrap();
        other[4] = 1;
        let other = write("other", &other);
        let script = write("script", format!("#!{}\n", other.display()).as_bytes());
        assert_eq!(Linking::of(&script), Linking::OtherLoader);
        assert_eq!(Linking::of(&write("plain", b"#!/bin/sh\n")), Linking::Dynamic);
        assert_eq!(Linking::of(Path::new("/no/such/program")), Linking::Dynamic);
    }

    #[test]
    fn a_program_is_privileged_if_it_runs_as_somebody_else() {
        for (mode, file, own, wanted) in [
            (0o4755, (0, 0), (1000, 1000), true),
            (0o2755, (0, 42), (1000, 1000), true),
            (0o755, (0, 0), (1000, 1000), false),
            (0o6755, (0, 0), (0, 0), false),
            (0o4755, (1000, 0), (1000, 1000), false),
        ] {
            assert_eq!(gains_privileges(mode, file, own), wanted, "{mode:o} {file:?} {own:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_wild(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let magic = b"\x7fELF\x02\x01";
            let len = bytes.len().min(magic.len());
            bytes[..len].copy_from_slice(&magic[..len]);
            let _ = contents(&mut Cursor::new(&bytes));
        }
    }
}
