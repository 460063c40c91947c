//! Functions that a program compiled while it ran, as it wrote them to `perf-PID.map`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::stack::space;

/// The longest map that is read.
const LIMIT: u64 = 64 << 20;

/// The most functions of a map that are kept; a program may write what it wants into its own.
const FUNCTIONS: usize = 1 << 20;

/// Functions by address.
#[derive(Debug, Default)]
pub(super) struct Compiled(Vec<(u64, u64, String)>);

impl Compiled {
    /// Reads the map of `process` in `directory`.
    pub(super) fn read(directory: &Path, process: u32) -> Compiled {
        space::map_of_compiled(directory, process).map(Compiled::of).unwrap_or_default()
    }

    fn of(file: File) -> Compiled {
        let mut text = Vec::new();
        // What was read before a failure is as good as any.
        let _partial = file.take(LIMIT).read_to_end(&mut text);
        Compiled::parse(&text)
    }

    /// Reads `START SIZE name` lines in hexadecimal; later ones replace earlier ones that they overlap.
    pub(super) fn parse(text: &[u8]) -> Compiled {
        let lines = text.split(|&byte| byte == b'\n');
        let mut functions: Vec<(u64, u64, usize, String)> = lines
            .enumerate()
            .filter_map(|(at, line)| {
                let text = String::from_utf8_lossy(line);
                let mut fields = text.splitn(3, ' ');
                let mut hex =
                    || u64::from_str_radix(fields.next()?.trim_start_matches("0x"), 16).ok();
                let (start, size) = (hex()?, hex()?);
                let name = fields.next()?.chars().take(512).collect::<String>();
                let end = start.checked_add(size)?;
                (size > 0 && !name.is_empty()).then_some((start, end, at, name))
            })
            .take(FUNCTIONS)
            .collect();
        functions.sort_by_key(|(start, _, at, _)| (*start, *at));
        let mut kept: Vec<(u64, u64, usize, String)> = Vec::new();
        for mut function in functions {
            // The older code is gone where the newer one is.
            while let Some(last) = kept.last_mut().filter(|last| last.1 > function.0) {
                if last.2 > function.2 {
                    function.0 = last.1;
                    break;
                }
                last.1 = function.0;
                if last.0 < last.1 {
                    break;
                }
                kept.pop();
            }
            if function.0 < function.1 {
                kept.push(function);
            }
        }
        Compiled(kept.into_iter().map(|(start, end, _, name)| (start, end, name)).collect())
    }

    /// Returns the function at `address` and where it begins.
    pub(super) fn find(&self, address: u64) -> Option<(&str, u64)> {
        let behind = self.0.partition_point(|(start, _, _)| *start <= address);
        let (start, end, name) = self.0.get(behind.checked_sub(1)?)?;
        (address < *end).then_some((&**name, *start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_inside_of_its_size_only() {
        let map =
            Compiled::parse(b"1000 20 LazyCompile:~f a.js:1\nbad\n0x2000 10 g\n1010 8 newer\n");
        assert_eq!(map.find(0x1008), Some(("LazyCompile:~f a.js:1", 0x1000)));
        assert_eq!(map.find(0x1012), Some(("newer", 0x1010)));
        assert_eq!(map.find(0x101c), None, "the rest of what was replaced is not known");
        assert_eq!(map.find(0x200f), Some(("g", 0x2000)));
        assert_eq!((map.find(0x2010), map.find(0)), (None, None));
    }

    #[test]
    fn the_map_of_another_user_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("perf-1.map");
        std::fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
        if rustix::process::geteuid().is_root() {
            // Process 1 is root's; so is the file until it is given away.
            std::io::Write::write_all(
                &mut std::fs::OpenOptions::new().append(true).open(&path).unwrap(),
                b"1000 10 f\n",
            )
            .unwrap();
            assert!(Compiled::read(dir.path(), 1).find(0x1000).is_some());
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        }
        assert!(Compiled::read(dir.path(), 1).find(0x1000).is_none());
    }
}
