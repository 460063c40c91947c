//! Proving names: every item holds the hash of its full name.

use std::collections::{HashMap, HashSet};

use super::super::layout::{TableItem, hash, hash_before, names_limit};
use super::super::names::Names;
use super::super::read::GvdbTable;

/// How many guesses at the name of a lost directory are made. Each is right by chance once in 2^32, so they are few.
const MAX_GUESSES: usize = 1 << 14;
/// How many times what was found is used to find more: as deep as a lost directory may lie in lost directories.
const MAX_ROUNDS: usize = 32;
/// The longest name of a lost directory that is looked for.
const MAX_LOST_LEN: usize = 1024;

/// Returns for each item the full name that its own hash proves.
///
/// First the names that parents make. Where that fails, the item's hash and its own part still give the hash of its
/// directory: a directory known under that hash takes it in, or else the directory's own name, left behind without an
/// item, is looked for.
pub(super) fn prove(table: GvdbTable<'_>) -> Vec<Option<String>> {
    let mut left_bytes = names_limit(table.bytes.len());
    let names = Names::of(table, &mut left_bytes.clone());
    let mut directories = Directories::default();
    directories.add(hash(b"/"), "/");
    let mut seen_parents = HashSet::new();
    let mut proved: Vec<Option<String>> = Vec::with_capacity(table.items.len());
    for (index, item) in items(table) {
        let name = proved_by_parents(&names, index, item, &mut left_bytes);
        if let Some(name) = &name {
            let dir = &name[..name.len() - usize::from(item.key_len)];
            if seen_parents.insert(item.parent) {
                directories.add(hash(dir.as_bytes()), dir);
            }
            directories.add(item.hash, name);
        }
        proved.push(name);
    }
    for _ in 0..MAX_ROUNDS {
        let n_known = directories.known.len();
        for (index, item) in items(table) {
            let slot = &mut proved[index as usize];
            if slot.is_none() {
                *slot = proved_by_directory(table, item, &directories, &mut left_bytes);
                if let Some(name) = slot {
                    directories.add(item.hash, name);
                }
            }
        }
        find_lost(table, &proved, &mut directories);
        if directories.known.len() == n_known {
            break;
        }
    }
    proved
}

fn items(table: GvdbTable<'_>) -> impl Iterator<Item = (u32, TableItem)> {
    (0u32..).zip(table.items).map(|(index, item)| (index, TableItem::decode(item)))
}

fn proved_by_parents(
    names: &Names<'_>,
    index: u32,
    item: TableItem,
    left_bytes: &mut usize,
) -> Option<String> {
    if names.hash(index)? != item.hash {
        return None;
    }
    *left_bytes = left_bytes.checked_sub(names.name_len(index)?)?;
    // Parts that end inside of a letter make no directory; no writer cuts there.
    let name = names.text(index).filter(|name| !name.contains('\0'))?;
    name.is_char_boundary(name.len() - usize::from(item.key_len)).then_some(name)
}

fn proved_by_directory(
    table: GvdbTable<'_>,
    item: TableItem,
    directories: &Directories,
    left_bytes: &mut usize,
) -> Option<String> {
    let part = text(item.part(table.bytes)?)?;
    // The part is read once more in every round; a round takes at least one directory.
    *left_bytes = left_bytes.checked_sub(part.len())?;
    let name = format!("{}{part}", directories.get(hash_before(item.hash, part.as_bytes()))?);
    *left_bytes = left_bytes.checked_sub(name.len())?;
    Some(name)
}

/// Returns `part` as text, if it can be the last part of a name.
fn text(part: &[u8]) -> Option<&str> {
    let part = str::from_utf8(part).ok()?;
    let inner = part.strip_suffix('/').unwrap_or(part);
    (!inner.is_empty() && !inner.contains(['/', '\0'])).then_some(part)
}

/// The names of directories by their hash.
#[derive(Default)]
struct Directories {
    /// `None` where two have the same hash: then it proves neither.
    known: HashMap<u32, Option<String>>,
}

impl Directories {
    fn add(&mut self, hash: u32, name: &str) {
        if !name.ends_with('/') {
            return;
        }
        let known = self.known.entry(hash).or_insert_with(|| Some(name.to_owned()));
        if known.as_deref() != Some(name) {
            *known = None;
        }
    }

    fn get(&self, hash: u32) -> Option<&str> {
        self.known.get(&hash)?.as_deref()
    }
}

/// Looks for the names of directories that items without a proof are in.
///
/// The name of a directory whose item is damaged still lies where no other item says that something is.
fn find_lost(table: GvdbTable<'_>, proved: &[Option<String>], directories: &mut Directories) {
    let lost: HashSet<u32> = items(table)
        .filter(|(index, _)| proved[*index as usize].is_none())
        .filter_map(|(_, item)| {
            Some(hash_before(item.hash, text(item.part(table.bytes)?)?.as_bytes()))
        })
        .filter(|hash| !directories.known.contains_key(hash))
        .collect();
    if lost.is_empty() {
        return;
    }
    let mut left_guesses = MAX_GUESSES;
    for part in unclaimed_names(table, proved) {
        for &hash in &lost {
            if left_guesses == 0 {
                return;
            }
            left_guesses -= 1;
            let Some(dir) = directories.get(hash_before(hash, part.as_bytes())) else { continue };
            let name = format!("{dir}{part}");
            directories.add(hash, &name);
        }
    }
}

/// Returns what could be the name of a directory: text with a slash at its end, where any item says that something
/// ends (writers leave no room before a name) and no proved item says that something is.
fn unclaimed_names<'a>(table: GvdbTable<'a>, proved: &[Option<String>]) -> Vec<&'a str> {
    let mut claimed = vec![table.span];
    let mut ends = vec![table.span.end];
    for (index, item) in items(table) {
        let spans = [item.part_span(), item.value];
        ends.extend(spans.map(|span| span.end));
        if proved[index as usize].is_some() {
            claimed.extend(spans.iter().filter(|span| span.len() > 0));
        }
    }
    claimed.sort_unstable();
    ends.sort_unstable();
    ends.dedup();
    let mut names = Vec::new();
    let mut claimed = claimed.into_iter().peekable();
    let mut claimed_end = 0;
    for start in ends {
        while let Some(claim) = claimed.next_if(|claim| claim.start <= start) {
            claimed_end = claimed_end.max(claim.end);
        }
        let gap_end = claimed
            .peek()
            .map_or(table.bytes.len(), |next| next.start as usize)
            .min(table.bytes.len());
        let gap = table
            .bytes
            .get(start as usize..gap_end)
            .filter(|_| claimed_end <= start)
            .unwrap_or_default();
        if let Some(slash) = gap.iter().take(MAX_LOST_LEN).position(|&byte| byte == b'/') {
            names.extend(text(&gap[..=slash]));
        }
    }
    names
}
