//! The service opens events of a user's own threads where he may open none, and nothing of others comes out of them.
#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]
#![allow(clippy::disallowed_methods, reason = "a test stands for programs")]

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hangs::kernel::{MarkedAs, ThreadMarker, open_served};
use hangs::model::{HangCause, UnseenParts};
use kernelwork::kernel::{WorkRecord, WorkTracer};
use rustix::process::{Pid, Signal, kill_process};
use sys::bpf::owner::SessionOwner;
use sys::bpf::{Map, MapKind};
use sys::perf::{CopiedStack, EventOpener, SamplerEvent, ThreadSampler};
use sys::socket::{self, Full};
use trace::backend::bpf::served::hang_messages::HangRequest;
use trace::backend::bpf::served::protocol::{AuthorizationPrompt, Reply, Request, VERSION};

use crate::hangs::{be_noticed, ended_hang, hangs_since};
use crate::hostile::{ask, connected};
use crate::stage::interactive::Interactive;
use crate::stage::{ANN, Actor, BOB, Daemon, STAFF, Stage, say, skip, wait_until};

/// Compiles one of the programs of these tests into the directory that all can read.
fn compiled(stage: &Stage, name: &str) -> PathBuf {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(format!("{name}.c"));
    let program = stage.dir.path().join(name);
    let built = Command::new("cc").arg("-O1").arg("-o").arg(&program).arg(source).status();
    assert!(built.unwrap().success(), "the program cannot be compiled");
    program
}

/// Starts a role as a user who can open no event himself.
fn start_without_events(stage: &Stage, user: u32, role: &str, detail: &str) -> Actor {
    let without = compiled(stage, "without_events");
    let (number, staff) = (user.to_string(), STAFF.to_string());
    let words = ["setpriv", "--reuid", &number, "--regid", &number, "--groups", &staff];
    let words = [&words[..], &[without.to_str().unwrap(), "{}"]].concat();
    stage.start_by(&words, role, detail)
}

/// The role: marks processes, opens events of them, and says what came of it.
pub(crate) fn events() {
    let (_reports, mut marker, _) = open_served(&crate::stage::socket()).unwrap();
    let rights = marker.samplers();
    let mut sampler = None;
    for line in io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let process: u32 = words[1].parse().unwrap();
        let outcome = |result: io::Result<()>| match result {
            Ok(()) => "done".to_owned(),
            Err(error) => format!("{:?}", error.kind()),
        };
        match words[0] {
            "mark" => say(outcome(marker.mark(process, MarkedAs::Unknown))),
            "sample" => {
                let period = Duration::from_millis(7);
                say(outcome(ThreadSampler::open_by(&rights, process, period).map(|opened| {
                    sampler = Some(opened);
                })));
            }
            "count" => {
                let mut count = 0;
                sampler.as_mut().unwrap().take(|_| count += 1);
                say(count);
            }
            "event" => {
                let address = words[3].parse().unwrap();
                let event = match words[2] {
                    "clock" => SamplerEvent::Clock(Duration::from_nanos(address)),
                    "fault" => SamplerEvent::Fault,
                    _ => SamplerEvent::Execution(address, CopiedStack::Whole),
                };
                say(outcome(rights.open_event(process, event).map(drop)));
            }
            // Descriptors stay with whoever has them.
            "many" => {
                let open = |_| rights.open_event(process, SamplerEvent::Fault).ok();
                let opened: Vec<_> = (0..500).map_while(open).collect();
                say(opened.len());
            }
            other => panic!("{other}"),
        }
    }
}

/// A program that computes, and changes its rights when it is told to.
struct Changing(Daemon);

impl Changing {
    fn start(stage: &Stage, user: u32, program: &Path, executed: &Path) -> Changing {
        let mut command = stage.command_of(user, program);
        let child = command.arg(executed).stdout(Stdio::piped()).spawn().unwrap();
        let mut changing = Changing(Daemon(child));
        changing.says();
        changing
    }

    fn child(&mut self) -> &mut Child {
        &mut self.0.0
    }

    fn id(&self) -> u32 {
        self.0.0.id()
    }

    fn says(&mut self) {
        self.child().stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    }

    fn signal(&mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.0.0), signal).unwrap();
    }

    /// Waits until it has run for 0.3 s more.
    fn computes(&self) {
        let ran = || -> u64 {
            let text = std::fs::read_to_string(format!("/proc/{}/schedstat", self.id())).unwrap();
            text.split(' ').next().unwrap().parse().unwrap()
        };
        let before = ran();
        wait_until("it has computed", || ran() - before > 300_000_000);
    }
}

/// Says whether the kernel opens events for the service, which that of Debian does only for root by default.
fn opens_events(stage: &Stage) -> bool {
    let program = compiled(stage, "changing");
    let mut ann = start_without_events(stage, ANN, "events", "");
    let own = Changing::start(stage, ANN, &program, &program);
    assert_eq!(ann.ask(&format!("mark {}", own.id())), "done");
    let outcome = ann.ask(&format!("event {} fault 0", own.id()));
    ann.end();
    if outcome == "PermissionDenied" {
        skip("the kernel opens no events for the service");
    }
    outcome != "PermissionDenied"
}

#[test]
fn samples_are_of_processes_that_the_user_could_trace_and_of_no_others() {
    let Some(stage) = Stage::set() else { return };
    if !opens_events(&stage) {
        return;
    }
    let program = compiled(&stage, "changing");
    let privileged = stage.copy(program.to_str().unwrap(), "privileged", 0o4755);
    let mut ann = start_without_events(&stage, ANN, "events", "");
    let mut own = Changing::start(&stage, ANN, &program, &privileged);
    let of_bob = Changing::start(&stage, BOB, &program, &privileged);
    let pid = own.id();
    let ask = |ann: &mut Actor, what: &str, process: u32| ann.ask(&format!("{what} {process}"));
    // Only what is marked, which others' processes cannot be.
    assert_eq!(ask(&mut ann, "sample", pid), "NotFound");
    for other in [of_bob.id(), 1, u32::MAX] {
        assert_ne!(ask(&mut ann, "mark", other), "done");
        assert_eq!(ask(&mut ann, "sample", other), "NotFound", "{other}");
    }
    assert_eq!(ask(&mut ann, "mark", pid), "done");
    assert_eq!(ask(&mut ann, "sample", pid), "done");
    own.computes();
    assert_ne!(ask(&mut ann, "count", pid), "0");
    // It forbids to be dumped: what she has open tells nothing any more, and nothing is opened.
    own.signal(Signal::USR1);
    own.says();
    ask(&mut ann, "count", pid);
    own.computes();
    assert_eq!(ask(&mut ann, "count", pid), "0");
    assert_eq!(ann.ask(&format!("event {pid} fault 0")), "NotFound");
    own.signal(Signal::USR2);
    own.says();
    own.computes();
    assert_ne!(ask(&mut ann, "count", pid), "0", "it is hers again");
    assert_eq!(ann.ask(&format!("event {pid} fault 0")), "done");
    // It executes a program with rights of root.
    own.signal(Signal::HUP);
    own.says();
    ask(&mut ann, "count", pid);
    own.computes();
    assert_eq!(ask(&mut ann, "count", pid), "0");
    assert_eq!(ann.ask(&format!("event {pid} fault 0")), "NotFound");
    own.child().kill().unwrap();
    own.child().wait().unwrap();
    assert_ne!(ann.ask(&format!("event {pid} fault 0")), "done", "its number may be another's");
    ann.end();
}

#[test]
fn only_events_that_a_recorder_needs_are_opened_and_the_service_keeps_none() {
    let Some(stage) = Stage::set() else { return };
    if !opens_events(&stage) {
        return;
    }
    let program = compiled(&stage, "changing");
    let mut ann = start_without_events(&stage, ANN, "events", "");
    let own = Changing::start(&stage, ANN, &program, &program);
    let pid = own.id();
    assert_eq!(ann.ask(&format!("mark {pid}")), "done");
    for (event, outcome) in [
        ("clock 7000000", "done"),
        ("clock 1000", "InvalidInput"),
        ("execution 4198400", "done"),
        // A function of the kernel.
        ("execution 18446744071578845184", "InvalidInput"),
        ("fault 0", "done"),
    ] {
        assert_eq!(ann.ask(&format!("event {pid} {event}")), outcome, "{event}");
    }
    assert_eq!(ann.ask(&format!("many {pid}")), "500");
    // The service keeps none of them.
    let kept = || std::fs::read_dir(format!("/proc/{}/fd", stage.service.id())).unwrap().count();
    assert!(kept() < 100, "{}", kept());
    ann.end();
}

/// The role: begins sessions of which it reads no event, ends each by nonsense, and keeps its end; says how many those are.
pub(crate) fn hoard() {
    let process: u32 = crate::stage::detail().parse().unwrap();
    let mark = HangRequest::Mark { process, wait: None };
    let mut held = Vec::new();
    for _ in 0..30 {
        let connection = connected();
        let hello =
            Request::Hello { version: VERSION.to_owned(), prompt: AuthorizationPrompt::Unwanted };
        let begin = [hello, Request::Hangs(HangRequest::Open), Request::Hangs(mark)];
        if begin.iter().any(|request| ask(&connection, request) != Some(Reply::Done)) {
            break;
        }
        let event = Request::Hangs(HangRequest::Event { process, event: SamplerEvent::Fault });
        for _ in 0..20 {
            socket::send(&connection, &event.write(), None, Full::Wait).unwrap();
        }
        socket::send(&connection, &[0xff], None, Full::Wait).unwrap();
        socket::wait_hung_up(&connection).unwrap();
        held.push(connection);
    }
    say(held.len());
    crate::stage::pause();
}

#[test]
fn events_that_are_not_read_are_counted_until_they_are_and_others_get_theirs() {
    let Some(stage) = Stage::set() else { return };
    if !opens_events(&stage) {
        return;
    }
    let program = compiled(&stage, "changing");
    let [of_ann, of_bob] = [ANN, BOB].map(|user| Changing::start(&stage, user, &program, &program));
    let process = of_ann.id().to_string();
    let mut bob = start_without_events(&stage, BOB, "events", "");
    assert_eq!(bob.ask(&format!("mark {}", of_bob.id())), "done");
    for _ in 0..2 {
        let mut hoarding = stage.start(ANN, "hoard", &process);
        let held: usize = hoarding.line().unwrap().parse().unwrap();
        assert!((1..=8).contains(&held), "she holds {held} connections' events");
        assert_eq!(bob.ask(&format!("event {} fault 0", of_bob.id())), "done");
        hoarding.end();
        // Her connections are hers again.
        wait_until("nothing is on its way to her", || stage.connections() == 1);
    }
    bob.end();
}

#[test]
fn operations_of_a_process_that_is_not_the_owners_are_not_told_although_it_is_marked() {
    let Some(stage) = Stage::set() else { return };
    let mut program = Interactive::start(&stage, ANN);
    program.order(b'o');
    // As if the number of a process that was marked had become another one's.
    let mut told = |owner: SessionOwner| {
        let marked = Map::for_programs(MapKind::Hash, "unjank_test", 4, 4, 16).unwrap();
        marked.set(&program.process().to_ne_bytes(), &[0; 4]).unwrap();
        let tracer = WorkTracer::load_operations_of(owner, (&marked).into(), 0);
        let mut tracer = tracer.unwrap();
        program.order(b'u');
        let mut addresses = Vec::new();
        tracer.offer_numbered(usize::MAX, |bytes| {
            if let Some(WorkRecord::Operation(record)) = WorkRecord::read(bytes) {
                addresses.push(record.operation.ring);
            }
            true
        });
        assert_eq!(tracer.unseen(), [""; 0]);
        addresses
    };
    let own = SessionOwner { user: ANN, group: ANN, capabilities: 0 };
    let rings = told(own);
    if rings.is_empty() {
        return skip("no operations of io_uring");
    }
    assert!(rings.iter().all(|ring| *ring < 4096), "numbers, and no addresses: {rings:x?}");
    for (user, group) in [(BOB, ANN), (0, ANN), (ANN, BOB), (ANN, 0)] {
        assert_eq!(told(SessionOwner { user, group, ..own }), [0; 0], "user {user}, group {group}");
    }
}

#[test]
fn functions_steps_and_files_are_known_to_a_user_who_may_open_no_events() {
    let Some(stage) = Stage::set() else { return };
    if !opens_events(&stage) {
        return;
    }
    let store = stage.dir_of(ANN).join("hangs");
    let mut recorder = start_without_events(&stage, ANN, "record", store.to_str().unwrap());
    assert_eq!(recorder.line().as_deref(), Some("source Exact"));
    let mut program = Interactive::start(&stage, ANN);
    be_noticed(&stage, ANN, &mut program);
    let hang = ended_hang(&stage, ANN, &mut program, b'c');
    // Beside others it has waited for a processor, too.
    let functions: Vec<&str> = hang.frames.iter().map(|frame| &*frame.function).collect();
    assert!(functions.contains(&"compute_things"), "{hang:?}");
    assert!(!hang.unseen.has(UnseenParts::FUNCTIONS), "{hang:?}");
    assert!(!hang.unseen.has(UnseenParts::STEPS), "{hang:?}");
    // It looks for events each 4 ms, for 0.9 s.
    let since_ns = program.order(b'v');
    ended_hang(&stage, ANN, &mut program, b's');
    let lengths: Vec<u64> = hangs_since(&stage, ANN, program.process(), since_ns)
        .iter()
        .map(|hang| hang.length_ns / 1_000_000)
        .collect();
    assert!(lengths.iter().all(|ms| *ms < 700), "{lengths:?}");
    // The page of a mapped file is known by the address.
    program.order(b'o');
    let hang = ended_hang(&stage, ANN, &mut program, b'm');
    let is_cold = |share: &hangs::model::CallShare| {
        share.object.as_ref().is_some_and(|object| object.name.ends_with(".cold"))
    };
    if hang.cause == HangCause::PageFault {
        assert!(hang.calls.iter().any(is_cold), "{hang:?}");
    }
    // Operations of a ring work on a file, not on the ring; the first time programs may have come too late.
    for attempt in 0..2 {
        let hang = ended_hang(&stage, ANN, &mut program, b'u');
        let told = |call: &str| -> u64 {
            let shares = hang.calls.iter().filter(|share| share.call == call);
            shares.map(|share| share.blocked_ns).sum()
        };
        let [read_ns, ring_ns] = [told("io_uring read"), told("io_uring_enter")];
        if attempt > 0 && read_ns + ring_ns > hang.length_ns / 4 {
            assert!(read_ns > ring_ns && hang.calls.iter().any(is_cold), "{hang:?}");
        }
    }
    assert_eq!(recorder.end(), ["ended"]);
}
