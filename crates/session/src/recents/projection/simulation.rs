//! Random sessions in which other programs hold lists that are as old as they like, and we are killed now and then: nothing
//! is lost, and what a person deletes in a program that had read the list stays deleted.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::session::{Session, Until, uri};
use crate::recents::Timestamp;

/// Programs of GTK's, and LibreOffice, which uses the same code.
const PROGRAMS: usize = 3;
/// How many documents the programs share.
const DOCUMENTS: u8 = 12;

/// One step of a session.
#[derive(Clone, Debug)]
enum Step {
    /// A program of ours adds a document.
    Add(u8),
    /// We look at the file, and write; perhaps we are killed on the way.
    Look(Until),
    /// A program adds to its list in memory.
    TheyAdd(usize, u8),
    /// A person removes a document from a program's list in memory.
    TheyRemove(usize, u8),
    /// A person clears a program's list in memory.
    TheyClear(usize),
    /// A program writes its list if it has changed it; else it reads the file.
    TheySettle(usize),
    /// A program reads the file at once, as one that starts does.
    TheyStart(usize),
    /// A program of KDE's takes the lock and reads.
    KdeReads,
    /// It writes with its own document behind, and gives the lock back.
    KdeWrites(u8),
    /// Time passes: milliseconds.
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..DOCUMENTS).prop_map(Step::Add),
        5 => prop_oneof![
            6 => Just(Until::Done),
            1 => Just(Until::TakenIn),
            1 => Just(Until::Known),
            1 => Just(Until::Receipts),
            1 => Just(Until::Published),
        ].prop_map(Step::Look),
        3 => (0..PROGRAMS, 0..2 * DOCUMENTS).prop_map(|(program, name)| Step::TheyAdd(program, name)),
        1 => (0..PROGRAMS, 0..2 * DOCUMENTS).prop_map(|(program, name)| Step::TheyRemove(program, name)),
        1 => (0..PROGRAMS).prop_map(Step::TheyClear),
        4 => (0..PROGRAMS).prop_map(Step::TheySettle),
        1 => (0..PROGRAMS).prop_map(Step::TheyStart),
        1 => Just(Step::KdeReads),
        2 => (0..2 * DOCUMENTS).prop_map(Step::KdeWrites),
        4 => (1..60_000_i64).prop_map(Step::Wait),
    ]
}

/// What is wrong with the merge, for the simulation to notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A list proves that its writer had read the last version, whatever receipt is in it.
    ReceiptsProveTooMuch,
    /// No receipt is known.
    NoReceipts,
}

/// A program of GTK's, but for its list, which the session has.
#[derive(Clone, Debug, Default)]
struct Foreign {
    is_dirty: bool,
    /// What was removed from the list since it was read, with when it was used last as the list said.
    removed: BTreeMap<String, Timestamp>,
}

/// A session with what must come of it.
struct Simulation {
    session: Session,
    programs: Vec<Foreign>,
    /// What a program of KDE's read that holds the lock.
    kde: Option<Option<crate::recents::xbel::Document>>,
    /// Documents that nobody may lose: ours, and what we saw of others.
    kept: BTreeSet<String>,
    fault: Fault,
}

impl Simulation {
    fn new(fault: Fault) -> Simulation {
        let mut session = Session::new();
        session.gtk = vec![BTreeMap::new(); PROGRAMS];
        let programs = vec![Foreign::default(); PROGRAMS];
        Simulation { session, programs, kde: None, kept: BTreeSet::new(), fault }
    }

    fn take(&mut self, step: &Step) {
        let session = &mut self.session;
        match step {
            Step::Add(name) => {
                let name = name.to_string();
                session.add(&name);
                self.kept.insert(name);
            }
            Step::Look(until) => self.look(*until),
            Step::TheyAdd(program, name) => {
                session.gtk_adds(*program, &name.to_string());
                self.programs[*program].is_dirty = true;
            }
            Step::TheyRemove(program, name) => {
                self.remove(*program, &name.to_string());
            }
            Step::TheyClear(program) => {
                let held: Vec<_> = session.gtk[*program].values().map(|e| e.uri.clone()).collect();
                held.iter().for_each(|uri| self.remove(*program, &uri.as_str()[8..]));
            }
            Step::TheySettle(program) if self.programs[*program].is_dirty => {
                let read = session.read_by_somebody();
                session.gtk_writes(*program);
                if session.in_file().is_empty() {
                    // Somebody empties a list that somebody has read. That it is not the same one cannot be seen.
                    self.kept.retain(|name| !read.contains(name));
                }
                let foreign = std::mem::take(&mut self.programs[*program]);
                for (name, used) in foreign.removed {
                    // Whoever removed it had seen its last use.
                    let is_meant =
                        session.list.get(&uri(&name)).is_none_or(|e| e.last_used() <= used);
                    if is_meant {
                        self.kept.remove(&name);
                    }
                }
            }
            Step::TheySettle(program) => session.gtk_reads(*program),
            Step::TheyStart(program) => {
                self.programs[*program] = Foreign::default();
                session.gtk_reads(*program);
            }
            Step::KdeReads if self.kde.is_none() => self.kde = Some(session.file.clone()),
            Step::KdeReads => {}
            Step::KdeWrites(name) => {
                if let Some(read) = self.kde.take() {
                    session.file = read;
                    session.kde_adds(&name.to_string());
                }
            }
            Step::Wait(millis) => session.wait(millis * 1000),
        }
    }

    fn remove(&mut self, program: usize, name: &str) {
        let memory = &self.session.gtk[program];
        if let Some(held) = memory.values().find(|known| known.uri == uri(name)) {
            let foreign = &mut self.programs[program];
            foreign.removed.insert(name.to_owned(), held.last_used());
            foreign.is_dirty = true;
            self.session.gtk_removes(program, name);
        }
    }

    fn look(&mut self, until: Until) {
        match self.fault {
            Fault::None => {}
            Fault::ReceiptsProveTooMuch => self.session.lie(),
            Fault::NoReceipts => self.session.lose_receipts(),
        }
        // Without the lock nothing is published.
        self.session.look(if self.kde.is_none() { until } else { until.min(Until::Receipts) });
        if until == Until::Done {
            self.kept.extend(self.session.in_list());
        }
    }

    /// Returns what is lost in the end.
    fn lost(&mut self) -> BTreeSet<String> {
        self.kde = None;
        self.look(Until::Done);
        let (file, list) = (self.session.in_file(), self.session.in_list());
        self.kept
            .iter()
            .filter(|name| !file.contains(*name) || !list.contains(*name))
            .cloned()
            .collect()
    }
}

fn play(steps: &[Step], fault: Fault) -> BTreeSet<String> {
    let mut simulation = Simulation::new(fault);
    steps.iter().for_each(|step| simulation.take(step));
    simulation.lost()
}

/// Plays a session, then deletes a document in a program that reads first, perhaps with an addition in the same write;
/// others write what they had read before. Returns whether it comes back.
fn delete_after(steps: &[Step], choice: usize, and_add: AndAdd, fault: Fault) -> bool {
    let mut simulation = Simulation::new(fault);
    steps.iter().for_each(|step| simulation.take(step));
    simulation.kde = None;
    simulation.look(Until::Done);
    (0..PROGRAMS).for_each(|program| simulation.take(&Step::TheyStart(program)));
    let session = &simulation.session;
    let names: Vec<String> = match and_add {
        AndAdd::No => session.in_file().into_iter().collect(),
        // What came with another program's write and is in no version of ours yet cannot be told from what a program
        // had not read that adds something.
        AndAdd::Yes => session.published_by_us().into_iter().collect(),
    };
    // Where nothing is left of what was read, nothing shows that it was.
    let name = names.get(choice % names.len().max(1));
    let Some(name) = name.filter(|_| and_add == AndAdd::No || names.len() > 1) else {
        return false;
    };
    simulation.remove(0, name);
    if and_add == AndAdd::Yes {
        simulation.take(&Step::TheyAdd(0, 200));
    }
    simulation.take(&Step::TheySettle(0));
    simulation.look(Until::Done);
    let mut is_back = simulation.session.in_list().contains(name);
    for program in 1..PROGRAMS {
        simulation.take(&Step::Wait(20_000));
        simulation.take(&Step::TheyAdd(program, 201));
        simulation.take(&Step::TheySettle(program));
        simulation.look(Until::Done);
        is_back |= simulation.session.in_list().contains(name);
        is_back |= simulation.session.in_file().contains(name);
    }
    is_back
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AndAdd {
    Yes,
    No,
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn however_old_the_lists_of_others_are_nothing_is_lost(
        steps in proptest::collection::vec(step(), 1..80)
    ) {
        prop_assert_eq!(play(&steps, Fault::None), BTreeSet::new());
    }

    #[test]
    fn what_is_deleted_where_it_had_been_read_stays_deleted(
        steps in proptest::collection::vec(step(), 1..60),
        choice in 0..1000_usize,
        and_add in prop_oneof![Just(AndAdd::Yes), Just(AndAdd::No)],
    ) {
        prop_assert!(!delete_after(&steps, choice, and_add, Fault::None));
    }
}

#[test]
fn receipts_that_prove_too_much_are_noticed() {
    let mut steps = vec![
        Step::Add(0),
        Step::Look(Until::Done),
        Step::TheyStart(0),
        Step::Add(1),
        Step::Look(Until::Done),
    ];
    steps.extend([
        Step::TheyAdd(0, 20),
        Step::Wait(60_000),
        Step::TheySettle(0),
        Step::Look(Until::Done),
    ]);
    assert_eq!(play(&steps, Fault::None), BTreeSet::new());
    assert_eq!(play(&steps, Fault::ReceiptsProveTooMuch), BTreeSet::from(["1".to_owned()]));
}

#[test]
fn receipts_that_are_missing_are_noticed() {
    let steps: Vec<_> = (0..3).map(Step::Add).chain([Step::Look(Until::Done)]).collect();
    assert!(!delete_after(&steps, 0, AndAdd::Yes, Fault::None));
    assert!(delete_after(&steps, 0, AndAdd::Yes, Fault::NoReceipts));
}
