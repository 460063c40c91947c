//! What is mapped in a process, as `/proc/PID/maps` lists it.

/// The longest `/proc/PID/maps` that is read; a quarter of a million mappings fit.
const LIMIT: u64 = 32 << 20;

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// Major and minor number of the file's device, as the kernel numbers it inside.
    pub device: (u32, u32),
    /// The file's inode; 0 where there is no file.
    pub inode: u64,
    /// Whether it may be executed.
    pub is_code: bool,
    /// Whether what is written to it is written to the file.
    pub is_shared: bool,
    /// The path, as the program's root sees it; `[vdso]` and the like; empty for memory without a file.
    pub path: Vec<u8>,
}

/// Reads the mappings of `process`, in the order of their addresses; none where it cannot be looked at.
#[must_use]
pub fn read(process: u32) -> Vec<Mapping> {
    parse(&sys::process_file::read(process, "maps", LIMIT).unwrap_or_default())
}

/// Reads the text of a `maps` file; lines that are none are left out.
pub(super) fn parse(text: &[u8]) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = text.split(|&byte| byte == b'\n').filter_map(line).collect();
    mappings.sort_by_cached_key(|mapping| mapping.start);
    // The kernel's never overlap; a text from elsewhere might, and would make look-ups depend on luck.
    mappings.dedup_by(|later, earlier| later.start < earlier.end);
    mappings
}

/// Splits `7f00-7f10 r-xp 00001000 fe:01 1234    /usr/lib/x.so`.
fn line(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let range = field(&mut rest)?;
    let permissions = field(&mut rest)?;
    let is_code = permissions.get(2) == Some(&b'x');
    let is_shared = permissions.get(3) == Some(&b's');
    let offset = hex(field(&mut rest)?)?;
    let device = field(&mut rest)?;
    let inode = std::str::from_utf8(field(&mut rest)?).ok()?.parse().ok()?;
    let path = unescape(rest.trim_ascii_start());
    let (start, end) = halves(range, b'-')?;
    let (major, minor) = halves(device, b':')?;
    let device = (u32::try_from(major).ok()?, u32::try_from(minor).ok()?);
    let mapping = Mapping { start, end, offset, device, inode, is_code, is_shared, path };
    (start < end).then_some(mapping)
}

fn field<'text>(rest: &mut &'text [u8]) -> Option<&'text [u8]> {
    let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
    let (field, tail) = rest.split_at(end);
    *rest = tail.get(1..).unwrap_or_default();
    (!field.is_empty()).then_some(field)
}

fn halves(field: &[u8], between: u8) -> Option<(u64, u64)> {
    let middle = field.iter().position(|&byte| byte == between)?;
    Some((hex(&field[..middle])?, hex(&field[middle + 1..])?))
}

fn hex(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Undoes the only escape of this file: `\012` for a newline.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(b"\\012") {
            bytes.push(b'\n');
            rest = tail;
        } else {
            bytes.push(byte);
            rest = tail;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
55d0c0a00000-55d0c0a02000 r--p 00000000 fe:01 4321                       /usr/bin/cat
55d0c0a02000-55d0c0a06000 r-xp 00002000 fe:01 4321                       /usr/bin/cat
nonsense
7f10-7f00 r-xp 0 0:0 0
7f0000000000-7f0000021000 rwxp 00000000 00:00 0 \n\
7f2000000000-7f2000021000 r-xp 00000000 00:21 77                         /tmp/a\\012b c (deleted)
7ffc1b5f2000-7ffc1b5f4000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn a_line_is_read_whole_and_a_broken_one_is_left_out() {
        let mut mappings = parse(TEXT);
        assert_eq!(mappings.len(), 5);
        mappings.retain(|mapping| mapping.is_code);
        let paths: Vec<&[u8]> = mappings.iter().map(|mapping| &*mapping.path).collect();
        assert_eq!(paths, [&b"/usr/bin/cat"[..], b"", b"/tmp/a\nb c (deleted)", b"[vdso]"]);
        assert_eq!(
            (mappings[0].offset, mappings[0].device, mappings[0].inode),
            (0x2000, (254, 1), 4321)
        );
    }

    #[test]
    fn our_own_code_is_found() {
        let here = our_own_code_is_found as *const () as usize as u64;
        assert!(read(std::process::id()).iter().any(|m| m.start <= here && here < m.end));
    }

    #[test]
    fn a_process_that_is_not_there_has_no_mappings() {
        assert!(read(u32::MAX).is_empty());
    }
}
