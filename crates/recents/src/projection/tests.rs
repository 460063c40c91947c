//! The fate of unjank's entries in sessions of the model.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::base::Base;
use super::session::{DAY, SECOND, Session, entry, uri};
use crate::xbel::{Condition, XbelDocument};
use crate::{Addition, JournalRecord, Privacy, RecentTime};

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.into_iter().map(String::from).collect()
}

/// Four documents of unjank have been in the file for an hour, and both programs have read them.
fn settled() -> Session {
    let mut session = Session::new();
    for name in ["a", "b", "c", "d"] {
        session.add(name);
        session.project();
    }
    session.wait(3600 * SECOND);
    session.gtk_reads(0);
    session.gtk_reads(1);
    session
}

#[test]
fn what_we_add_is_in_the_file_and_a_quiet_file_is_not_written_again() {
    let mut session = settled();
    assert_eq!(session.in_file(), names(["a", "b", "c", "d"]));
    let writes = session.writes;
    assert_eq!(session.project(), (0, 0));
    assert_eq!(session.writes, writes);
}

#[test]
fn what_others_add_is_taken_in_and_counted() {
    let mut session = settled();
    session.kde_adds("k");
    session.gtk_reads(0);
    session.gtk_adds(0, "a");
    session.gtk_adds(0, "g");
    session.gtk_writes(0);
    session.add("a");
    assert_eq!(session.project(), (0, 0));
    assert_eq!(session.in_list(), names(["a", "b", "c", "d", "g", "k"]));
    let a = session.list.get(&uri("a")).unwrap();
    let counts: Vec<_> = a.applications.iter().map(|one| (&*one.name, one.count)).collect();
    assert_eq!(counts, [("ours", 2), ("gtk", 1)]);
    let in_file = session.file.unwrap().bookmarks()[0].entry().unwrap().clone();
    assert_eq!(in_file, *a);
}

#[test]
fn counts_of_both_sides_add_up() {
    let mut session = settled();
    session.gtk_adds(0, "a");
    session.gtk_writes(0);
    session.project();
    // The same program counts once more, and a program of that name adds twice through unjank.
    session.gtk_reads(0);
    session.gtk_adds(0, "a");
    session.gtk_writes(0);
    for _ in 0..2 {
        session.wait(10);
        session.list.apply(JournalRecord::Add(Addition {
            uri: uri("a"),
            mime: None,
            groups: Vec::new(),
            privacy: Privacy::Public,
            application: "gtk".into(),
            exec: "x %u".into(),
            at: session.now,
        }));
    }
    session.project();
    let entry = session.list.get(&uri("a")).unwrap();
    assert_eq!(entry.applications.iter().find(|one| one.name == "gtk").unwrap().count, 4);
}

#[test]
fn what_a_stale_program_drops_comes_back() {
    let mut session = settled();
    session.gtk_adds(0, "g");
    session.add("new");
    session.project();
    session.wait(SECOND / 5);
    session.gtk_writes(0);
    assert_eq!(session.in_file(), names(["a", "b", "c", "d", "g"]));
    assert_eq!(session.project(), (1, 0));
    assert_eq!(session.in_file(), names(["a", "b", "c", "d", "g", "new"]));
}

#[test]
fn what_a_stale_program_drops_of_kde_s_comes_back() {
    let mut session = settled();
    session.gtk_adds(0, "g");
    session.kde_adds("k");
    session.project();
    session.wait(SECOND / 5);
    session.gtk_writes(0);
    assert_eq!(session.project(), (1, 0));
    assert_eq!(session.in_file(), names(["a", "b", "c", "d", "g", "k"]));
}

#[test]
fn a_program_that_never_stops_adding_never_reads() {
    let mut session = settled();
    session.add("new");
    session.project();
    for number in 0..60 {
        session.gtk_adds(0, &format!("g{number}"));
        session.wait(SECOND / 4);
        session.gtk_writes(0);
    }
    assert!(!session.in_file().contains("new"));
    // No projection ran for a quarter of a minute.
    assert_eq!(session.project(), (1, 0));
    assert!(session.in_file().contains("new"));
    assert_eq!(session.in_list().len(), 65);
}

#[test]
fn an_old_version_that_comes_back_is_no_news() {
    let mut session = settled();
    session.add("a");
    session.add("new");
    session.project();
    session.gtk_adds(0, "g");
    session.wait(3600 * SECOND);
    // The program has read nothing since: its `a` is an hour old.
    session.gtk_adds(0, "h");
    session.gtk_writes(0);
    assert_eq!(session.project(), (1, 0));
    assert_eq!(session.in_file(), names(["a", "b", "c", "d", "g", "h", "new"]));
    let a = session.list.get(&uri("a")).unwrap();
    assert_eq!(a.applications[0].count, 2);
}

#[test]
fn what_a_user_deletes_stays_deleted() {
    for name in ["a", "d"] {
        let mut session = settled();
        session.gtk_removes(0, name);
        session.gtk_writes(0);
        assert_eq!(session.project(), (0, 1));
        assert!(!session.in_file().contains(name));
        // The other program has not read the file since, and writes it again.
        session.gtk_adds(1, "g");
        session.gtk_writes(1);
        assert!(session.in_file().contains(name));
        assert_eq!(session.project(), (0, 0));
        assert!(!session.in_file().contains(name) && session.in_file().contains("g"));
        // When the document is opened again, it is in the list again.
        session.wait(SECOND);
        session.kde_adds(name);
        session.project();
        assert!(session.in_list().contains(name) && session.in_file().contains(name));
    }
}

#[test]
fn the_newest_entry_can_be_deleted_alone() {
    let mut session = settled();
    session.add("secret");
    session.project();
    session.wait(SECOND / 2);
    session.gtk_reads(0);
    session.wait(SECOND / 2);
    session.gtk_removes(0, "secret");
    session.gtk_writes(0);
    assert_eq!(session.project(), (0, 1));
    assert!(!session.in_list().contains("secret"));
}

#[test]
fn a_deletion_and_an_addition_in_one_write_are_both_meant() {
    let mut session = settled();
    session.add("secret");
    session.project();
    session.wait(SECOND);
    session.gtk_reads(0);
    session.gtk_removes(0, "secret");
    session.wait(30 * SECOND);
    session.gtk_adds(0, "g");
    session.gtk_writes(0);
    assert_eq!(session.project(), (0, 1));
    assert_eq!(session.in_file(), names(["a", "b", "c", "d", "g"]));
}

#[test]
fn a_list_that_is_cleared_stays_empty_but_for_what_came_since() {
    let mut session = settled();
    session.gtk[0].clear();
    session.gtk_writes(0);
    session.add("later");
    assert_eq!(session.project(), (0, 4));
    assert_eq!(session.in_file(), names(["later"]));
    // The same by `rm`.
    session.file = None;
    session.wait(SECOND);
    assert_eq!(session.project(), (0, 1));
    assert!(session.in_list().is_empty());
}

#[test]
fn old_entries_go_with_a_list_that_is_cleared() {
    let mut session = settled();
    session.wait(40 * DAY);
    session.add("young");
    session.project();
    session.wait(10 * SECOND);
    session.gtk_reads(0);
    session.gtk[0].clear();
    session.gtk_writes(0);
    assert_eq!(session.project(), (0, 5));
    assert!(session.in_list().is_empty());
}

#[test]
fn limits_of_programs_are_no_deletions() {
    let mut session = settled();
    session.wait(40 * DAY);
    session.add("young");
    session.project();
    session.wait(10 * SECOND);
    session.gtk_reads(0);
    session.gtk_adds(0, "g");
    session.gtk_writes(0);
    assert_eq!(session.in_file(), names(["g", "young"]));
    let writes = session.writes;
    assert_eq!(session.project(), (0, 0));
    assert_eq!(session.in_list(), names(["a", "b", "c", "d", "g", "young"]));
    assert_eq!(session.writes, writes, "they are no reason to write");
    session.add("other");
    session.project();
    assert_eq!(session.in_file().len(), 7);
}

#[test]
fn the_thousand_entries_of_gtk_are_no_deletions() {
    let mut session = settled();
    for number in 0..1200 {
        session.add(&format!("n{number}"));
    }
    session.project();
    session.wait(10 * SECOND);
    session.gtk_reads(0);
    session.gtk_adds(0, "g");
    session.gtk_removes(0, "n1100");
    session.gtk_writes(0);
    assert_eq!(session.in_file().len(), 1000);
    assert_eq!(session.project(), (0, 1));
    assert_eq!(session.in_list().len(), 1204);
    assert!(!session.in_list().contains("n1100"));
}

#[test]
fn of_a_damaged_file_nothing_was_deleted() {
    let mut session = settled();
    let text = session
        .file
        .as_ref()
        .unwrap()
        .edit(|_| super::super::xbel::BookmarkChange::Keep, [&entry("x", "x", session.now)]);
    let text = text.unwrap();
    for cut in [0, 1, 300, 900, text.len() - 20] {
        session.file = Some(XbelDocument::parse(text.as_bytes()[..cut].to_vec()).unwrap());
        session.written = session.now;
        assert_eq!(session.project().1, 0);
        assert!(session.in_file().is_superset(&names(["a", "b", "c", "d"])), "{cut}");
        assert_eq!(session.file.as_ref().unwrap().condition(), Condition::Whole);
        session.wait(SECOND);
    }
}

#[test]
fn without_a_base_nothing_was_deleted_and_everything_is_taken_in() {
    let mut session = settled();
    session.base = Base::default();
    session.gtk_removes(0, "a");
    session.gtk_adds(0, "g");
    session.gtk_writes(0);
    assert_eq!(session.project(), (0, 0));
    assert_eq!(session.in_file(), names(["a", "b", "c", "d", "g"]));
}

#[test]
fn what_our_own_limits_drop_is_not_taken_in_again() {
    let mut session = settled();
    session.most = 2;
    session.project();
    assert_eq!(session.in_file(), names(["c", "d"]));
    assert_eq!(session.in_list(), names(["c", "d"]));
}

#[test]
fn a_crash_between_the_file_and_the_base_changes_nothing() {
    let mut session = settled();
    session.add("new");
    let before = session.base.clone();
    session.project();
    session.base = before;
    session.wait(SECOND);
    assert_eq!(session.project(), (0, 0));
    assert_eq!(session.in_file(), names(["a", "b", "c", "d", "new"]));
}

/// A step of a session.
#[derive(Clone, Debug)]
enum Op {
    Add(u8),
    Project,
    Kde(u8),
    /// A program adds, and writes a quarter of a second later; other steps may come between.
    GtkAdds(usize, u8),
    GtkWrites(usize),
    Quiet,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..40_u8).prop_map(Op::Add),
        3 => Just(Op::Project),
        2 => (40..60_u8).prop_map(Op::Kde),
        3 => (0..2_usize, 60..90_u8).prop_map(|(program, name)| Op::GtkAdds(program, name)),
        3 => (0..2_usize).prop_map(Op::GtkWrites),
        1 => Just(Op::Quiet),
    ]
}

/// The longest delay after which a GTK program on a busy machine writes or reads.
const LATE: i64 = SECOND;

/// What a GTK program is about to do, and since when.
#[derive(Clone, Copy, Default)]
struct Pending {
    /// It has added a document.
    dirty: Option<RecentTime>,
    /// The file is not the one that it read.
    unread: Option<RecentTime>,
}

impl Pending {
    fn carry_out(&mut self, session: &mut Session, program: usize) {
        // It reads only if it has nothing to write; it reads its own version again, too.
        match self.dirty.take() {
            Some(_) => session.gtk_writes(program),
            None => session.gtk_reads(program),
        }
        self.unread = None;
    }

    fn is_due(&self, now: RecentTime) -> bool {
        self.dirty.or(self.unread).is_some_and(|since| now.0 - since.0 >= LATE)
    }
}

/// Plays a session without deletions; returns which documents of unjank are missing at the end, and which of other programs were seen.
fn play(ops: &[Op], forgetful: Forgetful) -> (BTreeSet<String>, BTreeSet<String>) {
    let mut session = Session::new();
    session.every_gap_is_a_deletion = forgetful == Forgetful::Yes;
    let (mut ours, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut pending = [Pending::default(); 2];
    let mut changed: Option<RecentTime> = None;
    for op in ops {
        let before = session.written;
        match op {
            Op::Add(name) => {
                ours.insert(name.to_string());
                session.add(&name.to_string());
            }
            Op::Project => {
                session.project();
                seen.extend(session.in_list());
            }
            Op::Kde(name) => session.kde_adds(&name.to_string()),
            Op::GtkAdds(program, name) => {
                session.gtk_adds(*program, &name.to_string());
                pending[*program].dirty.get_or_insert(session.now);
            }
            Op::GtkWrites(program) => {
                session.wait(SECOND / 4);
                pending[*program].carry_out(&mut session, *program);
            }
            Op::Quiet => {
                for _ in 0..2 {
                    session.wait(SECOND / 4);
                    (0..2).for_each(|program| pending[program].carry_out(&mut session, program));
                }
                session.project();
                (0..2).for_each(|program| pending[program].carry_out(&mut session, program));
                session.wait(60 * SECOND);
            }
        }
        for (program, pending) in pending.iter_mut().enumerate() {
            if pending.is_due(session.now) {
                pending.carry_out(&mut session, program);
            }
        }
        if session.written != before {
            // The daemon watches the file, and projects when it was quiet for a moment, or after a while.
            changed = changed.or(Some(session.now));
            pending.iter_mut().for_each(|one| one.unread = one.unread.or(Some(session.written)));
        }
        if changed.is_some_and(|at| session.now.0 - at.0 >= LATE) {
            session.project();
            changed = None;
        }
        session.wait(SECOND / 10);
    }
    session.project();
    let kept: BTreeSet<String> = session.in_file();
    (ours.difference(&kept).cloned().collect(), seen.difference(&kept).cloned().collect())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Forgetful {
    No,
    Yes,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn where_nobody_deletes_nothing_is_lost(ops in proptest::collection::vec(op(), 1..60)) {
        let (ours, seen) = play(&ops, Forgetful::No);
        prop_assert_eq!(ours, BTreeSet::new());
        prop_assert_eq!(seen, BTreeSet::new());
    }
}

/// A program uses a document of which another program wrote a later version, so its own entry is older.
#[test]
fn who_writes_an_overtaken_version_was_busy_too() {
    use Op::{Add, GtkAdds, GtkWrites, Kde, Project};
    let calm = |times| std::iter::repeat_n(Add(1), times);
    let mut ops: Vec<Op> = std::iter::repeat_n(Add(0), 14).chain([Project]).collect();
    ops.extend(calm(5).chain([GtkWrites(0), Add(1), GtkAdds(1, 61), Add(1), GtkWrites(1), Add(1)]));
    ops.extend(
        [GtkAdds(0, 60), Project, Add(1), Add(1), GtkAdds(1, 60)].into_iter().chain(calm(3)),
    );
    ops.extend([GtkAdds(0, 60)].into_iter().chain(calm(3)).chain([Add(25), Project, Kde(55)]));
    assert_eq!(play(&ops, Forgetful::No), (BTreeSet::new(), BTreeSet::new()));
}

#[test]
fn a_merge_that_takes_every_gap_for_a_deletion_is_noticed() {
    let ops = [Op::GtkAdds(0, 60), Op::Add(1), Op::Project, Op::GtkWrites(0), Op::Project];
    assert!(play(&ops, Forgetful::No).0.is_empty());
    assert!(!play(&ops, Forgetful::Yes).0.is_empty());
}
