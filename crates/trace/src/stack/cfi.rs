//! Call frame information: from an address to the function that holds it and the rule that finds its caller.

use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, DebugFrameOffset, EhFrame, EhFrameOffset,
    EndianSlice, LittleEndian, RegisterRule, UnwindContext, UnwindSection,
};

use super::rule::{
    Cfa, Expression, FramePointerSetup, REGISTERS, RETURN_ADDRESS, Rule, SavedRegister,
};

/// The most functions that a table may have.
const FUNCTIONS: usize = 4 << 20;

/// The longest program of one function; longer ones are made to keep us busy.
const PROGRAM: usize = 1 << 16;

type Bytes<'table> = EndianSlice<'table, LittleEndian>;

/// The addresses of a function, or of a part of one, as the unwind tables have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// From its first address to behind its last.
    pub(crate) range: Range<u64>,
    /// Whether a signal's handler returns to it: what is above it was interrupted and did not call.
    pub(crate) is_signal_frame: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CfaRuleKind {
    Eh,
    Debug,
}

/// A section with unwind information, and where in it each function is.
#[derive(Debug)]
pub(crate) struct Table {
    kind: CfaRuleKind,
    bytes: Vec<u8>,
    bases: BaseAddresses,
    /// First address of a function and where its entry is, by address.
    entries: Vec<(u64, usize)>,
}

impl Table {
    /// Returns the address of `.eh_frame` that the `.eh_frame_hdr` in `index`, which is at `address`, tells.
    pub(crate) fn eh_frame_address(address: u64, index: &[u8]) -> Option<u64> {
        // All linkers write the pointer relative to itself, in 32 bits.
        let offset = i32::from_le_bytes(index.get(4..8)?.try_into().ok()?);
        (index.get(..2)? == [1, 0x1b])
            .then(|| address.wrapping_add(4).wrapping_add_signed(i64::from(offset)))
    }

    /// Takes the `.eh_frame` in `bytes`, which is at `address`, with its `.eh_frame_hdr` if there is one.
    pub(crate) fn eh_frame(
        address: u64,
        bytes: Vec<u8>,
        index: Option<(u64, &[u8])>,
    ) -> Option<Table> {
        let bases = BaseAddresses::default().set_eh_frame(address);
        let mut table = Table { kind: CfaRuleKind::Eh, bytes, bases, entries: Vec::new() };
        let indexed = index.and_then(|(at, index)| indexed(at, index, address));
        table.entries = match indexed {
            Some(entries) => entries,
            None => walk(&table.eh(), &table.bases),
        };
        table.entries.sort_unstable();
        (!table.entries.is_empty()).then_some(table)
    }

    /// Takes a `.debug_frame`.
    pub(crate) fn debug_frame(bytes: Vec<u8>) -> Option<Table> {
        let bases = BaseAddresses::default();
        let mut table = Table { kind: CfaRuleKind::Debug, bytes, bases, entries: Vec::new() };
        table.entries = walk(&table.debug(), &table.bases);
        table.entries.sort_unstable();
        (!table.entries.is_empty()).then_some(table)
    }

    fn eh(&self) -> EhFrame<Bytes<'_>> {
        let mut section = EhFrame::new(&self.bytes, LittleEndian);
        section.set_address_size(8);
        section
    }

    fn debug(&self) -> DebugFrame<Bytes<'_>> {
        let mut section = DebugFrame::new(&self.bytes, LittleEndian);
        section.set_address_size(8);
        section
    }

    /// Returns where the entry that begins at or next below `address` is.
    fn entry(&self, address: u64) -> Option<usize> {
        let behind = self.entries.partition_point(|(start, _)| *start <= address);
        Some(self.entries.get(behind.checked_sub(1)?)?.1)
    }

    /// Returns the function that holds `address`.
    pub(crate) fn function(&self, address: u64) -> Option<Function> {
        let at = self.entry(address)?;
        match self.kind {
            CfaRuleKind::Eh => function(&self.eh(), &self.bases, EhFrameOffset(at), address),
            CfaRuleKind::Debug => {
                function(&self.debug(), &self.bases, DebugFrameOffset(at), address)
            }
        }
    }

    /// Returns the rule by which the caller of the code at `address` is found.
    pub(super) fn rule(&self, address: u64, context: &mut UnwindContext<usize>) -> Option<Rule> {
        let at = self.entry(address)?;
        match self.kind {
            CfaRuleKind::Eh => rule(&self.eh(), &self.bases, EhFrameOffset(at), address, context),
            CfaRuleKind::Debug => {
                rule(&self.debug(), &self.bases, DebugFrameOffset(at), address, context)
            }
        }
    }
}

/// Decodes the search table of an `.eh_frame_hdr` in the form that all linkers write; none for another form.
fn indexed(address: u64, index: &[u8], eh_frame: u64) -> Option<Vec<(u64, usize)>> {
    let word = |bytes: &[u8]| Some(i32::from_le_bytes(bytes.try_into().ok()?));
    // Version 1; pointer relative to itself, count as it is, table relative to the section: all of 32 bits.
    if index.get(..4)? != [1, 0x1b, 0x03, 0x3b] {
        return None;
    }
    let count = u32::from_le_bytes(index.get(8..12)?.try_into().ok()?);
    let count = usize::try_from(count).ok()?;
    let pairs = index.get(12..12_usize.checked_add(count.checked_mul(8)?)?)?;
    if count > FUNCTIONS || count == 0 {
        return None;
    }
    let pairs = pairs.chunks_exact(8).map(|pair| {
        let start = address.wrapping_add_signed(i64::from(word(&pair[..4])?));
        let entry = address.wrapping_add_signed(i64::from(word(&pair[4..])?));
        Some((start, usize::try_from(entry.checked_sub(eh_frame)?).ok()?))
    });
    pairs.collect()
}

/// Reads a whole section to find its functions.
fn walk<'table, S>(section: &S, bases: &BaseAddresses) -> Vec<(u64, usize)>
where
    S: UnwindSection<Bytes<'table>>,
{
    let mut found = Vec::new();
    let mut entries = section.entries(bases);
    while found.len() < FUNCTIONS
        && let Ok(Some(entry)) = entries.next()
    {
        let CieOrFde::Fde(partial) = entry else { continue };
        if let Ok(fde) = partial.parse(S::cie_from_offset)
            && fde.len() != 0
            && fde.initial_address() != 0
        {
            found.push((fde.initial_address(), fde.offset()));
        }
    }
    found
}

fn fde<'table, S>(
    section: &S,
    bases: &BaseAddresses,
    at: S::Offset,
    address: u64,
) -> Option<gimli::FrameDescriptionEntry<Bytes<'table>>>
where
    S: UnwindSection<Bytes<'table>>,
{
    let fde = section.fde_from_offset(bases, at, S::cie_from_offset).ok()?;
    // The index leads to the entry below; whether that one holds the address only it knows.
    (fde.contains(address) && fde.entry_len() <= PROGRAM).then_some(fde)
}

fn function<'table, S>(
    section: &S,
    bases: &BaseAddresses,
    at: S::Offset,
    address: u64,
) -> Option<Function>
where
    S: UnwindSection<Bytes<'table>>,
{
    let fde = fde(section, bases, at, address)?;
    let range = fde.initial_address()..fde.initial_address().checked_add(fde.len())?;
    Some(Function { range, is_signal_frame: fde.is_signal_trampoline() })
}

fn rule<'table, S>(
    section: &S,
    bases: &BaseAddresses,
    at: S::Offset,
    address: u64,
    context: &mut UnwindContext<usize>,
) -> Option<Rule>
where
    S: UnwindSection<Bytes<'table>>,
{
    let fde = fde(section, bases, at, address)?;
    let mut rows = fde.rows(section, bases, context).ok()?;
    let usual = CfaRule::RegisterAndOffset { register: gimli::X86_64::RBP, offset: 16 };
    let mut set_at = None;
    let row = loop {
        let row = rows.next_row().ok()??;
        if *row.cfa() == usual && set_at.is_none() {
            set_at = Some(row.start_address());
        }
        if row.contains(address) {
            break row;
        }
    };
    let encoding = fde.cie().encoding();
    let expression = |at: &gimli::UnwindExpression<usize>| {
        let bytes = at.get(section).ok()?.0.slice();
        Some(Expression { bytes: bytes.into(), encoding })
    };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Cfa::Register(register.0, *offset),
        CfaRule::Expression(at) => Cfa::Expression(expression(at)?),
    };
    let mut saved = Vec::new();
    for (register, how) in row.registers() {
        let how = match how {
            RegisterRule::Undefined => SavedRegister::Undefined,
            RegisterRule::SameValue => continue,
            RegisterRule::Offset(offset) => SavedRegister::At(*offset),
            RegisterRule::ValOffset(offset) => SavedRegister::Value(*offset),
            RegisterRule::Register(other) => SavedRegister::In(other.0),
            RegisterRule::Expression(at) => SavedRegister::AtExpression(expression(at)?),
            RegisterRule::ValExpression(at) => SavedRegister::ValueOf(expression(at)?),
            RegisterRule::Constant(value) => SavedRegister::Constant(*value),
            _ => return None,
        };
        if usize::from(register.0) < REGISTERS {
            saved.push((register.0, how));
        }
    }
    if fde.cie().return_address_register() != RETURN_ADDRESS {
        return None;
    }
    let is_kept_at = |register: u16, offset| saved.contains(&(register, SavedRegister::At(offset)));
    let is_usual = *row.cfa() == usual
        && is_kept_at(RETURN_ADDRESS.0, -8)
        && is_kept_at(gimli::X86_64::RBP.0, -16);
    // A part that was moved elsewhere begins with the frame made.
    let set_at = set_at.filter(|set_at| is_usual && *set_at > fde.initial_address());
    let end = fde.initial_address().checked_add(fde.len());
    let setup = set_at.zip(end).map(|(set_at, end)| FramePointerSetup { set_at, end, at: address });
    let is_signal_frame = fde.is_signal_trampoline();
    Some(Rule { cfa, saved, setup: setup.map(Box::new), is_signal_frame })
}
