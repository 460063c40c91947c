//! A user's hangs are recorded through the service, and nobody else's.
#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]
#![allow(clippy::disallowed_methods, reason = "a test stands for programs")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use hangs::model::{Hang, HangCause};
use hangs::recorder::{RecorderOptions, RecorderService, SourceChange, ThreadSource, record};
use hangs::store::{DEFAULT_LIMIT, StoredHistory, read};
use rustix::process::{Pid, Signal, kill_process};
use sys::clock::SystemClock;
use trace::stack::names::SymbolSources;

use crate::stage::interactive::Interactive;
use crate::stage::{ANN, Actor, BOB, CAROL, STAFF, Stage, detail, pause, say, socket, wait_until};

/// The role: records hangs into the directory in the detail until the test lets it end.
pub(crate) fn record_hangs() {
    let options = RecorderOptions {
        dir: detail().into(),
        limit_bytes: DEFAULT_LIMIT,
        named: Vec::new(),
        excluded: None,
        sources: SymbolSources::default(),
    };
    let source = ThreadSource::Service(RecorderService {
        socket: socket(),
        told: |change: &SourceChange| say(format!("source {change:?}")),
    });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pause();
            stop.store(true, Ordering::Relaxed);
        });
        let (disk, clock) = (store::disk::real(), SystemClock::start());
        record(&options, source, &disk, &clock, &stop, &mut |_| {}).unwrap();
    });
    say("ended");
}

/// Starts the recorder of a user, with its store in a directory of his.
fn recorder(stage: &Stage, user: u32) -> Actor {
    let store = stage.dir_of(user).join("hangs");
    stage.start(user, "record", store.to_str().unwrap())
}

fn stored(stage: &Stage, user: u32) -> StoredHistory {
    read(&*store::disk::real(), &stage.dir_of(user).join("hangs")).unwrap_or_default()
}

/// How many hangs of a user are counted as lost.
fn lost(stage: &Stage, user: u32) -> u32 {
    stored(stage, user).periods.iter().map(|period| period.lost).sum()
}

/// The hangs of a process that began after a moment.
pub(crate) fn hangs_since(stage: &Stage, user: u32, process: u32, since_ns: u64) -> Vec<Hang> {
    let hangs = stored(stage, user).hangs.into_values();
    let is_new = |hang: &Hang| hang.started_ns + hang.length_ns / 2 > since_ns;
    hangs.filter(|hang| hang.process == process && is_new(hang)).collect()
}

/// Keeps a program busy for moments until the recorder has seen its main loop.
pub(crate) fn be_noticed(stage: &Stage, user: u32, program: &mut Interactive) {
    // What an earlier recorder stored says nothing of this one.
    let since_ns = program.order(b'b');
    wait_until("the recorder follows the program", || {
        let seen = !hangs_since(stage, user, program.process(), since_ns).is_empty();
        program.order(b's');
        seen
    });
}

/// Has a program do something that is a hang, and returns what was recorded of it once it has ended.
pub(crate) fn ended_hang(stage: &Stage, user: u32, program: &mut Interactive, command: u8) -> Hang {
    let since_ns = program.order(command);
    let mut found = None;
    wait_until("the hang is stored", || {
        let hangs = hangs_since(stage, user, program.process(), since_ns);
        found = hangs.into_iter().find(|hang| !hang.goes_on);
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn a_users_hang_is_recorded_with_its_exact_length_and_nothing_of_anothers() {
    let Some(stage) = Stage::set() else { return };
    let users = [ANN, BOB];
    let mut recorders = users.map(|user| recorder(&stage, user));
    for one in &mut recorders {
        assert_eq!(one.line().as_deref(), Some("source Exact"));
    }
    let mut programs = users.map(|user| Interactive::start(&stage, user));
    for (user, program) in users.into_iter().zip(&mut programs) {
        be_noticed(&stage, user, program);
    }
    for (user, program) in users.into_iter().zip(&mut programs) {
        program.order(b'b');
        let hang = ended_hang(&stage, user, program, b's');
        program.order(b'b');
        let noted = program.noted();
        let [.., before, (b's', began, ended), after] = &noted[..] else { panic!("{noted:?}") };
        let bounds = ended - began..=after.1 - before.2;
        assert!(bounds.contains(&hang.length_ns), "{bounds:?}: {hang:?}");
        assert_eq!((hang.cause, hang.uncertain_ns), (HangCause::Sleep, 0), "{hang:?}");
        let blamed = hang.blamed_frame().map(|frame| &*frame.function);
        assert_eq!(blamed, Some("sleep_on_purpose"), "{hang:?}");
        let sum: u64 = hang.parts.named().iter().map(|(_, part)| part).sum();
        assert_eq!(sum, hang.length_ns, "{hang:?}");
    }
    let hang = ended_hang(&stage, ANN, &mut programs[0], b'r');
    assert_eq!(hang.cause, HangCause::OtherProgram, "{hang:?}");
    for one in recorders {
        assert_eq!(one.end(), ["ended"]);
    }
    wait_until("all programs are gone", || stage.programs() == 0);
    for user in users {
        let stored = stored(&stage, user);
        // Those of other tests are the user's own, too.
        let is_own = |hang: &Hang| hang.program.starts_with(&format!("of-{user}-"));
        assert!(stored.hangs.values().all(is_own), "{stored:?}");
        assert!(!stored.hangs.is_empty() && stored.damage().is_none());
        // Intervals of looks are those of a recorder that samples.
        assert!(stored.periods.iter().all(|period| period.interval_ns == 0 && period.lost == 0));
    }
}

#[test]
fn a_hang_is_followed_to_programs_of_its_user_and_to_no_others() {
    let Some(stage) = Stage::set() else { return };
    let mut recorder = recorder(&stage, ANN);
    assert_eq!(recorder.line().as_deref(), Some("source Exact"));
    let mut program = Interactive::start(&stage, ANN);
    be_noticed(&stage, ANN, &mut program);
    // It reads from a pipe that `cat` writes to, which waits for `sleep`; all are hers. The kernel may not have told what ended
    // the sleep.
    let mut hang = ended_hang(&stage, ANN, &mut program, b'w');
    for _ in 0..5 {
        if hang.chain.as_ref().is_some_and(|chain| &*chain.end == "not-known") {
            hang = ended_hang(&stage, ANN, &mut program, b'w');
        }
    }
    let chain = hang.chain.as_ref().unwrap_or_else(|| panic!("{hang:?}"));
    let names: Vec<&str> = chain.hops.iter().map(|hop| &*hop.program).collect();
    assert!(names.contains(&"cat") && names.contains(&"sleep"), "{hang:?}");
    assert_eq!((&*chain.end, chain.has_losses), ("timer", false), "{hang:?}");
    // Addresses of the kernel's functions are for root.
    assert!(chain.hops.iter().all(|hop| hop.function.is_empty()), "{hang:?}");
    // A lock that a program of root has, which is this one.
    let held = std::fs::File::create(program.lock()).unwrap();
    std::fs::set_permissions(program.lock(), std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .unwrap();
    held.lock().unwrap();
    program.wait_until_at_rest();
    let since_ns = program.begin(b'l');
    wait_until("a hang that goes on", || {
        !hangs_since(&stage, ANN, program.process(), since_ns).is_empty()
    });
    drop(held);
    program.finished();
    let mut chains = Vec::new();
    wait_until("the hang is stored", || {
        let hangs = hangs_since(&stage, ANN, program.process(), since_ns);
        chains = hangs.into_iter().filter(|hang| !hang.goes_on).map(|hang| hang.chain).collect();
        !chains.is_empty()
    });
    let hops = chains[0].as_ref().map(|chain| &chain.hops[..]).unwrap_or_default();
    assert_eq!(hops.len(), 2, "{chains:?}");
    assert_eq!((&*hops[1].program, hops[1].process), ("another user's program", 0), "{chains:?}");
    assert_eq!((&*hops[1].unit, &*hops[1].call), ("", ""), "{chains:?}");
    assert_eq!(recorder.end(), ["ended"]);
}

#[test]
fn a_recorder_goes_on_by_sampling_while_the_service_is_killed_and_comes_back() {
    let Some(mut stage) = Stage::set() else { return };
    let mut recorder = recorder(&stage, ANN);
    assert_eq!(recorder.line().as_deref(), Some("source Exact"));
    let mut program = Interactive::start(&stage, ANN);
    be_noticed(&stage, ANN, &mut program);
    for _ in 0..2 {
        stage.service.kill().unwrap();
        stage.service.wait().unwrap();
        assert_eq!(recorder.line().as_deref(), Some("source Lost"));
        // Sampling has to see its main loop itself.
        let since_ns = program.order(b's');
        wait_until("a hang is seen from outside", || {
            program.order(b's');
            !hangs_since(&stage, ANN, program.process(), since_ns).is_empty()
        });
        stage.start_service();
        assert_eq!(recorder.line().as_deref(), Some("source Exact"));
        let since_ns = program.order(b'b');
        wait_until("a hang is recorded exactly again", || {
            program.order(b's');
            let hangs = hangs_since(&stage, ANN, program.process(), since_ns);
            // Of a rest that is announced, begin and end of a sampled one may be certain, but never those of all.
            hangs.iter().any(|hang| hang.uncertain_ns == 0 && hang.cause == HangCause::Sleep)
        });
    }
    assert_eq!(recorder.end(), ["ended"]);
    wait_until("all programs are gone", || stage.programs() == 0);
    let periods = stored(&stage, ANN).periods;
    assert!(periods.iter().any(|period| period.interval_ns > 0), "{periods:?}");
    assert!(periods.iter().any(|period| period.interval_ns == 0), "{periods:?}");
}

#[test]
fn a_hang_in_which_the_service_is_killed_is_told_once_or_counted_as_lost() {
    let Some(mut stage) = Stage::set() else { return };
    // What programs of other tests do is not counted beside it.
    let mut recorder = recorder(&stage, CAROL);
    assert_eq!(recorder.line().as_deref(), Some("source Exact"));
    let mut program = Interactive::start(&stage, CAROL);
    be_noticed(&stage, CAROL, &mut program);
    let lock = std::fs::File::create(program.lock()).unwrap();
    let for_all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    lock.set_permissions(for_all).unwrap();
    // The kernel may lose a report of something else on a busy machine, which is counted, too.
    let mut counts = Vec::new();
    for is_stored in [true, false, true, true] {
        if is_stored && counts.contains(&0) {
            continue;
        }
        let lost_before = lost(&stage, CAROL);
        program.wait_until_at_rest();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let since_ns = program.begin(b'l');
        let of_it = |stage: &Stage| hangs_since(stage, CAROL, program.process(), since_ns);
        if is_stored {
            wait_until("the hang is stored while it goes on", || !of_it(&stage).is_empty());
        } else {
            wait_until("the program waits for the lock", || program.waits_in("lock"));
        }
        stage.service.kill().unwrap();
        stage.service.wait().unwrap();
        assert_eq!(recorder.line().as_deref(), Some("source Lost"));
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock).unwrap();
        program.finished();
        stage.start_service();
        assert_eq!(recorder.line().as_deref(), Some("source Exact"));
        // The time before the loss is stored by then.
        be_noticed(&stage, CAROL, &mut program);
        let told = hangs_since(&stage, CAROL, program.process(), since_ns);
        let told: Vec<&Hang> = told.iter().filter(|hang| hang.cause == HangCause::Lock).collect();
        assert_eq!(told.len(), usize::from(is_stored), "{told:?}");
        assert!(told.iter().all(|hang| hang.goes_on), "{told:?}");
        if is_stored {
            counts.push(lost(&stage, CAROL) - lost_before);
        }
    }
    assert!(counts.contains(&0), "a hang that is stored is counted as lost, too: {counts:?}");
    assert_eq!(recorder.end(), ["ended"]);
}

#[test]
fn a_hang_that_has_just_begun_when_the_service_is_killed_is_told_from_then_on() {
    let Some(mut stage) = Stage::set() else { return };
    let mut recorder = recorder(&stage, ANN);
    assert_eq!(recorder.line().as_deref(), Some("source Exact"));
    let mut program = Interactive::start(&stage, ANN);
    be_noticed(&stage, ANN, &mut program);
    program.wait_until_at_rest();
    let since_ns = program.begin(b's');
    stage.service.kill().unwrap();
    stage.service.wait().unwrap();
    assert_eq!(recorder.line().as_deref(), Some("source Lost"));
    program.finished();
    wait_until("the hang is told", || {
        let hangs = hangs_since(&stage, ANN, program.process(), since_ns);
        let of_it = |hang: &&Hang| hang.cause == HangCause::Sleep && !hang.goes_on;
        hangs.iter().find(of_it).is_some_and(|hang| hang.unseen.has_unseen_time())
    });
    assert_eq!(recorder.end(), ["ended"]);
}

#[test]
fn a_user_who_is_refused_is_told_why_and_has_the_recorder_that_samples() {
    let Some(stage) = Stage::set() else { return };
    let (user, group) = (format!("--reuid={ANN}"), format!("--regid={ANN}"));
    let store = stage.dir_of(ANN).join("hangs");
    let words = ["setpriv", &*user, &group, "--clear-groups", "{}"];
    let mut refused = stage.start_by(&words, "record", store.to_str().unwrap());
    let said = refused.line().unwrap();
    assert!(said.contains("source Refused") && said.contains(&STAFF.to_string()), "{said}");
    let mut program = Interactive::start(&stage, ANN);
    be_noticed(&stage, ANN, &mut program);
    assert_eq!(stage.programs(), 0);
    assert_eq!(refused.end(), ["ended"]);
    // Where nothing listens, that is what is said.
    let mut stage = stage;
    stage.service.kill().unwrap();
    stage.service.wait().unwrap();
    let mut alone = recorder(&stage, BOB);
    assert_eq!(alone.line().as_deref(), Some("source Absent"));
    assert_eq!(alone.end(), ["ended"]);
}

#[test]
fn a_recorder_that_is_killed_leaves_nothing_and_one_that_is_stopped_disturbs_nobody() {
    let Some(stage) = Stage::set() else { return };
    let mut killed = recorder(&stage, ANN);
    assert_eq!(killed.line().as_deref(), Some("source Exact"));
    assert!(stage.programs() > 0);
    let mut program = Interactive::start(&stage, ANN);
    be_noticed(&stage, ANN, &mut program);
    // In the middle of a hang.
    program.begin(b's');
    killed.child.kill().unwrap();
    killed.status();
    wait_until("all programs are gone", || stage.programs() == 0);
    program.finished();
    // One that is stopped while its program hangs on and on.
    let mut stopped = recorder(&stage, ANN);
    assert_eq!(stopped.line().as_deref(), Some("source Exact"));
    be_noticed(&stage, ANN, &mut program);
    let pid = Pid::from_child(&stopped.child);
    kill_process(pid, Signal::STOP).unwrap();
    let mut bobs = recorder(&stage, BOB);
    assert_eq!(bobs.line().as_deref(), Some("source Exact"));
    let mut other = Interactive::start(&stage, BOB);
    be_noticed(&stage, BOB, &mut other);
    for _ in 0..3 {
        program.order(b's');
        let hang = ended_hang(&stage, BOB, &mut other, b's');
        assert_eq!((hang.cause, hang.uncertain_ns), (HangCause::Sleep, 0), "{hang:?}");
    }
    kill_process(pid, Signal::CONT).unwrap();
    let hang = ended_hang(&stage, ANN, &mut program, b's');
    assert_eq!((hang.cause, hang.uncertain_ns), (HangCause::Sleep, 0), "{hang:?}");
    assert_eq!(stopped.end(), ["ended"]);
    assert_eq!(bobs.end(), ["ended"]);
}

#[test]
fn a_session_whose_client_is_stopped_for_long_is_ended() {
    let arguments = ["--bus", "unix:path=/nowhere", "--quiet", "3"];
    let Some(stage) = Stage::set_with(&arguments) else { return };
    let mut stopped = recorder(&stage, ANN);
    assert_eq!(stopped.line().as_deref(), Some("source Exact"));
    let pid = Pid::from_child(&stopped.child);
    kill_process(pid, Signal::STOP).unwrap();
    wait_until("its programs are gone", || stage.programs() == 0);
    assert!(stage.log().contains("was ended, since it asked for nothing"), "{}", stage.log());
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(stopped.line().as_deref(), Some("source Lost"));
    assert_eq!(stopped.line().as_deref(), Some("source Exact"));
    assert!(Path::new(&stage.socket()).exists());
    assert_eq!(stopped.end().last().map(String::as_str), Some("ended"));
}
