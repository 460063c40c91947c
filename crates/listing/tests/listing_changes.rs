//! A directory changes at random while it is listed: names that stay come exactly once, and no name comes twice.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test that renames files")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use unjank_listing::{AttributeSet, Listing, ListingRequest};

/// One change of the directory, on names of a small set so that they meet.
#[derive(Clone, Debug)]
enum Op {
    Create(u16),
    Directory(u16),
    Remove(u16),
    Rename(u16, u16),
}

fn op() -> impl Strategy<Value = Op> {
    let name = 0u16..400;
    prop_oneof![
        name.clone().prop_map(Op::Create),
        name.clone().prop_map(Op::Directory),
        name.clone().prop_map(Op::Remove),
        (name.clone(), name).prop_map(|(from, to)| Op::Rename(from, to)),
    ]
}

fn apply(dir: &Path, op: &Op) {
    let path = |number: &u16| dir.join(format!("changes {number}"));
    // A change that is not possible is none.
    let _ = match op {
        Op::Create(number) => {
            std::fs::OpenOptions::new().append(true).create(true).open(path(number)).map(drop)
        }
        Op::Directory(number) => std::fs::create_dir(path(number)),
        Op::Remove(number) => {
            std::fs::remove_file(path(number)).or_else(|_| std::fs::remove_dir(path(number)))
        }
        Op::Rename(from, to) => std::fs::rename(path(from), path(to)),
    };
}

/// Lists again and again while `ops` go on without a pause, and says what is wrong with what came.
fn faults(dir: &Path, stays: usize, fields: AttributeSet, ops: &[Op]) -> Vec<String> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                ops.iter().for_each(|op| apply(dir, op));
            }
        });
        let mut faults = Vec::new();
        for _ in 0..3 {
            let mut listing =
                Listing::in_process(&ListingRequest::of(dir).with_fields(fields)).unwrap();
            let failures = listing.finish().unwrap();
            faults.extend(failures.iter().map(|failure| format!("{failure:?}")));
            let mut counts: BTreeMap<&[u8], usize> = BTreeMap::new();
            for id in 0..listing.len() {
                if !listing.entries().is_removed(id) {
                    *counts.entry(listing.name(id)).or_default() += 1;
                }
            }
            for number in 0..stays {
                let name = format!("stays {number}");
                let count = counts.remove(name.as_bytes()).unwrap_or(0);
                if count != 1 {
                    faults.push(format!("{name} came {count} times"));
                }
            }
            for (name, count) in counts {
                let name = String::from_utf8_lossy(name);
                if count != 1 || !name.starts_with("changes ") {
                    faults.push(format!("{name} came {count} times"));
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        faults
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]
    #[test]
    fn names_that_stay_come_exactly_once(
        ops in prop::collection::vec(op(), 100..400),
        stays in 0usize..1000,
        place in prop::sample::select(vec!["/dev/shm", ""]),
        fields in prop::sample::select(vec![AttributeSet::NONE, AttributeSet::SIZE, AttributeSet::DEFAULT]),
    ) {
        let dir = match place {
            "" => tempfile::tempdir(),
            place => tempfile::tempdir_in(place).or_else(|_| tempfile::tempdir()),
        }
        .unwrap();
        for number in 0..stays {
            let path = dir.path().join(format!("stays {number}"));
            std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        }
        ops.iter().for_each(|op| apply(dir.path(), op));
        prop_assert_eq!(faults(dir.path(), stays, fields, &ops), Vec::<String>::new());
    }
}
