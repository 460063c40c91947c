//! A keeper of a directory that imitates a cgroup, by a clock that is set.

use std::fs;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use super::*;

#[derive(Debug, Default)]
struct SetClock(AtomicU64);

impl Clock for SetClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

fn options(directory: &Path) -> KeeperOptions {
    let control_socket = directory.join("control");
    KeeperOptions {
        command: Vec::new(),
        subject: JobProcesses::Found(Processes::Cgroup(Cgroup::imitated_by(directory))),
        limits: ControllerLimits::default(),
        pauses: HoldPolicy::WhenAsked,
        disks: Vec::new(),
        issued: None,
        outside: None,
        mailbox: None,
        launches: None,
        control_socket: Some(PrivateSocket::listen_at(control_socket).unwrap()),
    }
}

/// A keeper of a directory that imitates a cgroup, the channel to it and its control socket.
struct KeptDirectory<'t> {
    channel: OwnedFd,
    control_socket: &'t Path,
}

impl KeptDirectory<'_> {
    fn run(directory: &Path, clock: &SetClock, test: impl FnOnce(&KeptDirectory<'_>)) {
        KeptDirectory::run_with(options(directory), clock, directory, test);
    }

    fn run_with(
        options: KeeperOptions,
        clock: &SetClock,
        directory: &Path,
        test: impl FnOnce(&KeptDirectory<'_>),
    ) {
        let control_socket = directory.join("control");
        let (ours, theirs) = socket::pair().unwrap();
        std::thread::scope(|scope| {
            sys::thread::spawn_scoped(scope, "keeper", move || keep(options, &theirs, clock))
                .unwrap();
            let kept = KeptDirectory { channel: ours, control_socket: &control_socket };
            kept.send(KeeperCommand::Started(1));
            test(&kept);
        });
    }

    fn send(&self, command: KeeperCommand) {
        send(&self.channel, &command).unwrap();
    }

    fn ask(&self, request: ControlRequest) -> JobStatus {
        loop {
            // On a busy machine an answer may come too late.
            if let Ok(status) = ask(self.control_socket, request) {
                return status;
            }
        }
    }
}

#[test]
fn what_cannot_be_held_does_not_count_as_held() {
    let directory = tempfile::tempdir().unwrap();
    // Nobody writes a directory, whoever he is.
    fs::create_dir(directory.path().join("cgroup.freeze")).unwrap();
    KeptDirectory::run(directory.path(), &SetClock::default(), |kept| {
        let status = kept.ask(ControlRequest::Pause);
        assert!(status.paused && !status.watched.held, "{status:?}");
    });
}

#[test]
fn a_signal_lets_a_paused_job_run_for_a_while_only() {
    let directory = tempfile::tempdir().unwrap();
    let freezer = directory.path().join("cgroup.freeze");
    fs::File::options().write(true).create_new(true).open(&freezer).unwrap();
    let clock = SetClock::default();
    KeptDirectory::run(directory.path(), &clock, |kept| {
        let is_frozen = || {
            // The second answer comes after a sample.
            kept.ask(ControlRequest::Status);
            let status = kept.ask(ControlRequest::Status);
            let frozen = fs::read_to_string(&freezer).unwrap() == "1";
            assert_eq!((status.paused, status.watched.held), (true, frozen));
            frozen
        };
        kept.ask(ControlRequest::Pause);
        assert!(is_frozen());
        for signal in [0, 5000] {
            clock.0.store(signal, Ordering::SeqCst);
            kept.send(KeeperCommand::Wake);
            assert!(!is_frozen());
            clock.0.store(signal + 1990, Ordering::SeqCst);
            assert!(!is_frozen());
            clock.0.store(signal + 2020, Ordering::SeqCst);
            assert!(is_frozen());
        }
    });
}

#[test]
fn a_job_with_a_long_command_line_answers() {
    let long = |word: &str| vec![word.to_owned(); 200_000 / word.len().max(1)];
    let words = [
        long("/usr/share/doc"),
        long(""),
        long("\u{1}\u{1f}"),
        long("ä\"\\\n"),
        long(&"x".repeat(100_000)),
    ];
    for mut command in words {
        command.insert(0, "ls".to_owned());
        let directory = tempfile::tempdir().unwrap();
        let options = KeeperOptions { command: command.clone(), ..options(directory.path()) };
        KeptDirectory::run_with(options, &SetClock::default(), directory.path(), |kept| {
            // An answer that nobody can read is none.
            let status = ask(kept.control_socket, ControlRequest::Status);
            let status = match status {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    kept.ask(ControlRequest::Status)
                }
                other => other.unwrap(),
            };
            let (last, first) = status.command.split_last().unwrap();
            assert_eq!(last, "…");
            assert!(!first.is_empty() && command.starts_with(first));
        });
    }
    assert_eq!(beginning(vec!["a".to_owned(), "b c".to_owned()]), ["a", "b c"]);
}

#[test]
fn what_comes_to_the_foreground_of_a_terminal_is_held_only_when_a_person_asks() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::process::{Command, Stdio};
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    // The leader of a session gets the terminal that it opens first.
    let script = "exec <\"$0\"; echo; exec sleep 1000";
    let mut command = Command::new("setsid");
    command.args(["sh", "-c", script, name.to_str().unwrap()]).stdin(Stdio::null());
    let Ok(mut program) = command.stdout(Stdio::piped()).spawn() else {
        eprintln!("SKIPPED: no setsid");
        return;
    };
    let mut line = [0; 1];
    io::Read::read_exact(program.stdout.as_mut().unwrap(), &mut line).unwrap();
    let processes = Processes::Below { top: program.id(), counted: Counted::Yes, except: 0 };
    assert!(processes.is_in_foreground());
    let directory = tempfile::tempdir().unwrap();
    let (launches, theirs) = socket::pair().unwrap();
    let options = KeeperOptions {
        subject: JobProcesses::Found(processes),
        pauses: HoldPolicy::WhileOthersWait,
        launches: Some(theirs),
        ..options(directory.path())
    };
    let clock = SetClock::default();
    KeptDirectory::run_with(options, &clock, directory.path(), |kept| {
        kept.ask(ControlRequest::Status);
        socket::send(&launches, b"l", None, socket::Full::Fail).unwrap();
        // The second answer comes after the launch was handled.
        kept.ask(ControlRequest::Status);
        assert!(!kept.ask(ControlRequest::Status).watched.held);
        assert!(kept.ask(ControlRequest::Pause).watched.held);
        kept.ask(ControlRequest::Resume);
    });
    program.kill().unwrap();
    program.wait().unwrap();
}
