//! Programs that are started with our library in front of the C library's functions.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cli::preload;
use crate::error::{Error, Kind};

/// What the library is called.
pub(super) const LIBRARY: &str = "relax";
/// The variable by which the dynamic linker is told.
pub(super) const VARIABLE: &str = "LD_PRELOAD";

/// Runs a command in the place of this program, with the library and a variable for it. Returns only if that fails.
pub(super) fn run(command: &[OsString], variable: &str, value: &OsStr) -> Error {
    match prepare(command, variable, value) {
        Ok(mut prepared) => {
            let error = prepared.exec();
            Error::new(Kind::User, format!("run {}", command[0].display())).because(error)
        }
        Err(error) => error,
    }
}

#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn prepare(command: &[OsString], variable: &str, value: &OsStr) -> Result<Command, Error> {
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| Error::new(Kind::User, "run nothing").hint("put a command behind --"))?;
    let library = preload::library(LIBRARY)?;
    if let Some(path) = found(program, std::env::var_os("PATH").as_deref()) {
        check(&path)?;
    }
    let mut preload = library.into_os_string();
    if let Some(others) = std::env::var_os(VARIABLE).filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut prepared = Command::new(program);
    prepared.args(arguments).env(VARIABLE, preload).env(variable, value);
    Ok(prepared)
}

/// Finds a program as `execvp` does.
fn found(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = path.unwrap_or_else(|| OsStr::new("/usr/local/bin:/usr/bin:/bin"));
    std::env::split_paths(path).map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// Says why a library cannot be preloaded into a program, where that can be seen.
fn check(path: &Path) -> Result<(), Error> {
    let Ok(mut file) = File::open(path) else { return Ok(()) };
    let Ok(about) = file.metadata() else { return Ok(()) };
    let cannot = |because: &str| {
        Error::new(Kind::User, format!("preload anything into {}", path.display()))
            .because(io::Error::other(because.to_owned()))
    };
    let is_ours = about.uid() == rustix::process::geteuid().as_raw();
    if about.permissions().mode() & 0o4000 != 0 && !is_ours {
        return Err(cannot("it runs with the rights of another user"));
    }
    match interpreter(&mut file) {
        Ok(Some(Linking::Static)) => Err(cannot("it is linked statically")),
        Ok(Some(Linking::Other)) => Err(cannot("it is built for another C library or processor")),
        // Scripts are run by programs that can be preloaded into; what cannot be read will say so itself.
        Ok(Some(Linking::Dynamic) | None) | Err(_) => Ok(()),
    }
}

/// How a program gets its libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linking {
    /// By the linker of our C library.
    Dynamic,
    /// By another.
    Other,
    /// It has none.
    Static,
}

/// Reads how an ELF file is linked; `None` if it is none.
fn interpreter(file: &mut File) -> io::Result<Option<Linking>> {
    let mut head = [0; 64];
    file.read_exact(&mut head)?;
    if !head.starts_with(b"\x7fELF") {
        return Ok(None);
    }
    if head[4] != 2 || head[5] != 1 {
        return Ok(Some(Linking::Other));
    }
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let wide = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
    let (start, size, count) = (wide(&head[32..40]), half(54), half(56));
    for index in 0..count {
        file.seek(SeekFrom::Start(start.saturating_add(u64::from(size) * u64::from(index))))?;
        let mut entry = [0; 56];
        file.read_exact(&mut entry)?;
        // `PT_INTERP`: the path of the linker.
        if entry[..4] == 3u32.to_le_bytes() {
            file.seek(SeekFrom::Start(wide(&entry[8..16])))?;
            let mut path = Vec::new();
            file.take(wide(&entry[32..40]).min(4096)).read_to_end(&mut path)?;
            let is_glibc = path.windows(8).any(|part| part == b"ld-linux");
            return Ok(Some(if is_glibc { Linking::Dynamic } else { Linking::Other }));
        }
    }
    Ok(Some(Linking::Static))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_seen_whether_a_library_can_be_preloaded() {
        let linking = |path: &Path| interpreter(&mut File::open(path).unwrap()).unwrap();
        assert_eq!(linking(Path::new("/bin/sh")), Some(Linking::Dynamic));
        let dir = tempfile::tempdir().unwrap();
        let mut program = std::fs::read("/bin/sh").unwrap();
        let count = usize::from(u16::from_le_bytes([program[56], program[57]]));
        for at in (0..count).map(|index| 64 + index * 56) {
            if program[at..at + 4] == 3u32.to_le_bytes() {
                program[at] = 0;
            }
        }
        for (name, bytes, wanted) in [
            ("static", &program[..], Some(Linking::Static)),
            ("script", &[b'#'; 100][..], None),
            ("narrow", &[&b"\x7fELF\x01\x01"[..], &[0; 100]].concat()[..], Some(Linking::Other)),
        ] {
            let path = dir.path().join(name);
            let mut file = File::options().write(true).create_new(true).open(&path).unwrap();
            io::Write::write_all(&mut file, bytes).unwrap();
            assert_eq!(linking(&path), wanted, "{name}");
        }
    }
}
