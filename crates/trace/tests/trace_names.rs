//! The backends name the same things of the same programs, however soon these close them and end.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a program that cannot be built or started fails the test; a test says what it skips"
)]

use crate::waiting;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use unjank_trace::backend::{self, TraceError, TraceOptions, TraceTarget};
use unjank_trace::recording::{Backend, Recording, Target, Total};
use unjank_trace::syscall::call_name;
use unjank_trace::syscall_set::Set;

/// Records `words` with every chosen call as a slow one; none where this user may not use the backend.
fn record(backend: Backend, words: &[String], calls: &str) -> Option<Recording> {
    let arguments = words.iter().map(Into::into).collect();
    let command = backend::ProgramToStart { arguments, ..backend::ProgramToStart::default() };
    let mut options = TraceOptions::new(TraceTarget::Run(command), calls.parse().unwrap());
    options.backend = Some(backend);
    options.threshold = Duration::ZERO;
    match backend::run(&options, &Arc::new(AtomicBool::new(false))) {
        Ok(outcome) => Some(outcome.recording),
        Err(error @ TraceError::Backend { .. }) => {
            assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {error}");
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// Replaces what differs from run to run: numbers of processes, pipes and sockets.
fn without_numbers(text: &str, recording: &Recording) -> String {
    let mut text = text.to_owned();
    for process in recording.processes.keys() {
        text = text.replace(&format!("({process})"), "(P)");
    }
    for kind in ["pipe:[", "socket:["] {
        if let Some((before, number)) = text.split_once(kind) {
            let rest = number.trim_start_matches(|digit: char| digit.is_ascii_digit());
            text = format!("{before}{kind}N{rest}");
        }
    }
    text
}

fn text(target: &Target, recording: &Recording) -> String {
    let path = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let on = |mount: Option<u32>| {
        let at = mount.and_then(|at| recording.mounts.get(usize::try_from(at).unwrap()));
        at.map_or("nowhere".to_owned(), |mount| path(&mount.point))
    };
    let text = match target {
        Target::File { path: name, mount } => format!("{} on {}", path(name), on(*mount)),
        Target::Files { from, to, mount } => {
            format!("{} to {} on {}", path(from), path(to), on(*mount))
        }
        Target::Socket { peer, request } => format!("socket {peer} asked {request:?}"),
        Target::Display { peer, .. } => format!("display {peer}"),
        Target::Lock { .. } => "lock".to_owned(),
        Target::Child(number, line) => format!("child ({number}) {}", path(line)),
        Target::Other(name) => name.clone(),
    };
    without_numbers(&text, recording)
}

/// Whether the backends were asked to record a call.
fn is_chosen(number: u32) -> bool {
    "blocking".parse::<Set>().unwrap().contains(number)
}

/// What calls worked on, and in which thread: how often each.
fn worked_on(recording: &Recording) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for call in &recording.slow {
        let target = call.target.map_or("nothing".to_owned(), |at| {
            text(&recording.targets[usize::try_from(at.0).unwrap()], recording)
        });
        let thread = &recording.threads[&call.thread];
        let thread = String::from_utf8_lossy(&thread.name);
        // Waits in other calls are sampled when they are long, which is chance.
        let Some(name) = call_name(call.number).filter(|_| is_chosen(call.number)) else {
            continue;
        };
        *all.entry(format!("{name} of {target} by {thread}")).or_default() += 1;
    }
    all
}

/// The sums of files, sockets and the like.
fn sums(recording: &Recording) -> BTreeMap<String, (u64, u64)> {
    let sums = recording.target_totals.iter();
    let sums = sums.filter(|((_, number), _)| is_chosen(*number));
    let sums = sums.map(|((target, number), total)| {
        let target = &recording.targets[usize::try_from(target.0).unwrap()];
        let name = format!("{} of {}", call_name(*number).unwrap(), text(target, recording));
        (name, (total.count, total.errors))
    });
    let mut all = BTreeMap::new();
    for (name, (count, errors)) in sums {
        let sum: &mut (u64, u64) = all.entry(name).or_default();
        *sum = (sum.0 + count, sum.1 + errors);
    }
    all
}

/// Answers whoever connects, until the test ends.
struct Peers {
    unix: PathBuf,
    tcp: u16,
    udp: UdpSocket,
}

impl Peers {
    fn start(dir: &Path) -> Peers {
        let unix = dir.join("listener");
        let listener = UnixListener::bind(&unix).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut bytes = [0; 512];
                while stream.read(&mut bytes).is_ok_and(|count| count > 0) {
                    // Who has closed its end needs no answer.
                    let _gone = stream.write_all(b"y");
                }
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _gone = stream.unwrap().write_all(b"y");
            }
        });
        Peers { unix, tcp, udp: UdpSocket::bind("127.0.0.1:0").unwrap() }
    }
}

/// The sums of a call by all threads: how often it was made, and failed.
fn counted(recording: &Recording, name: &str) -> (u64, u64) {
    let of_name =
        recording.totals.iter().filter(|((_, number), _)| call_name(*number) == Some(name));
    let totals = of_name.map(|(_, total)| total);
    totals
        .fold((0, 0), |(count, errors), total: &Total| (count + total.count, errors + total.errors))
}

#[test]
fn what_the_tracer_does_to_start_the_program_is_not_the_program_s() {
    // Found by `PATH`, which has places before that of the program.
    let path = std::env::var("PATH").unwrap();
    assert!(path.split(':').any(|place| Path::new(place).join("true").exists()), "{path}");
    for backend in [Backend::Seccomp, Backend::Bpf, Backend::Ptrace] {
        let Some(recording) = record(backend, &["true".to_owned()], "execve") else { continue };
        assert_eq!(counted(&recording, "execve"), (1, 0), "{}", backend.name());
        let [first] = &recording.slow[..] else { panic!("{:?}", recording.slow) };
        assert_eq!(first.stack, None, "{}: our own callers are not the program's", backend.name());
        let target = &recording.targets[usize::try_from(first.target.unwrap().0).unwrap()];
        let target = text(target, &recording);
        assert!(target.contains("/true"), "{}: {target}", backend.name());
    }
}

#[test]
fn calls_that_the_program_denies_itself_are_counted_or_told() {
    let dir = tempfile::tempdir().unwrap();
    let program = waiting::build(dir.path(), "edges.c", &["-O1", "-pthread"]);
    let words = [program.to_str().unwrap().to_owned(), "filtered".to_owned()];
    for backend in [Backend::Bpf, Backend::Ptrace, Backend::Seccomp] {
        let Some(recording) = record(backend, &words, "getpgid,getpid,write") else { continue };
        let (count, notes) = (counted(&recording, "getpgid"), recording.notes.join("\n"));
        match backend {
            Backend::Seccomp => assert!(notes.contains("deny themselves calls"), "{notes}"),
            _ => assert_eq!(count, (1, 1), "{}", backend.name()),
        }
        assert_eq!(counted(&recording, "write"), (1, 0), "{}", backend.name());
        // A program without filters is not said to have some.
        let Some(recording) = record(backend, &["/bin/true".to_owned()], "openat") else {
            continue;
        };
        assert!(!recording.notes.join("\n").contains("deny themselves"), "{}", backend.name());
    }
}

#[test]
fn files_sockets_requests_and_threads_have_the_same_names_whoever_records() {
    let dir = tempfile::tempdir().unwrap();
    let peers = Peers::start(dir.path());
    let program = waiting::build(dir.path(), "names.c", &["-O1", "-g", "-pthread"]);
    let udp = peers.udp.local_addr().unwrap().port();
    let mut recordings = Vec::new();
    for backend in [Backend::Seccomp, Backend::Bpf] {
        let place = dir.path().join("place");
        std::fs::create_dir(&place).unwrap();
        let words = [&program, &place, &peers.unix].map(|path| path.to_str().unwrap().to_owned());
        let words = [&words[..], &[peers.tcp.to_string(), udp.to_string()]].concat();
        let Some(recording) = record(backend, &words, "blocking") else { return };
        assert_eq!(recording.lost, 0, "{:?}", recording.notes);
        let exit = recording.processes.values().next().unwrap().exit;
        assert_eq!(exit, Some(unjank_trace::recording::Exit::Code(0)), "{}", backend.name());
        std::fs::remove_dir_all(&place).unwrap();
        recordings.push(recording);
    }
    let [by_seccomp, by_bpf] = &recordings[..] else { panic!("two") };
    let (expected, found) = (worked_on(by_seccomp), worked_on(by_bpf));
    let lacks: Vec<_> = expected.iter().filter(|(name, n)| found.get(*name) != Some(n)).collect();
    let instead: Vec<_> = found.iter().filter(|(name, n)| expected.get(*name) != Some(n)).collect();
    assert!(lacks.is_empty() && instead.is_empty(), "bpf lacks {lacks:#?}, and has {instead:#?}");
    assert_eq!(sums(by_bpf), sums(by_seccomp));

    let has = |words: &str| found.keys().any(|name| name.contains(words));
    for words in [
        &*format!(
            "at {} asked Some(\"org.example.Service /org/example/Object Slow\")",
            peers.unix.display()
        ),
        "/org/example/Object Slower\")",
        &format!("read of socket tcp 127.0.0.1:{} ", peers.tcp),
        &format!("sendto of socket udp 127.0.0.1:{udp} "),
        "connect of socket /nothing/listens/here ",
        "by worker of names",
        "by renamed main",
        "by child of names",
    ] {
        assert!(has(words), "{words} is missing among {found:#?}");
    }
}
