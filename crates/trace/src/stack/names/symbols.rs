//! A symbol table, and which of its names an address may bear.

use std::ops::Range;

use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, ElfSymbol, Sym, SymbolTable};
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, ReadRef, SymbolKind, SymbolSection,
};

use crate::stack::cfi::Function;

/// The most symbols that are read of a table.
const SYMBOLS: usize = 4 << 20;

/// The longest name that is shown.
const NAME: usize = 16 << 10;

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    size: u64,
    /// Where its name begins.
    name: u32,
    is_local: bool,
}

/// The functions of a symbol table.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    /// By address.
    entries: Vec<Entry>,
    /// All names, each with a zero at its end. They are compared only where an address is looked up: of the tens of thousands
    /// of a library a few are ever shown.
    names: Box<[u8]>,
    /// The largest size, which bounds how far below an address its symbol may begin.
    widest: u64,
}

/// A name that an address may bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SymbolCandidate<'table> {
    /// As the linker has it.
    pub(super) name: &'table [u8],
    /// Where the function begins.
    pub(super) start: u64,
}

impl Symbols {
    /// Reads `.symtab`.
    pub(super) fn full<'data, D: ReadRef<'data>>(
        file: &ElfFile64<'data, LittleEndian, D>,
    ) -> Symbols {
        Symbols::of(file, file.elf_symbol_table(), file.symbols())
    }

    /// Reads `.dynsym`: what the file shows to others.
    pub(super) fn exported<'data, D: ReadRef<'data>>(
        file: &ElfFile64<'data, LittleEndian, D>,
    ) -> Symbols {
        Symbols::of(file, file.elf_dynamic_symbol_table(), file.dynamic_symbols())
    }

    fn of<'data: 'file, 'file, D: ReadRef<'data> + 'file>(
        file: &'file ElfFile64<'data, LittleEndian, D>,
        table: &SymbolTable<'data, FileHeader64<LittleEndian>, D>,
        symbols: impl Iterator<Item = ElfSymbol<'data, 'file, FileHeader64<LittleEndian>, D>>,
    ) -> Symbols {
        // Read at once: a read for each name costs more than all else that is done for a report.
        let strings = file.section_by_index(table.string_section());
        let Ok(names) = strings.and_then(|strings| strings.data()) else {
            return Symbols::default();
        };
        let mut entries = Vec::new();
        let mut widest = 0;
        for symbol in symbols.take(SYMBOLS) {
            // Only what is defined in a section is code of this file; hand-written assembly has no type.
            let is_code = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown)
                && matches!(symbol.section(), SymbolSection::Section(_))
                && symbol.address() != 0;
            let name = symbol.elf_symbol().st_name(LittleEndian);
            let first = usize::try_from(name).ok().and_then(|at| names.get(at));
            if !is_code || first.is_none_or(|first| *first == 0) {
                continue;
            }
            let (start, size) = (symbol.address(), symbol.size());
            widest = widest.max(size);
            entries.push(Entry { start, size, name, is_local: symbol.is_local() });
        }
        Symbols::new(entries, names.into(), widest)
    }

    fn new(mut entries: Vec<Entry>, names: Box<[u8]>, widest: u64) -> Symbols {
        entries.sort_unstable_by_key(|entry| entry.start);
        Symbols { entries, names, widest }
    }

    /// Returns the name of an entry as the linker has it; none if it has no end.
    fn name(&self, entry: &Entry) -> Option<&[u8]> {
        let rest = self.names.get(usize::try_from(entry.name).ok()?..)?;
        let end = rest.iter().take(NAME + 1).position(|byte| *byte == 0)?;
        Some(&rest[..end])
    }

    /// Returns whether there is no function in it.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the name of the function that holds `address`, which the unwind tables say is `function`.
    ///
    /// A name counts only where its symbol says that it reaches so far, and where the unwind tables do not say that
    /// another function has begun since. The nearest name below is what other tools show, and it is often wrong.
    pub(super) fn find(
        &self,
        address: u64,
        function: Option<&Function>,
    ) -> Option<SymbolCandidate<'_>> {
        let behind = self.entries.partition_point(|entry| entry.start <= address);
        let below = self.entries.get(..behind)?;
        // A symbol that agrees with the tables begins where they do or later.
        let reach = match function {
            Some(function) if !may_be_part(&function.range) => {
                (address - function.range.start).saturating_add(1)
            }
            _ => self.widest,
        };
        let mut best: Option<(CandidateOrder<'_>, &Entry)> = None;
        for (at, entry) in below.iter().enumerate().rev() {
            if best.as_ref().is_some_and(|(_, best)| best.start != entry.start)
                || address - entry.start >= reach
            {
                break;
            }
            let next = self.entries[at..]
                .iter()
                .map(|other| other.start)
                .find(|start| *start > entry.start);
            if !entry.holds(address, function, next) {
                continue;
            }
            let Some(name) = self.name(entry) else { continue };
            let shown = plain(name);
            let order = (entry.size == 0, rank(name, entry.is_local), shown.len(), shown);
            if best.as_ref().is_none_or(|(best, _)| order < *best) {
                best = Some((order, entry));
            }
        }
        best.map(|((.., name), entry)| SymbolCandidate { name, start: entry.start })
    }
}

/// Of the names of one address the least is shown: with a size, of the best rank, the shortest, the first by its bytes.
type CandidateOrder<'table> = (bool, u8, usize, &'table [u8]);

impl Entry {
    fn holds(&self, address: u64, function: Option<&Function>, next: Option<u64>) -> bool {
        if self.size == 0 {
            return function.is_some_and(|function| function.range.start == self.start)
                && next.is_none_or(|next| address < next);
        }
        let Some(end) = self.start.checked_add(self.size) else { return false };
        let is_inside = self.start <= address && address < end;
        is_inside && function.is_none_or(|function| agrees(&(self.start..end), &function.range))
    }
}

/// Returns whether a symbol may name a function of the unwind tables.
fn agrees(symbol: &Range<u64>, function: &Range<u64>) -> bool {
    // The tables may begin a little earlier, as at a signal's trampoline. If they begin later, another function has begun
    // since, unless it is a part of one that was written by hand: functions are aligned, parts of them are not.
    let is_part = may_be_part(function) && symbol.start < function.start;
    (symbol.start >= function.start && symbol.start < function.end)
        || (is_part && function.end <= symbol.end)
}

/// Returns whether an entry of the tables may begin inside of a function.
fn may_be_part(function: &Range<u64>) -> bool {
    !function.start.is_multiple_of(16)
}

/// Says how good a name is among several of one address: public ones before private ones.
fn rank(name: &[u8], is_local: bool) -> u8 {
    let leading = name.iter().take(3).take_while(|byte| **byte == b'_').count();
    let is_mangled = name.starts_with(b"_Z") || name.starts_with(b"_R");
    let reserved = if is_mangled { 0 } else { u8::try_from(leading).unwrap_or(3) };
    let internal = name.starts_with(b"__GI_") || name.starts_with(b"__libc_");
    reserved + 4 * u8::from(internal) + 16 * u8::from(is_local)
}

/// Cuts a version off: `fsync@@GLIBC_2.2.5`.
fn plain(name: &[u8]) -> &[u8] {
    let end = name.iter().position(|byte| *byte == b'@').filter(|at| *at > 0);
    &name[..end.unwrap_or(name.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols(table: &[(u64, u64, &str)]) -> Symbols {
        let mut entries = Vec::new();
        let mut names = vec![0];
        for (start, size, name) in table {
            let at = u32::try_from(names.len()).unwrap();
            entries.push(Entry { start: *start, size: *size, name: at, is_local: false });
            names.extend(name.as_bytes().iter().chain(&[0]));
        }
        let widest = entries.iter().map(|entry| entry.size).max().unwrap_or(0);
        Symbols::new(entries, names.into(), widest)
    }

    fn function(range: Range<u64>) -> Function {
        Function { range, is_signal_frame: false }
    }

    fn name(symbols: &Symbols, address: u64, range: Option<Range<u64>>) -> Option<String> {
        let function = range.map(function);
        let found = symbols.find(address, function.as_ref())?;
        Some(String::from_utf8(found.name.to_vec()).unwrap())
    }

    /// A file that counts how often it is read.
    struct CountedFile(std::fs::File, std::rc::Rc<std::cell::Cell<u32>>);

    impl std::io::Read for CountedFile {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            self.1.set(self.1.get() + 1);
            self.0.read(to)
        }
    }

    impl std::io::Seek for CountedFile {
        fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
            self.0.seek(to)
        }
    }

    #[test]
    fn names_are_not_read_one_by_one() {
        let reads = std::rc::Rc::new(std::cell::Cell::new(0));
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let cache = object::ReadCache::new(CountedFile(file, reads.clone()));
        let elf = ElfFile64::<LittleEndian, _>::parse(&cache).unwrap();
        let symbols = Symbols::full(&elf);
        assert!(symbols.entries.len() > 1000, "{} symbols", symbols.entries.len());
        assert!(reads.get() < 100, "{} reads", reads.get());
    }

    #[test]
    fn a_name_does_not_reach_behind_its_size() {
        let symbols = symbols(&[(0x100, 0x20, "near"), (0x200, 0x10, "next")]);
        assert_eq!(name(&symbols, 0x11f, None).as_deref(), Some("near"));
        assert_eq!(name(&symbols, 0x120, None), None);
        assert_eq!(name(&symbols, 0x120, Some(0x120..0x180)), None);
    }

    #[test]
    fn a_size_that_covers_another_function_is_not_believed() {
        let symbols = symbols(&[(0x100, 0x1000, "wide")]);
        assert_eq!(name(&symbols, 0x180, Some(0x100..0x200)).as_deref(), Some("wide"));
        assert_eq!(name(&symbols, 0x280, Some(0x240..0x300)), None);
        let part = name(&symbols, 0x280, Some(0x241..0x300));
        assert_eq!(part.as_deref(), Some("wide"), "no function begins at an odd address");
    }

    #[test]
    fn a_name_without_a_size_needs_the_function_to_begin_there() {
        let symbols = symbols(&[(0x100, 0, "start"), (0x180, 0, "label")]);
        assert_eq!(name(&symbols, 0x140, Some(0x100..0x200)).as_deref(), Some("start"));
        assert_eq!(name(&symbols, 0x1c0, Some(0x100..0x200)), None, "the label lies between");
        assert_eq!(name(&symbols, 0x140, None), None);
    }

    #[test]
    fn of_several_names_the_public_one_is_shown() {
        let symbols = symbols(&[
            (0x100, 0x20, "__GI_fdatasync"),
            (0x100, 0x20, "fdatasync"),
            (0x100, 0x20, "__libc_fdatasync"),
            (0x100, 0x20, "__fdatasync"),
        ]);
        assert_eq!(name(&symbols, 0x110, Some(0x100..0x120)).as_deref(), Some("fdatasync"));
        assert_eq!(plain(b"fsync@@GLIBC_2.2.5"), b"fsync");
    }
}
