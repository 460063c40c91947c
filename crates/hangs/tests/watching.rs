//! Hangs are told as they are stored, each once, whatever happens to the store meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use unjank_hangs::model::{Hang, HangRecord, WatchedPeriod};
use unjank_hangs::store::{EraseSelection, HangStore, erase};
use unjank_hangs::watch::{HangNews, HangWatcher};

use crate::fuzz_hangs::hang;
use crate::store_real::LATER_NS;

/// So small that files are full all the time, and large enough for those between two looks.
const LIMIT: u64 = 512 << 10;

fn record(number: u64, goes_on: bool) -> HangRecord {
    HangRecord::Hang(Box::new(Hang { goes_on, ..hang(number) }))
}

fn looked(watcher: &mut HangWatcher) -> Vec<(u64, bool, HangNews)> {
    let mut told = Vec::new();
    watcher.look(&mut |hang, news| told.push((hang.number, hang.goes_on, news))).unwrap();
    told
}

fn open(dir: &Path) -> HangStore {
    HangStore::open(store::disk::real(), dir, LIMIT).unwrap()
}

fn watcher_of(dir: &Path) -> HangWatcher {
    HangWatcher::begin(store::disk::real(), dir.to_owned()).unwrap()
}

#[test]
fn each_hang_is_told_once_whatever_happens_to_the_store() {
    for seed in 0..5 {
        let mut random = fastrand::Rng::with_seed(seed);
        let root = tempfile::tempdir().unwrap();
        let dir = root.path();
        let mut store = open(dir);
        let first = store.take_number();
        // What is stored before is not told, but for the end of what goes on.
        store.append(&[record(first, true)]).unwrap();
        let mut watcher = watcher_of(dir);
        let mut going_on = BTreeSet::from([first]);
        let mut told: BTreeMap<u64, Vec<HangNews>> = BTreeMap::from([(first, Vec::new())]);
        let (mut ended, mut expected) = (0, 0);
        for _ in 0..400 {
            match random.u32(0..12) {
                0..4 => {
                    let (number, goes_on) = (store.take_number(), random.bool());
                    expected += 1;
                    if goes_on {
                        going_on.insert(number);
                    }
                    store.append(&[record(number, goes_on)]).unwrap();
                }
                4..6 => {
                    let Some(number) = random.choice(going_on.iter().copied()) else { continue };
                    let goes_on = random.bool();
                    store.append(&[record(number, goes_on)]).unwrap();
                    if !goes_on {
                        going_on.remove(&number);
                        ended += 1;
                        // A write that failed may have stored it.
                        if random.bool() {
                            store.append(&[record(number, false)]).unwrap();
                        }
                    }
                }
                6 => {
                    let period = WatchedPeriod { to_ns: 7, ..WatchedPeriod::default() };
                    store.append(&[HangRecord::Watched(period)]).unwrap();
                }
                7 => {
                    // Another program's records, of which there are none: each file is written anew for the period in it alone.
                    let period = WatchedPeriod { to_ns: 7, ..WatchedPeriod::default() };
                    store.append(&[HangRecord::Watched(period)]).unwrap();
                    let selection =
                        EraseSelection { until_ns: Some(8), ..EraseSelection::default() };
                    erase(&*store::disk::real(), dir, &selection, LATER_NS).unwrap();
                }
                8 => store = open(dir),
                _ => {
                    for (number, _, news) in looked(&mut watcher) {
                        told.entry(number).or_default().push(news);
                    }
                }
            }
        }
        for (number, _, news) in looked(&mut watcher) {
            told.entry(number).or_default().push(news);
        }
        let count = |news| told.values().flatten().filter(|told| **told == news).count();
        let new = count(HangNews::New);
        assert_eq!(new, expected, "seed {seed}: {told:?}");
        assert!(count(HangNews::Ended) <= ended, "seed {seed}: {told:?}");
        for (number, news) in &told {
            let ends = news.iter().filter(|news| **news == HangNews::Ended).count();
            let news_are_new = news.iter().skip(1).all(|news| *news != HangNews::New);
            let is_first = *number == first || news.first() == Some(&HangNews::New);
            assert!(ends <= 1 && news_are_new && is_first, "seed {seed}, {number}: {news:?}");
        }
    }
}

#[test]
fn the_end_of_a_hang_that_went_on_before_is_told_although_other_files_came_in_between() {
    let root = tempfile::tempdir().unwrap();
    let mut store = open(root.path());
    let frozen = store.take_number();
    store.append(&[record(frozen, true)]).unwrap();
    for _ in 0..100 {
        let number = store.take_number();
        store.append(&[record(number, false)]).unwrap();
    }
    let mut watcher = watcher_of(root.path());
    assert_eq!(looked(&mut watcher), []);
    store.append(&[record(frozen, false)]).unwrap();
    let told: Vec<u64> = looked(&mut watcher).into_iter().map(|(number, ..)| number).collect();
    assert_eq!(told, [frozen]);
}

#[test]
fn a_store_that_is_made_anew_is_followed_from_its_first_hang() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("hangs");
    let mut watcher = watcher_of(&dir);
    for round in 0..3 {
        let mut store = open(&dir);
        for number in 1..=round + 2 {
            assert_eq!(store.take_number(), number);
            store.append(&[record(number, false)]).unwrap();
        }
        let all: Vec<u64> = (1..=round + 2).collect();
        let told: Vec<u64> = looked(&mut watcher).into_iter().map(|(number, ..)| number).collect();
        assert_eq!(told, all, "round {round}");
        drop(store);
        std::fs::remove_dir_all(&dir).unwrap();
        // Whether or not anybody looks while there is none.
        if round == 0 {
            assert_eq!(looked(&mut watcher), []);
        }
    }
}
