//! The kernel's own types (BTF): numbers of its tracepoints, and where the fields of its structures are.
//!
//! The format is that of the kernel's `Documentation/bpf/btf.rst`: a header, type records of different lengths, and a
//! block of names.

use std::collections::HashMap;
use std::io;

/// Where the kernel shows its types.
pub const PATH: &str = "/sys/kernel/btf/vmlinux";

/// Why what is needed of a kernel's types is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelTypesError {
    /// The kernel was built without its types.
    #[error("cannot read {PATH}, without which programs in the kernel cannot be written for it")]
    NoTypes(#[source] io::Error),
    /// They are not in the format that we know.
    #[error("cannot understand {PATH}")]
    NotUnderstood,
    /// The kernel lacks a type or a field.
    #[error("cannot find {0} in the kernel's types")]
    Missing(&'static str),
}

/// Gives the types of the running kernel to `read`, and returns what that makes of them.
///
/// # Errors
///
/// There are none, or that of `read`.
pub fn of_this_kernel<T>(
    read: impl FnOnce(&[u8]) -> Result<T, KernelTypesError>,
) -> Result<T, KernelTypesError> {
    let file = std::fs::File::open(PATH).map_err(KernelTypesError::NoTypes)?;
    // Kernels before 6.16 do not let them be mapped, and give a page at a time.
    match crate::map::Map::of(&file) {
        Ok(map) => read(map.bytes()),
        Err(_) => read(&std::fs::read(PATH).map_err(KernelTypesError::NoTypes)?),
    }
}

/// The types of a kernel, by what was asked for.
#[derive(Debug)]
pub struct Types<'a> {
    types: &'a [u8],
    names: &'a [u8],
    /// Where the record of a type begins in `types`, for those with a wanted name or without one.
    found: HashMap<(BtfKind, &'a [u8]), u32>,
    /// Where each record begins, by type number less one.
    starts: Vec<u32>,
}

/// What a type is, of those that we look for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum BtfKind {
    /// A `struct` or `union`.
    Structure,
    /// A `typedef`.
    Typedef,
}

const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const POINTER: u32 = 2;
const PARAMETERS: u32 = 13;

/// How long a record is at least, on the average of a kernel: it only saves growing.
const BYTES_OF_A_RECORD: usize = 24;

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

/// Returns how many bytes follow the 12 of a record's head; none for a kind that is not known.
fn tail_bytes(kind: u32, members: usize) -> Option<usize> {
    match kind {
        // Numbers, variables, and marks on declarations.
        1 | 14 | 17 => Some(4),
        // Pointers, names without a body, typedefs, qualifiers, functions, floats, marks on types.
        2 | 7..=12 | 16 | 18 => Some(0),
        // Arrays.
        3 => Some(12),
        // Structures, unions, sections, and enumerations of 64 bits.
        4 | 5 | 15 | 19 => members.checked_mul(12),
        // Enumerations and the parameters of functions.
        6 | 13 => members.checked_mul(8),
        _ => None,
    }
}

impl<'a> Types<'a> {
    /// Reads the types in `bytes` and remembers those that have one of the `wanted` names.
    ///
    /// Returns none for bytes that are not well formed.
    #[must_use]
    pub fn read(bytes: &'a [u8], wanted: &[(BtfKind, &'a str)]) -> Option<Types<'a>> {
        let magic = bytes.get(..2)?;
        if magic != 0xeb9f_u16.to_ne_bytes() {
            return None;
        }
        let header = usize::try_from(word(bytes, 4)?).ok()?;
        let part = |offset: usize, length: usize| {
            let start = header.checked_add(usize::try_from(word(bytes, offset)?).ok()?)?;
            let end = start.checked_add(usize::try_from(word(bytes, length)?).ok()?)?;
            bytes.get(start..end)
        };
        let types = part(8, 12)?;
        let names = part(16, 20)?;
        let starts = Vec::with_capacity(types.len() / BYTES_OF_A_RECORD);
        let mut read = Types { types, names, found: HashMap::new(), starts };
        // There are 150,000 types and a dozen wanted ones: most are told apart by their kind and the first byte of their name.
        let mut is_first = [false; 256];
        for first in wanted.iter().filter_map(|(_, name)| name.as_bytes().first()) {
            is_first[usize::from(*first)] = true;
        }
        let mut at = 0;
        while at < types.len() {
            let name = word(types, at)?;
            let info = word(types, at + 4)?;
            let kind = info >> 24 & 31;
            let members = usize::try_from(info & 0xffff).ok()?;
            read.starts.push(u32::try_from(at).ok()?);
            let looked_for = match kind {
                STRUCT | UNION => Some(BtfKind::Structure),
                TYPEDEF => Some(BtfKind::Typedef),
                _ => None,
            };
            if let Some(kind) = looked_for
                && let Some(rest) = usize::try_from(name).ok().and_then(|name| names.get(name..))
                && rest.first().is_some_and(|first| is_first[usize::from(*first)])
            {
                let is_it = |(of, name): &&(BtfKind, &str)| {
                    let behind = rest.strip_prefix(name.as_bytes());
                    *of == kind && behind.is_some_and(|behind| behind.first() == Some(&0))
                };
                if let Some((_, name)) = wanted.iter().find(is_it) {
                    let number = u32::try_from(read.starts.len()).ok()?;
                    read.found.entry((kind, name.as_bytes())).or_insert(number);
                }
            }
            at = at.checked_add(12)?.checked_add(tail_bytes(kind, members)?)?;
        }
        Some(read)
    }

    fn name(&self, at: u32) -> Option<&'a [u8]> {
        let rest = self.names.get(usize::try_from(at).ok()?..)?;
        rest.split(|byte| *byte == 0).next()
    }

    /// Returns the number of a wanted type.
    #[must_use]
    pub fn number(&self, kind: BtfKind, name: &str) -> Option<u32> {
        self.found.get(&(kind, name.as_bytes())).copied()
    }

    /// Returns where a field is, as [`field`](Types::field), as an offset in an instruction.
    #[must_use]
    pub fn offset(&self, structure: &str, path: &str) -> Option<i16> {
        i16::try_from(self.field(structure, path)?).ok()
    }

    /// Returns where a field is in a wanted structure, in bytes; `path` goes through structures in it: `se.exec_start`.
    ///
    /// Fields of structures without a name are found as C finds them.
    #[must_use]
    pub fn field(&self, structure: &str, path: &str) -> Option<u32> {
        let mut number = self.number(BtfKind::Structure, structure)?;
        let mut bits = 0_u32;
        for name in path.split('.') {
            let (at, inner) = self.member(number, name.as_bytes(), 8)?;
            bits = bits.checked_add(at)?;
            number = inner;
        }
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    /// Returns the arguments of a wanted typed tracepoint (`btf_trace_…`): of each the name of the structure that it points to, empty
    /// for what is no pointer to a structure.
    #[must_use]
    pub fn tracepoint_arguments(&self, name: &str) -> Option<Vec<&'a [u8]>> {
        let pointer = self.bare(self.number(BtfKind::Typedef, name)?)?;
        let (at, kind, _) = self.record(pointer)?;
        let (at, kind, count) = match kind {
            POINTER => self.record(self.bare(word(self.types, at + 8)?)?)?,
            _ => (at, kind, 0),
        };
        if kind != PARAMETERS {
            return None;
        }
        // The first one is the tracepoint's own.
        let arguments = (1..count).map(|index| {
            let number = word(self.types, at + 12 + 8 * index + 4)?;
            Some(self.pointed_structure(number).unwrap_or_default())
        });
        arguments.collect()
    }

    /// Returns the name of the structure that a type points to.
    fn pointed_structure(&self, number: u32) -> Option<&'a [u8]> {
        let (at, kind, _) = self.record(self.bare(number)?)?;
        let inner = self.bare(word(self.types, at + 8)?)?;
        let (at, of, _) = self.record(inner)?;
        let is_structure = kind == POINTER && matches!(of, STRUCT | UNION);
        is_structure.then(|| self.name(word(self.types, at)?)).flatten()
    }

    /// Returns the record of a type: where it begins, its kind and how many members it has.
    fn record(&self, number: u32) -> Option<(usize, u32, usize)> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        let at = usize::try_from(*self.starts.get(index)?).ok()?;
        let info = word(self.types, at + 4)?;
        Some((at, info >> 24 & 31, usize::try_from(info & 0xffff).ok()?))
    }

    /// Follows typedefs and qualifiers to what they stand for.
    fn bare(&self, mut number: u32) -> Option<u32> {
        for _ in 0..16 {
            let (at, kind, _) = self.record(number)?;
            if !matches!(kind, TYPEDEF..=11 | 18) {
                return Some(number);
            }
            number = word(self.types, at + 8)?;
        }
        None
    }

    /// Finds a member by its name: where it is in bits, and its type.
    fn member(&self, structure: u32, name: &[u8], depth: u32) -> Option<(u32, u32)> {
        let structure = self.bare(structure)?;
        let (at, kind, members) = self.record(structure)?;
        if !matches!(kind, STRUCT | UNION) || depth == 0 {
            return None;
        }
        // With this flag the upper eight bits of an offset are the width of a bit field.
        let has_widths = word(self.types, at + 4)? >> 31 == 1;
        for index in 0..members {
            let member = at + 12 + index * 12;
            let member_name = self.name(word(self.types, member)?)?;
            let inner = word(self.types, member + 4)?;
            let mut bits = word(self.types, member + 8)?;
            if has_widths {
                bits &= 0x00ff_ffff;
            }
            if member_name == name {
                return Some((bits, inner));
            }
            if member_name.is_empty()
                && let Some((more, found)) = self.member(inner, name, depth - 1)
            {
                return Some((bits.checked_add(more)?, found));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct outer { int a; struct { int b; struct inner { int c; } in; }; }` and a typedef of it.
    fn small() -> Vec<u8> {
        let names = b"\0int\0outer\0a\0b\0inner\0c\0in\0named\0";
        let types: &[u32] = &[
            1,
            1 << 24,
            4,
            32, // 1: int
            15,
            STRUCT << 24 | 1,
            4,
            21,
            1,
            0, // 2: inner { c }
            0,
            STRUCT << 24 | 2,
            8,
            13,
            1,
            0,
            23,
            2,
            32, // 3: { b; in }
            5,
            STRUCT << 24 | 2,
            12,
            11,
            1,
            0,
            0,
            3,
            32, // 4: outer
            26,
            TYPEDEF << 24,
            4, // 5: named
        ];
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [24, 0, types.len(), types.len(), names.len()] {
            bytes.extend(u32::try_from(word).unwrap().to_ne_bytes());
        }
        bytes.extend(types);
        bytes.extend(names);
        bytes
    }

    const WANTED: &[(BtfKind, &str)] =
        &[(BtfKind::Structure, "outer"), (BtfKind::Typedef, "named")];

    #[test]
    fn fields_are_found_through_structures_without_a_name() {
        let bytes = small();
        let types = Types::read(&bytes, WANTED).unwrap();
        assert_eq!(types.field("outer", "a"), Some(0));
        assert_eq!(types.field("outer", "b"), Some(4));
        assert_eq!(types.field("outer", "in.c"), Some(8));
        assert_eq!(types.field("outer", "d"), None);
        assert_eq!(types.field("inner", "c"), None, "it was not asked for");
        assert_eq!(types.number(BtfKind::Typedef, "named"), Some(5));
    }

    #[test]
    fn bytes_that_are_cut_or_changed_are_refused_or_read_without_a_panic() {
        let bytes = small();
        for end in 0..bytes.len() {
            let _ = Types::read(&bytes[..end], WANTED);
        }
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                if let Some(types) = Types::read(&changed, WANTED) {
                    let _ = types.field("outer", "in.c");
                }
            }
        }
    }

    #[test]
    fn this_kernel_says_where_a_task_keeps_its_number() {
        let Ok(bytes) = std::fs::read(PATH) else { return };
        let wanted =
            [(BtfKind::Structure, "task_struct"), (BtfKind::Typedef, "btf_trace_sys_enter")];
        let types = Types::read(&bytes, &wanted).expect("well formed");
        assert!(types.field("task_struct", "tgid") > types.field("task_struct", "se.exec_start"));
        assert!(types.number(BtfKind::Typedef, "btf_trace_sys_enter").is_some());
        let arguments = types.tracepoint_arguments("btf_trace_sys_enter").expect("it has some");
        assert_eq!(arguments, [&b"pt_regs"[..], b""]);
        assert_eq!(types.tracepoint_arguments("btf_trace_sys_exit"), None, "it was not asked for");
    }
}
