//! Random sessions in which other programs hold lists of any age, and unjank is killed at any point: nothing
//! is lost, and what a person deletes in a program that had read the list stays deleted.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::session::{LookExtent, Session, uri};
use crate::RecentTime;

/// GTK programs, and LibreOffice, which uses the same code.
const PROGRAMS: usize = 3;
/// How many documents the programs share.
const DOCUMENTS: u8 = 12;

/// One step of a session.
#[derive(Clone, Debug)]
enum Step {
    /// A program adds a document through unjank.
    Add(u8),
    /// The list is projected; perhaps the process is killed on the way.
    Look(LookExtent),
    /// A program adds to its list in memory.
    TheyAdd(usize, u8),
    /// A person removes a document from a program's list in memory.
    TheyRemove(usize, u8),
    /// A person clears a program's list in memory.
    TheyClear(usize),
    /// A program writes its list if it has changed it; otherwise it reads the file.
    TheySettle(usize),
    /// A program reads the file at once, as a starting program does.
    TheyStart(usize),
    /// A KDE program acquires the lock and reads.
    KdeReads,
    /// The KDE program writes with its own document last, and releases the lock.
    KdeWrites(u8),
    /// Time passes, in milliseconds.
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..DOCUMENTS).prop_map(Step::Add),
        5 => prop_oneof![
            6 => Just(LookExtent::Done),
            1 => Just(LookExtent::TakenIn),
            1 => Just(LookExtent::Known),
            1 => Just(LookExtent::Receipts),
            1 => Just(LookExtent::Published),
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

/// A planted fault of the merge, which the simulation must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A list counts as proof that its writer had read the last version, whatever receipt is in it.
    ReceiptsProveTooMuch,
    /// No receipt is known.
    NoReceipts,
}

/// A GTK program; its list is in the session.
#[derive(Clone, Debug, Default)]
struct Foreign {
    is_dirty: bool,
    /// Documents that were removed from the list since it was read, with their last use as the list said.
    removed: BTreeMap<String, RecentTime>,
}

/// A session with the expected result.
struct Simulation {
    session: Session,
    programs: Vec<Foreign>,
    /// The list of the KDE program that holds the lock.
    kde: Option<Option<crate::xbel::XbelDocument>>,
    /// Documents that must not be lost: those of unjank, and those of other programs that a projection saw.
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
                    // A program empties a list that a program has read. The merge cannot know whether it is the same program.
                    self.kept.retain(|name| !read.contains(name));
                }
                let foreign = std::mem::take(&mut self.programs[*program]);
                for (name, used) in foreign.removed {
                    // The user who removed it had seen its last use.
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

    fn look(&mut self, until: LookExtent) {
        match self.fault {
            Fault::None => {}
            Fault::ReceiptsProveTooMuch => self.session.lie(),
            Fault::NoReceipts => self.session.lose_receipts(),
        }
        // Without the lock nothing is published.
        self.session.look(if self.kde.is_none() { until } else { until.min(LookExtent::Receipts) });
        if until == LookExtent::Done {
            self.kept.extend(self.session.in_list());
        }
    }

    /// Returns the documents that are lost at the end.
    fn lost(&mut self) -> BTreeSet<String> {
        self.kde = None;
        self.look(LookExtent::Done);
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
/// other programs write what they had read before. Returns whether the document comes back.
fn delete_after(steps: &[Step], choice: usize, and_add: AndAdd, fault: Fault) -> bool {
    let mut simulation = Simulation::new(fault);
    steps.iter().for_each(|step| simulation.take(step));
    simulation.kde = None;
    simulation.look(LookExtent::Done);
    (0..PROGRAMS).for_each(|program| simulation.take(&Step::TheyStart(program)));
    let session = &simulation.session;
    let names: Vec<String> = match and_add {
        AndAdd::No => session.in_file().into_iter().collect(),
        // A document that came with another program's write, and is in no version of unjank yet, cannot be distinguished from
        // a document that a writing program had not read.
        AndAdd::Yes => session.published_by_us().into_iter().collect(),
    };
    // If no entry is left of the version that was read, no receipt shows that it was read.
    let name = names.get(choice % names.len().max(1));
    let Some(name) = name.filter(|_| and_add == AndAdd::No || names.len() > 1) else {
        return false;
    };
    simulation.remove(0, name);
    if and_add == AndAdd::Yes {
        simulation.take(&Step::TheyAdd(0, 200));
    }
    simulation.take(&Step::TheySettle(0));
    simulation.look(LookExtent::Done);
    let mut is_back = simulation.session.in_list().contains(name);
    for program in 1..PROGRAMS {
        simulation.take(&Step::Wait(20_000));
        simulation.take(&Step::TheyAdd(program, 201));
        simulation.take(&Step::TheySettle(program));
        simulation.look(LookExtent::Done);
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
        Step::Look(LookExtent::Done),
        Step::TheyStart(0),
        Step::Add(1),
        Step::Look(LookExtent::Done),
    ];
    steps.extend([
        Step::TheyAdd(0, 20),
        Step::Wait(60_000),
        Step::TheySettle(0),
        Step::Look(LookExtent::Done),
    ]);
    assert_eq!(play(&steps, Fault::None), BTreeSet::new());
    assert_eq!(play(&steps, Fault::ReceiptsProveTooMuch), BTreeSet::from(["1".to_owned()]));
}

#[test]
fn receipts_that_are_missing_are_noticed() {
    let steps: Vec<_> = (0..3).map(Step::Add).chain([Step::Look(LookExtent::Done)]).collect();
    assert!(!delete_after(&steps, 0, AndAdd::Yes, Fault::None));
    assert!(delete_after(&steps, 0, AndAdd::Yes, Fault::NoReceipts));
}
