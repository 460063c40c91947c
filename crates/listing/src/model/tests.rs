//! The model beside a list that is sorted anew after every step, and a view that applies the changes.

#![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::collation::Digits;

/// What a listing holds, as plainly as possible.
#[derive(Clone, Debug, Default)]
struct ListingModel {
    entries: Vec<(Vec<u8>, EntryKind, Option<Attributes>)>,
}

impl ModelSource for ListingModel {
    fn name(&self, id: EntryId) -> &[u8] {
        &self.entries[id as usize].0
    }

    fn kind(&self, id: EntryId) -> EntryKind {
        self.entries[id as usize].1
    }

    fn attributes(&self, id: EntryId) -> Option<Attributes> {
        self.entries[id as usize].2
    }
}

/// What happens to a listing or to a view.
#[derive(Clone, Debug)]
enum Op {
    Arrive(Vec<(Vec<u8>, EntryKind)>),
    /// Names that are sorted and are not rows yet.
    Wait(Vec<(Vec<u8>, EntryKind)>),
    /// So many of those become rows.
    Show(usize),
    /// Attributes of every so-many-th entry from one on.
    Attributes {
        first: u32,
        step: u32,
        size: u64,
        seconds: i64,
    },
    Remove {
        first: u32,
        step: u32,
    },
    Rename {
        id: u32,
        name: Vec<u8>,
    },
    Order(RowOrder),
    Filter(ViewFilter),
    /// Another order beside the model, and what happens meanwhile.
    Rebuild(RowOrder, ViewFilter, Vec<Op>),
}

/// The rows as they should be, by sorting everything.
struct Naive {
    order: RowOrder,
    filter: ViewFilter,
    gone: BTreeSet<EntryId>,
    waiting: BTreeSet<EntryId>,
    known: u32,
}

impl Naive {
    fn rows(&self, listed: &ListingModel, collation: &Collation) -> Vec<EntryId> {
        let mut ids: Vec<EntryId> = (0..self.known)
            .filter(|id| !self.gone.contains(id) && !self.waiting.contains(id))
            .filter(|id| self.filter.admits(listed.name(*id)))
            .collect();
        ids.sort_by(|a, b| {
            let (a, b) = (*a, *b);
            let group = |id| {
                self.order.directories == DirectoryPlacement::First
                    && listed.kind(id) != EntryKind::Directory
            };
            group(a).cmp(&group(b)).then_with(|| self.by_value(listed, collation, a, b))
        });
        ids
    }

    fn by_value(&self, listed: &ListingModel, collation: &Collation, a: u32, b: u32) -> Ordering {
        let known = |id| match self.order.by {
            By::Size => listed.attributes(id).map(|known| (i128::from(known.size), 0)),
            By::Modified => listed
                .attributes(id)
                .map(|known| (i128::from(known.modified.seconds), known.modified.nanoseconds)),
            _ => Some((0, 0)),
        };
        let (known_a, known_b) = (known(a), known(b));
        let unknown = known_a.is_none().cmp(&known_b.is_none());
        let extension = |id| {
            let mut code = [0; 64];
            let small = names::extension(listed.name(id)).to_ascii_lowercase();
            collation.code(&small, &mut code);
            code
        };
        let rank = |id| match listed.kind(id) {
            EntryKind::Directory => 0,
            EntryKind::File => 1,
            EntryKind::Link => 2,
            _ => 7,
        };
        let value = match self.order.by {
            By::Arrival => a.cmp(&b),
            By::Extension => extension(a).cmp(&extension(b)),
            By::Type => rank(a).cmp(&rank(b)).then_with(|| extension(a).cmp(&extension(b))),
            _ => known_a.cmp(&known_b),
        };
        let value = value.then_with(|| collation.compare(listed.name(a), listed.name(b)));
        unknown.then(match self.order.direction {
            SortDirection::Ascending => value,
            SortDirection::Descending => value.reverse(),
        })
    }
}

/// A view that does what it is told.
fn apply(view: &mut Vec<EntryId>, model: &Model, changes: &Changes) {
    let now: Vec<EntryId> = model.entries_from(0).collect();
    let Changes::Steps(steps) = changes else {
        *view = now;
        return;
    };
    // New rows are asked for when all steps are made; until then nobody knows what is in them.
    const NEW: EntryId = EntryId::MAX;
    for step in steps {
        match *step {
            RowChange::Inserted { row, count } => {
                view.splice(row..row, std::iter::repeat_n(NEW, count));
            }
            RowChange::Removed { row, count } => {
                view.drain(row..row + count);
            }
            RowChange::Moved { from, to } => {
                let id = view.remove(from);
                view.insert(to, id);
            }
            RowChange::Updated { row, count } => assert!(row + count <= view.len()),
        }
    }
    assert_eq!(view.len(), now.len());
    for (row, id) in view.iter_mut().enumerate() {
        if *id == NEW {
            *id = now[row];
        }
    }
}

fn happen(op: &Op, listed: &mut ListingModel, naive: &mut Naive, model: &mut Model) -> Changes {
    let known = u32::try_from(listed.entries.len()).unwrap();
    let every = |first: u32, step: u32| (first.min(known)..known).step_by(step as usize);
    match op {
        Op::Arrive(names) => {
            listed.entries.extend(names.iter().map(|(name, kind)| (name.clone(), *kind, None)));
            naive.known = u32::try_from(listed.entries.len()).unwrap();
            model.arrived(listed, naive.known)
        }
        Op::Wait(names) => {
            listed.entries.extend(names.iter().map(|(name, kind)| (name.clone(), *kind, None)));
            naive.known = u32::try_from(listed.entries.len()).unwrap();
            naive.waiting.extend(known..naive.known);
            model.sort_arrivals(listed, naive.known);
            Changes::none()
        }
        Op::Show(most) => model.show_arrivals(listed, *most),
        Op::Attributes { first, step, size, seconds } => {
            for id in every(*first, *step) {
                let modified =
                    FileTime { seconds: *seconds - i64::from(id % 3), nanoseconds: id % 2 };
                let fields = AttributeSet::SIZE.union(AttributeSet::MODIFIED);
                let size = size + u64::from(id % 4);
                let known = Attributes { fields, size, modified, ..Attributes::default() };
                let entry = &mut listed.entries[id as usize];
                entry.2 = Some(known);
                if entry.1 == EntryKind::Unknown {
                    entry.1 = EntryKind::Directory;
                }
            }
            model.attributes_changed(listed, every(*first, *step))
        }
        Op::Remove { first, step } => {
            naive.gone.extend(every(*first, *step));
            model.removed(listed, every(*first, *step))
        }
        Op::Rename { id, name } => match listed.entries.get_mut(*id as usize) {
            Some(entry) => {
                entry.0.clone_from(name);
                model.renamed(listed, [*id])
            }
            None => Changes::none(),
        },
        Op::Order(order) => {
            naive.order = *order;
            model.set_order(listed, *order)
        }
        Op::Filter(filter) => {
            naive.filter = filter.clone();
            model.set_filter(listed, filter.clone())
        }
        Op::Rebuild(order, filter, meanwhile) => {
            let mut rebuild = model.plan(*order, filter.clone());
            let then = listed.clone();
            std::thread::scope(|scope| {
                scope.spawn(|| rebuild.run(&then));
                for op in meanwhile {
                    happen(op, listed, naive, model);
                }
            });
            naive.order = *order;
            naive.filter = filter.clone();
            model.adopt(listed, rebuild)
        }
    }
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0..40_u32, proptest::sample::select(vec![".txt", ".TXT", ".properties", ".propertiesx", ""]))
            .prop_map(|(number, end)| format!("a common start of names {number}{end}").into_bytes()),
        2 => "[a-cA-C.é0-2]{1,4}".prop_map(String::into_bytes),
        1 => proptest::collection::vec(1..=255_u8, 1..6),
    ]
}

fn kind() -> impl Strategy<Value = EntryKind> {
    proptest::sample::select(vec![
        EntryKind::File,
        EntryKind::File,
        EntryKind::Directory,
        EntryKind::Link,
        EntryKind::Unknown,
    ])
}

fn order() -> impl Strategy<Value = RowOrder> {
    let by = vec![By::Name, By::Name, By::Size, By::Modified, By::Type, By::Extension, By::Arrival];
    let directions = vec![SortDirection::Ascending, SortDirection::Descending];
    let directories = vec![DirectoryPlacement::First, DirectoryPlacement::Mixed];
    (
        proptest::sample::select(by),
        proptest::sample::select(directions),
        proptest::sample::select(directories),
    )
        .prop_map(|(by, direction, directories)| RowOrder { by, direction, directories })
}

fn filter() -> impl Strategy<Value = ViewFilter> {
    proptest::sample::select(vec![
        ViewFilter::default(),
        ViewFilter { hidden: Hidden::Shown, pattern: None },
        ViewFilter {
            hidden: Hidden::Shown,
            pattern: Some(NamePattern::substring(b"A", Case::Ignored)),
        },
        ViewFilter { hidden: Hidden::Left, pattern: Some(NamePattern::glob(b"*1*", Case::Heeded)) },
    ])
}

fn op() -> impl Strategy<Value = Op> {
    let one = prop_oneof![
        5 => proptest::collection::vec((name(), kind()), 0..120).prop_map(Op::Arrive),
        3 => proptest::collection::vec((name(), kind()), 0..120).prop_map(Op::Wait),
        2 => (0..200_usize).prop_map(Op::Show),
        4 => (0..300_u32, 1..60_u32, 0..3_u64, 0..3_i64)
            .prop_map(|(first, step, size, seconds)| Op::Attributes { first, step, size, seconds }),
        2 => (0..300_u32, 1..80_u32).prop_map(|(first, step)| Op::Remove { first, step }),
        2 => (0..300_u32, name()).prop_map(|(id, name)| Op::Rename { id, name }),
        2 => order().prop_map(Op::Order),
        2 => filter().prop_map(Op::Filter),
    ];
    let one = one.boxed();
    let rebuild = (order(), filter(), proptest::collection::vec(one.clone(), 0..3)).prop_map(
        |(order, filter, meanwhile)| Op::Rebuild(order, filter, without_orders(meanwhile)),
    );
    prop_oneof![9 => one, 1 => rebuild]
}

/// While another order is made, nobody asks for a third.
fn without_orders(ops: Vec<Op>) -> Vec<Op> {
    ops.into_iter().filter(|op| !matches!(op, Op::Order(_) | Op::Filter(_))).collect()
}

fn cases() -> ProptestConfig {
    // A case takes long where nothing is optimised; `PROPTEST_CASES` asks for more.
    ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() }
}

/// Runs the steps and says where model and list, or model and view, differ.
fn difference(ops: &[Op], locale: &str, tamper: impl Fn(Changes) -> Changes) -> Option<String> {
    let collation = Arc::new(Collation::new(locale, Digits::ByValue));
    let mut listed = ListingModel::default();
    let mut naive = Naive {
        order: RowOrder::default(),
        filter: ViewFilter::default(),
        gone: BTreeSet::new(),
        waiting: BTreeSet::new(),
        known: 0,
    };
    let mut model = Model::new(Arc::clone(&collation), naive.order, naive.filter.clone());
    let mut view = Vec::new();
    let all = Op::Show(usize::MAX);
    for (at, op) in ops.iter().chain([&all]).enumerate() {
        let changes = tamper(happen(op, &mut listed, &mut naive, &mut model));
        // Other steps may have shown them, too.
        naive.waiting.retain(|id| model.waiting() > 0 && model.row(&listed, *id).is_none());
        let expected = naive.rows(&listed, &collation);
        let rows: Vec<EntryId> = model.entries_from(0).collect();
        let names = |ids: &[EntryId]| -> Vec<_> {
            ids.iter().map(|id| String::from_utf8_lossy(listed.name(*id)).into_owned()).collect()
        };
        // A name may be there twice here; which of the two is first is not said.
        if names(&rows) != names(&expected) || model.len() != rows.len() {
            return Some(format!("step {at}: {:?} is not {:?}", names(&rows), names(&expected)));
        }
        apply(&mut view, &model, &changes);
        if view != rows {
            return Some(format!("step {at}: the view of {changes:?} differs"));
        }
        for (row, id) in rows.iter().enumerate() {
            if model.entry(row) != Some(*id) || model.row(&listed, *id) != Some(row) {
                return Some(format!("step {at}: entry {id} is not in row {row}"));
            }
        }
    }
    None
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn rows_are_those_of_a_sorted_list(
        ops in proptest::collection::vec(op(), 1..12),
        locale in proptest::sample::select(vec!["C", "en", "de", "sv", "cs"]),
    ) {
        prop_assert_eq!(difference(&ops, locale, |changes| changes), None);
    }
}

#[test]
fn a_wrong_row_in_the_changes_is_noticed() {
    let names = |from: u32| {
        Op::Arrive(
            (from..from + 5).map(|n| (format!("{n}").into_bytes(), EntryKind::File)).collect(),
        )
    };
    let ops = [names(10), names(0), Op::Remove { first: 2, step: 100 }];
    assert_eq!(difference(&ops, "en", |changes| changes), None);
    let planted = |changes| match changes {
        Changes::Steps(mut steps) => {
            if let Some(RowChange::Removed { row, .. }) = steps.first_mut() {
                *row += 1;
            }
            Changes::Steps(steps)
        }
        Changes::Reset => changes,
    };
    assert!(difference(&ops, "en", planted).is_some());
}

#[test]
fn entries_whose_attributes_change_twice_during_a_rebuild_are_shown_once() {
    let few = u32::try_from(FEW).unwrap();
    for count in [few, few + 1, 4 * few] {
        let arrive = (0..count).map(|n| (format!("{n}").into_bytes(), EntryKind::File)).collect();
        let attributes = |size| Op::Attributes { first: 0, step: 1, size, seconds: 0 };
        let order = RowOrder { by: By::Size, ..RowOrder::default() };
        let meanwhile = vec![attributes(1), attributes(2)];
        let ops = [Op::Arrive(arrive), Op::Rebuild(order, ViewFilter::default(), meanwhile)];
        assert_eq!(difference(&ops, "C", |changes| changes), None, "{count} entries");
    }
}

#[test]
fn entries_that_are_told_of_twice_at_once_are_shown_once() {
    let count = u32::try_from(FEW).unwrap() + 1;
    let mut listed = ListingModel::default();
    let order = RowOrder { by: By::Size, ..RowOrder::default() };
    let collation = Arc::new(Collation::new("C", Digits::ByValue));
    let mut model = Model::new(collation, order, ViewFilter::default());
    listed.entries.extend((0..count).map(|n| (format!("{n}").into_bytes(), EntryKind::File, None)));
    model.arrived(&listed, count);
    let known = Attributes { fields: AttributeSet::SIZE, size: 7, ..Attributes::default() };
    listed.entries.iter_mut().for_each(|entry| entry.2 = Some(known));
    model.attributes_changed(&listed, (0..count).chain(0..count));
    let mut rows: Vec<EntryId> = model.entries_from(0).collect();
    rows.sort_unstable();
    assert_eq!(rows, (0..count).collect::<Vec<_>>());
}

#[test]
fn half_a_million_names_take_few_bytes_each() {
    const COUNT: u32 = 500_000;
    let mut listed = ListingModel::default();
    let collation = Arc::new(Collation::new("en", Digits::ByValue));
    let mut model = Model::new(collation, RowOrder::default(), ViewFilter::default());
    let mut size = 64;
    while model.known() < COUNT {
        let known = model.known();
        let until = (known + size).min(COUNT);
        listed.entries.extend((known..until).map(|number| {
            (
                format!("file-{:06}", number.wrapping_mul(7919) % COUNT).into_bytes(),
                EntryKind::File,
                None,
            )
        }));
        model.arrived(&listed, until);
        size *= 2;
    }
    assert_eq!(model.len(), COUNT as usize);
    let sorted = model.entries_from(0).map(|id| listed.name(id)).is_sorted();
    assert!(sorted, "padded numbers are in the order of their bytes");
    let each = model.bytes() as f64 / f64::from(COUNT);
    assert!(each < 16.0, "{each} bytes an entry");
}
