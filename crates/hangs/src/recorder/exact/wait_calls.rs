//! Where the C library makes the calls in which events are waited for: what was learned in one process holds for all that have mapped the
//! same file.

use std::fs;

/// The most calls that are remembered: two of each kind for each C library.
const CALLS: usize = 64;

/// A call, by the file that makes it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct KnownCall {
    /// The device and the inode, as `/proc/PID/maps` has them.
    file: String,
    /// The offset of the instruction in the file.
    offset: u64,
    number: u32,
    /// Whether the process had other threads: it makes its calls from another place then.
    has_others: bool,
}

/// The calls of all processes.
#[derive(Debug, Default)]
pub(super) struct WaitCalls(Vec<KnownCall>);

/// A part of a file that a process has mapped.
struct MappedPart<'a> {
    begin: u64,
    end: u64,
    offset: u64,
    file: &'a str,
}

fn parse(line: &str) -> Option<MappedPart<'_>> {
    let mut words = line.splitn(6, ' ');
    let (begin, end) = words.next()?.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = number(words.nth(1)?)?;
    // Memory of no file has the inode 0.
    let file =
        line.splitn(4, ' ').nth(3).filter(|_| words.nth(1).is_some_and(|inode| inode != "0"))?;
    let name = file.find('/').map_or(file, |at| &file[..at]);
    Some(MappedPart { begin: number(begin)?, end: number(end)?, offset, file: name.trim_end() })
}

impl WaitCalls {
    /// Notes where a process makes a call.
    pub(super) fn learn(&mut self, process: u32, (ip, number): (u64, u32), has_others: bool) {
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        self.learn_from(&maps, (ip, number), has_others);
    }

    fn learn_from(&mut self, maps: &str, (ip, number): (u64, u32), has_others: bool) {
        let part = maps.lines().filter_map(parse).find(|part| (part.begin..part.end).contains(&ip));
        let Some(MappedPart { begin, offset, file, .. }) = part else { return };
        let call =
            KnownCall { file: file.to_owned(), offset: ip - begin + offset, number, has_others };
        if self.0.len() < CALLS && !self.0.contains(&call) {
            self.0.push(call);
        }
    }

    /// Returns where a process makes a call in which events can be waited for, if that is known of another one.
    pub(super) fn find(&self, process: u32, has_others: bool) -> Option<(u64, u32)> {
        if self.0.is_empty() {
            return None;
        }
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
        self.find_in(&maps, has_others)
    }

    fn find_in(&self, maps: &str, has_others: bool) -> Option<(u64, u32)> {
        let parts: Vec<MappedPart<'_>> = maps.lines().filter_map(parse).collect();
        let calls = self.0.iter().filter(|call| call.has_others == has_others);
        calls.into_iter().find_map(|call| {
            let is_it = |part: &&MappedPart<'_>| {
                let end = part.offset + (part.end - part.begin);
                part.file == call.file && (part.offset..end).contains(&call.offset)
            };
            let part = parts.iter().find(is_it)?;
            Some((call.offset - part.offset + part.begin, call.number))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_one_process_is_found_in_another_one_that_has_mapped_the_file_elsewhere() {
        let one = "7f1000-7f2000 r--p 00000000 fe:00 77                         /lib/libc.so.6\n\
                   7f2000-7f9000 r-xp 00001000 fe:00 77                         /lib/libc.so.6\n\
                   7fa000-7fb000 rw-p 00000000 00:00 0 \n";
        let other = "55a000-55b000 r-xp 00001000 fe:00 78                         /usr/bin/a b\n\
                     8f2000-8f9000 r-xp 00001000 fe:00 77                         /lib/libc.so.6\n";
        let mut calls = WaitCalls::default();
        calls.learn_from(one, (0x7f_2345, 7), true);
        calls.learn_from(one, (0x7f_2345, 7), true);
        assert_eq!(calls.0.len(), 1);
        assert_eq!(calls.find_in(other, true), Some((0x8f_2345, 7)));
        assert_eq!(calls.find_in(other, false), None, "it has no threads");
        assert_eq!(calls.find_in(&other[..70], true), None);
        // In memory of no file, or where nothing is mapped, there is none.
        for ip in [0x7f_a100, 0x1000] {
            calls.learn_from(one, (ip, 7), false);
        }
        assert_eq!(calls.0.len(), 1);
        for line in ["", "x", "1-2", "7f-zz r-xp 0 fe:00 1 /a", "7f1000-7f2000 r--p"] {
            assert!(parse(line).is_none(), "{line}");
        }
    }
}
