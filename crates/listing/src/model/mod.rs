//! The rows of a view: the entries of a listing in an order, filtered, and what changes in them.

mod arrivals;
mod bits;
mod changes;
mod filter;
mod names;
mod order;
mod rebuild;
mod rows;

use std::cmp::Ordering;
use std::sync::Arc;

pub use changes::{Changes, RowChange};
pub use filter::{Case, Hidden, NamePattern, ViewFilter};
pub use names::SortDirection;
pub use order::{By, DirectoryPlacement, RowOrder};
pub use rebuild::Rebuild;

use super::{AttributeSet, Attributes, Entries, EntryId, EntryKind, FileTime};
use crate::collation::Collation;
use arrivals::Arrivals;
use bits::Bits;
use names::{NameKeys, NameSort};
use rebuild::Log;
use rows::Rows;

/// Changes up to this number are told one by one.
const FEW: usize = 32;
/// The first time that the common start of names is looked for.
const FIRST_LOOK: usize = 32;

/// What a model is made from: entries with numbers that never change.
pub trait ModelSource {
    /// The name of an entry.
    fn name(&self, id: EntryId) -> &[u8];
    /// Its type as far as it is known.
    fn kind(&self, id: EntryId) -> EntryKind;
    /// Its attributes, if they are there.
    fn attributes(&self, id: EntryId) -> Option<Attributes>;

    /// Its length, if it is known.
    fn size(&self, id: EntryId) -> Option<u64> {
        let known = self.attributes(id)?;
        known.fields.contains(AttributeSet::SIZE).then_some(known.size)
    }

    /// The time that an order by time takes, if it is known.
    fn time(&self, id: EntryId, by: By) -> Option<FileTime> {
        let known = self.attributes(id)?;
        let (field, time) = match by {
            By::Modified => (AttributeSet::MODIFIED, known.modified),
            By::Accessed => (AttributeSet::ACCESSED, known.accessed),
            By::Changed => (AttributeSet::CHANGED, known.changed),
            By::Born => (AttributeSet::BORN, known.born),
            _ => return None,
        };
        known.fields.contains(field).then_some(time)
    }
}

impl ModelSource for Entries {
    fn name(&self, id: EntryId) -> &[u8] {
        Entries::name(self, id)
    }

    fn kind(&self, id: EntryId) -> EntryKind {
        Entries::kind(self, id)
    }

    fn attributes(&self, id: EntryId) -> Option<Attributes> {
        Entries::attributes(self, id)
    }
}

/// The rows of a view.
///
/// It holds 12 bytes and some bits for each entry, 20 bytes in an order by attributes; names and attributes stay in the listing, which is given to each call. A row is found in
/// O(log n), an entry's row with O(log n) comparisons, and a change costs what is near it, not the list.
///
/// The caller tells what has happened to the listing after it has happened: names that arrived, attributes that are there or are others, names that
/// are gone or others. An entry that is gone never comes back; its name stays readable.
#[derive(Debug)]
pub struct Model {
    collation: Arc<Collation>,
    order: RowOrder,
    filter: ViewFilter,
    /// The number of each entry in the order, by entry.
    keys: Vec<u64>,
    /// In an order by attributes, of which many are equal: the names' numbers, by entry.
    name_keys: Vec<u64>,
    names: NameKeys,
    /// Names when `names` was chosen.
    chosen_at: usize,
    rows: Rows,
    visible: Bits,
    gone: Bits,
    arrivals: Arrivals,
    log: Option<Log>,
}

impl Model {
    /// Makes a model without entries.
    #[must_use]
    pub fn new(collation: Arc<Collation>, order: RowOrder, filter: ViewFilter) -> Model {
        Model {
            collation,
            order,
            filter,
            keys: Vec::new(),
            name_keys: Vec::new(),
            names: NameKeys::default(),
            chosen_at: 0,
            rows: Rows::default(),
            visible: Bits::default(),
            gone: Bits::default(),
            arrivals: Arrivals::default(),
            log: None,
        }
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 0
    }

    /// Returns the order of the rows.
    #[must_use]
    pub fn order(&self) -> RowOrder {
        self.order
    }

    /// Returns what is shown.
    #[must_use]
    pub fn filter(&self) -> &ViewFilter {
        &self.filter
    }

    /// Returns the number of entries that the model was told of, with those that are gone or not shown.
    #[must_use]
    pub fn known(&self) -> u32 {
        u32::try_from(self.keys.len()).unwrap_or(u32::MAX)
    }

    /// Returns the entry in a row.
    #[must_use]
    pub fn entry(&self, row: usize) -> Option<EntryId> {
        self.rows.get(row)
    }

    /// Returns the entries from a row on, in order.
    pub fn entries_from(&self, row: usize) -> impl Iterator<Item = EntryId> {
        self.rows.from(row)
    }

    /// Returns the row of an entry; `None` if it is not shown.
    pub fn row<S: ModelSource + ?Sized>(&self, source: &S, id: EntryId) -> Option<usize> {
        if !self.visible.has(id) {
            return None;
        }
        self.rows.find(|other| self.compare(source, other, id))
    }

    /// Takes the names that have arrived since the last call: the numbers from [`Model::known`] to `count`.
    pub fn arrived<S: ModelSource + ?Sized>(&mut self, source: &S, count: u32) -> Changes {
        let first = self.known();
        self.choose_names(source, count);
        let mut new = Vec::with_capacity(count.saturating_sub(first) as usize);
        self.keys.reserve_exact(new.capacity());
        if self.order.needs_attributes() {
            self.name_keys.reserve_exact(new.capacity());
        }
        for id in first..count {
            let shown = !self.gone.has(id) && self.filter.admits(source.name(id));
            // An entry that is not shown gets its key when it is.
            let key = if shown { self.key(source, id) } else { 0 };
            self.keys.push(key);
            if self.order.needs_attributes() {
                self.name_keys.push(0);
            }
            if shown {
                self.set_name_key(source, id);
                self.visible.insert(id);
                new.push(id);
            }
        }
        self.show(source, new)
    }

    /// Takes attributes that have arrived or are others than before; an entry may be told of more than once.
    pub fn attributes_changed<S: ModelSource + ?Sized>(
        &mut self,
        source: &S,
        ids: impl IntoIterator<Item = EntryId>,
    ) -> Changes {
        let mut moving = Vec::new();
        let mut staying = Vec::new();
        let mut stay = 0;
        for id in ids.into_iter().filter(|id| (*id as usize) < self.keys.len()) {
            if let Some(log) = &mut self.log {
                log.touched.push(id);
            }
            if !self.visible.has(id) {
                continue;
            }
            let key = self.key_after_change(source, id);
            if key == self.keys[id as usize] {
                stay += 1;
                if stay <= FEW {
                    staying.push(id);
                }
            } else {
                moving.push((id, key));
            }
        }
        // Who is told of twice, as in all that happened during a rebuild, still has one row.
        moving.sort_unstable_by_key(|(id, _)| *id);
        moving.dedup_by_key(|(id, _)| *id);
        let mut changes = self.reposition(source, moving);
        if stay > FEW {
            changes.push(RowChange::Updated { row: 0, count: self.len() });
        } else {
            for id in staying {
                if let Some(row) = self.row(source, id) {
                    changes.push(RowChange::Updated { row, count: 1 });
                }
            }
        }
        changes
    }

    /// Takes out entries that are gone.
    pub fn removed<S: ModelSource + ?Sized>(
        &mut self,
        source: &S,
        ids: impl IntoIterator<Item = EntryId>,
    ) -> Changes {
        let mut leaving = Vec::new();
        for id in ids.into_iter().filter(|id| (*id as usize) < self.keys.len()) {
            if self.gone.insert(id) {
                if let Some(log) = &mut self.log {
                    log.removed.push(id);
                }
                if self.visible.remove(id) {
                    leaving.push(id);
                }
            }
        }
        self.hide(source, leaving)
    }

    /// Takes entries that have another name. It has to be told before the listing renames others.
    pub fn renamed<S: ModelSource + ?Sized>(
        &mut self,
        source: &S,
        ids: impl IntoIterator<Item = EntryId>,
    ) -> Changes {
        let known = self.keys.len();
        let ids: Vec<EntryId> = ids.into_iter().filter(|id| (*id as usize) < known).collect();
        if let Some(log) = &mut self.log {
            log.renamed.extend_from_slice(&ids);
        }
        self.arrivals.forget_order();
        // All of them leave before one comes back: their rows are those of names that cannot be asked for any more.
        let mut left = Vec::new();
        for id in &ids {
            if self.visible.remove(*id) {
                left.extend(self.take_out_by_key(*id));
            }
        }
        let mut came = Vec::new();
        for id in ids {
            if self.gone.has(id) || !self.filter.admits(source.name(id)) {
                continue;
            }
            if self.visible.insert(id) {
                self.keys[id as usize] = self.key(source, id);
                self.set_name_key(source, id);
                came.push(self.place(source, id));
            }
        }
        let mut changes = Changes::none();
        if let ([from], [to]) = (&left[..], &came[..]) {
            changes.push(RowChange::Moved { from: *from, to: *to });
            return changes;
        }
        left.into_iter().for_each(|row| changes.push(RowChange::Removed { row, count: 1 }));
        came.into_iter().for_each(|row| changes.push(RowChange::Inserted { row, count: 1 }));
        changes
    }

    /// Shows what another filter admits. What is shown before and after keeps its place.
    pub fn set_filter<S: ModelSource + ?Sized>(
        &mut self,
        source: &S,
        filter: ViewFilter,
    ) -> Changes {
        self.filter = filter;
        let (mut coming, mut leaving) = (Vec::new(), Vec::new());
        for id in 0..self.known() {
            if self.gone.has(id) {
                continue;
            }
            match (self.visible.has(id), self.filter.admits(source.name(id))) {
                (false, true) => coming.push(id),
                (true, false) => leaving.push(id),
                _ => {}
            }
        }
        for id in &leaving {
            self.visible.remove(*id);
        }
        let mut changes = self.hide(source, leaving);
        for id in &coming {
            self.visible.insert(*id);
            self.keys[*id as usize] = self.key(source, *id);
            self.set_name_key(source, *id);
        }
        changes.append(self.show(source, coming));
        changes
    }

    /// Puts the rows in another order. For many entries [`Model::plan`] does it beside the model.
    pub fn set_order<S: ModelSource + ?Sized>(&mut self, source: &S, order: RowOrder) -> Changes {
        self.order = order;
        self.name_keys =
            if order.needs_attributes() { vec![0; self.keys.len()] } else { Vec::new() };
        let mut ids: Vec<EntryId> = self.rows.from(0).collect();
        for id in &ids {
            self.keys[*id as usize] = self.key(source, *id);
            self.set_name_key(source, *id);
        }
        self.sort(source, &mut ids);
        self.rows = Rows::of(&ids);
        Changes::Reset
    }

    /// Returns the bytes of memory that the model holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Model>()
            + self.keys.capacity() * size_of::<u64>()
            + self.name_keys.capacity() * size_of::<u64>()
            + self.names.bytes()
            + self.rows.bytes()
            + self.visible.bytes()
            + self.gone.bytes()
            + self.arrivals.bytes()
    }

    /// Puts visible entries with keys in their places.
    fn show<S: ModelSource + ?Sized>(&mut self, source: &S, mut ids: Vec<EntryId>) -> Changes {
        self.sort(source, &mut ids);
        let mut rows = std::mem::take(&mut self.rows);
        let changes = rows.merge(&ids, |a, b| self.compare(source, a, b));
        self.rows = rows;
        changes
    }

    /// Takes entries out of the rows; their keys are still those they are there by.
    fn hide<S: ModelSource + ?Sized>(&mut self, source: &S, ids: Vec<EntryId>) -> Changes {
        if ids.len() > FEW {
            return self.rows.sweep(&ids.into_iter().collect());
        }
        let mut rows = std::mem::take(&mut self.rows);
        let mut changes = Changes::none();
        for id in ids {
            let row = rows.remove(|other| self.compare(source, other, id));
            // A source that renames without telling misleads comparisons, but not keys.
            let row = row.or_else(|| rows.remove_by_key(id, |other| self.compare_keys(other, id)));
            if let Some(row) = row {
                changes.push(RowChange::Removed { row, count: 1 });
            }
        }
        self.rows = rows;
        changes
    }

    /// Moves entries to the places of their new keys.
    fn reposition<S: ModelSource + ?Sized>(
        &mut self,
        source: &S,
        moving: Vec<(EntryId, u64)>,
    ) -> Changes {
        let mut changes = Changes::none();
        if moving.len() > FEW {
            changes.append(self.rows.sweep(&moving.iter().map(|(id, _)| *id).collect()));
            let ids = moving.iter().map(|(id, _)| *id).collect();
            for (id, key) in moving {
                self.keys[id as usize] = key;
            }
            changes.append(self.show(source, ids));
            return changes;
        }
        for (id, key) in moving {
            let mut rows = std::mem::take(&mut self.rows);
            let from = rows.remove(|other| self.compare(source, other, id));
            self.keys[id as usize] = key;
            self.rows = rows;
            let to = self.place(source, id);
            changes.push(match from {
                Some(from) if from == to => RowChange::Updated { row: to, count: 1 },
                Some(from) => RowChange::Moved { from, to },
                None => RowChange::Inserted { row: to, count: 1 },
            });
        }
        changes
    }

    fn compare_keys(&self, a: EntryId, b: EntryId) -> Ordering {
        self.keys[a as usize].cmp(&self.keys[b as usize])
    }

    /// Takes an entry out of its row without asking for its name.
    fn take_out_by_key(&mut self, id: EntryId) -> Option<usize> {
        let mut rows = std::mem::take(&mut self.rows);
        let row = rows.remove_by_key(id, |other| self.compare_keys(other, id));
        self.rows = rows;
        row
    }

    /// Puts one entry into its row.
    fn place<S: ModelSource + ?Sized>(&mut self, source: &S, id: EntryId) -> usize {
        let mut rows = std::mem::take(&mut self.rows);
        let row = rows.insert(id, |other| self.compare(source, other, id));
        self.rows = rows;
        row
    }

    fn key<S: ModelSource + ?Sized>(&self, source: &S, id: EntryId) -> u64 {
        self.order.key(source, id, &self.names, &self.collation)
    }

    /// Keeps the number of a name where many entries are equal in everything else.
    fn set_name_key<S: ModelSource + ?Sized>(&mut self, source: &S, id: EntryId) {
        if let Some(place) = self.name_keys.get_mut(id as usize) {
            *place = self.names.key(&self.collation, source.name(id));
        }
    }

    /// Compares the numbers of names, if they are kept.
    fn compare_name_keys(&self, a: EntryId, b: EntryId) -> Ordering {
        let (Some(a), Some(b)) = (self.name_keys.get(a as usize), self.name_keys.get(b as usize))
        else {
            return Ordering::Equal;
        };
        match self.order.direction {
            SortDirection::Ascending => a.cmp(b),
            SortDirection::Descending => b.cmp(a),
        }
    }

    fn key_after_change<S: ModelSource + ?Sized>(&self, source: &S, id: EntryId) -> u64 {
        if self.order.needs_attributes() || self.order.by == By::Type {
            self.key(source, id)
        } else {
            self.order.with_kind(self.keys[id as usize], source.kind(id))
        }
    }

    /// Compares two entries by their keys, and by what keys do not hold.
    fn compare<S: ModelSource + ?Sized>(&self, source: &S, a: EntryId, b: EntryId) -> Ordering {
        self.compare_keys(a, b).then_with(|| {
            if !self.order.is_by_name_then() {
                return a.cmp(&b);
            }
            let by_extension = if self.order.is_by_extension() {
                self.compare_extensions(source, a, b)
            } else {
                Ordering::Equal
            };
            by_extension
                .then_with(|| self.compare_name_keys(a, b))
                .then_with(|| self.name_sort(source).compare(a, b))
        })
    }

    fn compare_extensions<S: ModelSource + ?Sized>(
        &self,
        source: &S,
        a: EntryId,
        b: EntryId,
    ) -> Ordering {
        let order = names::compare_extensions(&self.collation, source.name(a), source.name(b));
        match self.order.direction {
            SortDirection::Ascending => order,
            SortDirection::Descending => order.reverse(),
        }
    }

    fn name_sort<'a, S: ModelSource + ?Sized>(&'a self, source: &'a S) -> NameSort<'a, S> {
        NameSort { source, collation: &self.collation, direction: self.order.direction }
    }

    /// Sorts entries by their keys, then those with equal keys.
    fn sort<S: ModelSource + ?Sized>(&self, source: &S, ids: &mut [EntryId]) {
        let mut keyed: Vec<(u64, EntryId)> =
            ids.iter().map(|id| (self.keys[*id as usize], *id)).collect();
        keyed.sort_unstable();
        for (place, (_, id)) in ids.iter_mut().zip(&keyed) {
            *place = *id;
        }
        if !self.order.is_by_name_then() {
            return;
        }
        let mut rest = ids;
        for equal in keyed.chunk_by(|a, b| a.0 == b.0) {
            let (group, after) = rest.split_at_mut(equal.len());
            rest = after;
            let Some(first) = group.first().filter(|_| group.len() > 1) else { continue };
            if !self.name_keys.is_empty() {
                self.sort_by_name_keys(source, group);
                continue;
            }
            let names_decide = !self.order.is_by_extension()
                || names::is_short_extension(&self.collation, source.name(*first));
            if names_decide {
                self.name_sort(source).sort(group, 0);
            } else {
                group.sort_unstable_by(|a, b| self.compare(source, *a, *b));
            }
        }
    }

    /// Sorts entries with equal keys by the numbers of their names, then those with equal numbers.
    fn sort_by_name_keys<S: ModelSource + ?Sized>(&self, source: &S, ids: &mut [EntryId]) {
        ids.sort_unstable_by(|a, b| self.compare_name_keys(*a, *b));
        for group in ids.chunk_by_mut(|a, b| self.compare_name_keys(*a, *b).is_eq()) {
            if group.len() > 1 {
                self.name_sort(source).sort(group, 0);
            }
        }
    }

    /// Looks for what most names begin with, for the first time and when there are many more.
    fn choose_names<S: ModelSource + ?Sized>(&mut self, source: &S, count: u32) {
        let due = if self.chosen_at == 0 { FIRST_LOOK } else { self.chosen_at * 8 };
        if !self.order.is_by_name_then() || (count as usize) < due {
            return;
        }
        self.chosen_at = count as usize;
        let name = |index: usize| source.name(u32::try_from(index).unwrap_or(u32::MAX));
        let names = NameKeys::choose(&self.collation, count as usize, name);
        if names == self.names {
            return;
        }
        self.names = names;
        self.arrivals.forget_order();
        for id in 0..self.known() {
            if self.visible.has(id) {
                if self.order.by == By::Name {
                    self.keys[id as usize] = self.key(source, id);
                }
                self.set_name_key(source, id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
