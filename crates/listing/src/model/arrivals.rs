//! Names that arrived and are not rows yet: they are sorted among each other first, some at a time, so that a main loop is not held for all of them.

use std::cmp::Ordering;

use super::names;
use super::{By, Changes, Model, ModelSource, RowOrder, SortDirection};
use crate::EntryId;

/// Runs are merged up to this length; then they are taken from side by side.
const LONGEST_RUN: usize = 1 << 16;

/// Entries that wait to become rows, in runs that are each in order.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    runs: Vec<Run>,
    /// The order that they are sorted in; another one, or other keys of names, and they are only a set.
    order: Option<RowOrder>,
}

#[derive(Debug, Default)]
struct Run {
    sorted: Vec<Arrival>,
    taken: usize,
}

/// An entry with as much of its name as two numbers hold.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    key: u64,
    rest: u64,
    id: EntryId,
}

impl Arrivals {
    pub(super) fn bytes(&self) -> usize {
        self.runs.iter().map(|run| run.sorted.capacity() * size_of::<Arrival>()).sum()
    }

    /// Takes note that the keys of names are others than those that they were sorted by.
    pub(super) fn forget_order(&mut self) {
        self.order = None;
    }
}

impl Run {
    fn next(&self) -> Option<&Arrival> {
        self.sorted.get(self.taken)
    }

    fn left(&self) -> usize {
        self.sorted.len() - self.taken
    }
}

impl Model {
    /// Takes names as [`Model::arrived`] does, up to `count`, and sorts them, but makes no rows of them yet.
    pub fn sort_arrivals<S: ModelSource + ?Sized>(&mut self, source: &S, count: u32) {
        let first = self.known();
        self.choose_names(source, count);
        if self.arrivals.runs.is_empty() {
            self.arrivals.order = Some(self.order);
        } else if self.arrivals.order != Some(self.order) {
            self.arrivals.forget_order();
        }
        let mut sorted = Vec::with_capacity(count.saturating_sub(first) as usize);
        for id in first..count {
            self.keys.push(0);
            if self.order.needs_attributes() {
                self.name_keys.push(0);
            }
            if !self.gone.has(id) {
                sorted.push(Arrival { key: self.key(source, id), rest: self.rest(source, id), id });
            }
        }
        sorted.sort_unstable_by(|a, b| self.compare_arrivals(source, a, b));
        let mut run = Run { sorted, taken: 0 };
        while let Some(before) = self.arrivals.runs.pop() {
            let together = before.left() + run.left();
            if before.left() > 2 * run.left() || together > LONGEST_RUN {
                self.arrivals.runs.push(before);
                break;
            }
            run = self.merge_runs(source, &before, &run);
        }
        self.arrivals.runs.push(run);
    }

    /// Returns how many names wait to become rows.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.arrivals.runs.iter().map(Run::left).sum()
    }

    /// Makes rows of the first of those that wait, at most so many.
    pub fn show_arrivals<S: ModelSource + ?Sized>(&mut self, source: &S, most: usize) -> Changes {
        let is_sorted = self.arrivals.order == Some(self.order);
        let (mut sorted, mut others) = (Vec::with_capacity(most.min(self.waiting())), Vec::new());
        for _ in 0..most {
            let Some(arrival) = self.take_arrival(source) else { break };
            let id = arrival.id;
            // What happened meanwhile may have shown it, or have taken it away.
            if self.gone.has(id) || self.visible.has(id) || !self.filter.admits(source.name(id)) {
                continue;
            }
            let key = self.key(source, id);
            self.keys[id as usize] = key;
            self.set_name_key(source, id);
            self.visible.insert(id);
            if is_sorted && key == arrival.key { &mut sorted } else { &mut others }.push(id);
        }
        let mut rows = std::mem::take(&mut self.rows);
        let mut changes = rows.merge(&sorted, |a, b| self.compare(source, a, b));
        self.rows = rows;
        changes.append(self.show(source, others));
        changes
    }

    /// Takes the first of those that wait.
    fn take_arrival<S: ModelSource + ?Sized>(&mut self, source: &S) -> Option<Arrival> {
        let runs = &self.arrivals.runs;
        let first = (0..runs.len()).filter_map(|index| Some((index, runs[index].next()?)));
        let (index, arrival) = first.min_by(|a, b| self.compare_arrivals(source, a.1, b.1))?;
        let arrival = *arrival;
        let run = &mut self.arrivals.runs[index];
        run.taken += 1;
        if run.left() == 0 {
            self.arrivals.runs.swap_remove(index);
        }
        Some(arrival)
    }

    fn merge_runs<S: ModelSource + ?Sized>(&self, source: &S, a: &Run, b: &Run) -> Run {
        let mut sorted = Vec::with_capacity(a.left() + b.left());
        let (mut a, mut b) = (&a.sorted[a.taken..], &b.sorted[b.taken..]);
        while let ([first, rest @ ..], [other, others @ ..]) = (a, b) {
            if self.compare_arrivals(source, first, other).is_le() {
                sorted.push(*first);
                a = rest;
            } else {
                sorted.push(*other);
                b = others;
            }
        }
        sorted.extend_from_slice(a);
        sorted.extend_from_slice(b);
        Run { sorted, taken: 0 }
    }

    fn compare_arrivals<S: ModelSource + ?Sized>(
        &self,
        source: &S,
        a: &Arrival,
        b: &Arrival,
    ) -> Ordering {
        (a.key, a.rest).cmp(&(b.key, b.rest)).then_with(|| self.compare(source, a.id, b.id))
    }

    /// What follows in the name behind the key's part of it.
    fn rest<S: ModelSource + ?Sized>(&self, source: &S, id: EntryId) -> u64 {
        let name = source.name(id);
        // Names decide among entries that are equal, unless there is more to an extension than its key holds.
        let names_decide = match self.order.by {
            By::Name => true,
            By::Arrival => false,
            By::Type | By::Extension => names::is_short_extension(&self.collation, name),
            _ => true,
        };
        if !names_decide {
            return 0;
        }
        let rest = match self.order.by {
            By::Name => self.names.rest(&self.collation, name),
            _ => self.names.key(&self.collation, name),
        };
        match self.order.direction {
            SortDirection::Ascending => rest,
            SortDirection::Descending => !rest,
        }
    }
}
