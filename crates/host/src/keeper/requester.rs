//! Finds the process or job at a terminal that requested a command.

use std::ffi::CString;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{Timespec, poll};
use sys::clock::{Clock, SystemClock};
use sys::pidfd::{self, SignalScope};
use sys::process_file;

use crate::identity::{TerminalFile, is_proxy_process};
use crate::keys::{SIGTSTP, SIGTTIN};
use crate::process::{ProcessStat, above, awaited_above, ends_by, ignores};

/// How long the members of a job have to stop before its first one is stopped.
const UNTIL_STOPPED: Duration = Duration::from_secs(1);
/// How often is looked whether they have.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// The longest name of a process, with the end of its line.
const MOST_NAME: u64 = 64;
/// The longest command line that is read: the kernel's limit.
const MOST_LINE: u64 = 6 << 20;

/// The descriptors that are a terminal in the programs that it controls; the last one in Bash.
const TERMINALS: [u32; 4] = [0, 1, 2, 255];

/// The terminal of a caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallerTerminal {
    /// Its device as in `/proc/PID/stat`. Terminals of different sandboxes may have the same.
    pub(super) device: u64,
    /// Its file, by which it is told from those.
    pub(super) file: TerminalFile,
}

impl CallerTerminal {
    /// Returns whether it is the terminal of a process, as its descriptors or those of the leader of its session show.
    fn controls(self, pid: u32, stat: ProcessStat) -> bool {
        let has_it = |pid: &u32| {
            let link = |number| PathBuf::from(format!("/proc/{pid}/fd/{number}"));
            TERMINALS.iter().any(|number| self.file.is_at(&link(number)))
        };
        let leader = u32::try_from(stat.session).ok();
        stat.terminal == self.device && (has_it(&pid) || leader.is_some_and(|pid| has_it(&pid)))
    }
}

/// The requester of a command.
#[derive(Debug)]
pub(super) enum Requester {
    /// A known process.
    Process(u32, OwnedFd),
    /// An unknown process behind a proxy: the job that was in the foreground of the terminal when the command began.
    Job(Job),
}

/// A process group of a session, which a shell calls a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job {
    group: i32,
    session: i32,
}

impl Job {
    fn of(stat: ProcessStat) -> Job {
        Job { group: stat.group, session: stat.session }
    }

    /// Returns whether a process is a member.
    fn has(self, pid: u32) -> bool {
        ProcessStat::of(pid).is_some_and(|stat| Job::of(stat) == self)
    }

    /// Sends a signal to a process that was a member, if it is one still.
    fn signal(self, pid: u32, signal: i32) {
        if let Ok(process) = pidfd::open(pid)
            && self.has(pid)
        {
            // It fails if the process has ended, or belongs to another user.
            let _ = pidfd::signal(process.as_fd(), pid, signal, SignalScope::Process);
        }
    }
}

impl Requester {
    /// Returns the process with this number, if there is one.
    pub(super) fn process(pid: u32) -> Option<Requester> {
        pidfd::open(pid).ok().map(|process| Requester::Process(pid, process))
    }

    /// Returns the newest process at a terminal whose command line ends with these words, as that of the `flatpak-spawn` that
    /// requested them.
    pub(super) fn with_words(terminal: CallerTerminal, words: &[CString]) -> Option<Requester> {
        let there = processes_at(terminal).filter(|(pid, _)| ends_with(*pid, words));
        let (pid, _) = there.max_by_key(|(_, stat)| stat.began)?;
        Requester::process(pid)
    }

    /// Returns the foreground job of a terminal, if the programs there agree about it.
    pub(super) fn in_front(terminal: CallerTerminal) -> Option<Requester> {
        job_in_front(terminal).map(Requester::Job)
    }

    /// Returns the descriptor that reports its end, if there is one.
    pub(super) fn pidfd(&self) -> Option<&OwnedFd> {
        match self {
            Requester::Process(_, process) => Some(process),
            Requester::Job(_) => None,
        }
    }

    /// Returns whether it is a job, of which the requesting member is not known.
    pub(super) fn is_job(&self) -> bool {
        matches!(self, Requester::Job(_))
    }

    /// Returns whether it has ended. The end of a job is not reported: its shell takes the terminal back.
    pub(super) fn has_ended(&self) -> bool {
        self.pidfd().is_some_and(|process| pidfd::has_ended(process).unwrap_or(true))
    }

    /// Returns whether it is in the foreground of the terminal `device`. A process that has left the session of that terminal is where the
    /// process is that waits for it there; if none does, it is in the background.
    pub(super) fn is_in_front(&self, device: u64) -> bool {
        match self {
            Requester::Process(pid, _) => ProcessStat::of(*pid).is_some_and(|own| {
                let seat = if own.terminal == device { Some(own) } else { seat(*pid, device) };
                seat.is_some_and(|seat| seat.group == seat.foreground)
            }),
            // The shell leads the session, and every program in it has the same foreground job.
            Requester::Job(job) => {
                let shell = u32::try_from(job.session).ok().and_then(ProcessStat::of);
                shell.is_some_and(|shell| {
                    let front = Job { group: shell.foreground, session: shell.session };
                    shell.terminal == device && front == *job
                })
            }
        }
    }

    /// Stops the process and, if it is in the foreground of its terminal, its job, as the terminal
    /// would have done.
    ///
    /// The first process of the group is the last to stop, when the others have: it is the one that the shell waits for. The client
    /// of Flatpak stops a while after it was told to, and a shell that was told `fg` meanwhile has it continue before it stops.
    pub(super) fn stop(&self) {
        let Some(job) = self.job_in_its_front() else {
            if let Requester::Process(pid, process) = self {
                // It fails if the process has ended.
                let _ = pidfd::signal(process.as_fd(), *pid, SIGTSTP, SignalScope::Process);
            }
            return;
        };
        let (first, others): (Vec<u32>, Vec<u32>) =
            self.signalled(job).into_iter().partition(|pid| i32::try_from(*pid) == Ok(job.group));
        others.iter().for_each(|pid| job.signal(*pid, SIGTSTP));
        let runs = |pid: &u32| {
            let stat = ProcessStat::of(*pid);
            stat.is_some_and(|stat| Job::of(stat) == job && !stat.is_stopped)
                && !ignores(*pid, SIGTSTP)
        };
        let clock = SystemClock::start();
        while others.iter().any(runs) && clock.monotonic() < UNTIL_STOPPED {
            // Nothing tells of a stop but to the parent of who has stopped.
            let _ = poll(&mut [], Some(&LOOK));
        }
        first.iter().for_each(|pid| job.signal(*pid, SIGTSTP));
    }

    /// Stops its job if that is in the background of the terminal `device`, as the terminal does with one that reads it. A shell with jobs
    /// reports that, and takes it to the foreground on request; in a session without such a shell the kernel stops nobody.
    pub(super) fn stop_for_input(&self, device: u64) {
        let job = match self {
            Requester::Process(pid, _) => ProcessStat::of(*pid).map(Job::of),
            Requester::Job(job) => Some(*job),
        };
        let Some(job) = job else { return };
        // It may come to the foreground meanwhile, and is not to be stopped then.
        let is_behind = |stat: ProcessStat| {
            Job::of(stat) == job && stat.terminal == device && stat.foreground != job.group
        };
        for pid in self.signalled(job) {
            if ProcessStat::of(pid).is_some_and(|stat| is_behind(stat) && !stat.is_stopped) {
                job.signal(pid, SIGTTIN);
            }
        }
    }

    /// Returns the other processes of its job, to which the terminal `device` would send the signals of its keys; none if the job is
    /// not in its foreground.
    pub(super) fn others(&self, device: u64) -> Others {
        let seat = || match self {
            Requester::Process(pid, _) => seat(*pid, device).map(Job::of),
            Requester::Job(_) => None,
        };
        let job = self.job_in_its_front().or_else(seat).filter(|_| self.is_in_front(device));
        let Some(job) = job else {
            return Others { job: None, members: Vec::new(), awaited: None };
        };
        let mut members = self.signalled(job);
        // The client passes signals on to the command, which has had this one. If it cannot be told from others, it receives it with them:
        // behind a proxy, clients with the same words are told apart by guess, and the client of an unknown job by its name.
        let line = |pid: u32| process_file::read(pid, "cmdline", MOST_LINE).unwrap_or_default();
        let is_like_client: &dyn Fn(u32) -> bool = match self {
            Requester::Process(caller, _) => {
                let words = line(*caller);
                &move |pid| pid == *caller || line(pid) == words
            }
            Requester::Job(_) => &|pid| {
                let name = process_file::read(pid, "comm", MOST_NAME).unwrap_or_default();
                name.trim_ascii_end() == b"flatpak-spawn"
            },
        };
        let clients: Vec<u32> =
            members.iter().copied().filter(|pid| is_like_client(*pid)).collect();
        if let [client] = clients[..] {
            members.retain(|pid| *pid != client);
        }
        let client = match self {
            Requester::Process(caller, _) => Some(*caller),
            Requester::Job(_) => clients.first().copied(),
        };
        let awaited = client.and_then(|client| awaited_above(client, |pid| job.has(pid)));
        Others { job: Some(job), members, awaited }
    }

    /// Returns its job; `None` for a process that is in the foreground of no terminal.
    fn job_in_its_front(&self) -> Option<Job> {
        match self {
            Requester::Process(pid, _) => {
                ProcessStat::of(*pid).filter(|own| own.group == own.foreground).map(Job::of)
            }
            Requester::Job(job) => Some(*job),
        }
    }

    /// Returns the members of its job that receive signals: the proxy of a sandbox may be in the job, and the client needs it
    /// to report its stop.
    fn signalled(&self, job: Job) -> Vec<u32> {
        let is_caller = |pid| matches!(self, Requester::Process(caller, _) if *caller == pid);
        let is_signalled =
            |pid: &u32| job.has(*pid) && (is_caller(*pid) || !is_proxy_process(*pid));
        processes().filter(is_signalled).collect()
    }
}

/// The processes of a job without the one that requested the command.
#[derive(Debug)]
pub(super) struct Others {
    job: Option<Job>,
    members: Vec<u32>,
    /// The one that the shell waits for, if that is not the client itself: a script.
    awaited: Option<u32>,
}

impl Others {
    /// Returns whether there is none.
    pub(super) fn are_none(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns whether the shell may take the terminal back because of a signal to them, although the client is still there.
    pub(super) fn may_end_the_job(&self, signal: i32) -> bool {
        self.awaited.is_some_and(|pid| ends_by(pid, signal))
    }

    /// Sends them a signal.
    pub(super) fn signal(&self, signal: i32) {
        if let Some(job) = self.job {
            self.members.iter().for_each(|pid| job.signal(*pid, signal));
        }
    }
}

/// Returns the foreground job of a terminal; `None` if there is none, or if programs name different ones. `None` also for a shell with
/// jobs, which ignores SIGTSTP: the requester is one of them, in the background, or has left the session, and the shell receives what is
/// typed.
fn job_in_front(terminal: CallerTerminal) -> Option<Job> {
    let there: Vec<ProcessStat> = processes_at(terminal).map(|(_, stat)| stat).collect();
    let front = |stat: &ProcessStat| Job { group: stat.foreground, session: stat.session };
    let first = there.first().map(front).filter(|job| job.group > 0)?;
    if u32::try_from(first.group).is_ok_and(|leader| ignores(leader, SIGTSTP)) {
        return None;
    }
    let is_shell = first.group == first.session;
    let fits =
        |stat: &ProcessStat| front(stat) == first && (!is_shell || stat.group == first.group);
    there.iter().all(fits).then_some(first)
}

/// Returns the nearest process above `pid` that the terminal `device` controls, as `setsid --wait` or the outer part of a sandbox. A shell
/// with jobs waits for no process of another session: in a container it may be the parent of all that others have left.
fn seat(pid: u32, device: u64) -> Option<ProcessStat> {
    let (pid, stat) = above(pid).find(|(_, stat)| stat.terminal == device)?;
    (!ignores(pid, SIGTSTP)).then_some(stat)
}

fn ends_with(pid: u32, words: &[CString]) -> bool {
    let Ok(line) = process_file::read(pid, "cmdline", MOST_LINE) else { return false };
    let mut own = line.strip_suffix(&[0]).unwrap_or(&line).rsplit(|byte| *byte == 0);
    // The name of the client stands before them.
    words.iter().rev().all(|word| own.next() == Some(word.as_bytes())) && own.next().is_some()
}

fn processes_at(terminal: CallerTerminal) -> impl Iterator<Item = (u32, ProcessStat)> {
    let there = processes().filter_map(|pid| Some((pid, ProcessStat::of(pid)?)));
    there.filter(move |(pid, stat)| terminal.controls(*pid, *stat))
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};

    /// A shell that leads the session of a terminal of its own.
    struct Session {
        terminal: OwnedFd,
        shell: Child,
        said: String,
        _screen: OwnedFd,
    }

    impl Session {
        /// Runs a script that says something when it is where it should be.
        fn start(script: &str) -> Session {
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
            let screen = openpt(flags).unwrap();
            unlockpt(&screen).unwrap();
            let terminal = ioctl_tiocgptpeer(&screen, flags).unwrap();
            let mut command = Command::new("setsid");
            command.args(["--ctty", "sh", "-mc", script]);
            command.stdin(terminal.try_clone().unwrap()).stdout(Stdio::piped());
            let mut shell = command.spawn().unwrap();
            let mut said = String::new();
            BufReader::new(shell.stdout.take().unwrap()).read_line(&mut said).unwrap();
            Session { terminal, shell, said: said.trim().to_owned(), _screen: screen }
        }

        fn device(&self) -> u64 {
            crate::process::terminal_number(rustix::fs::fstat(&self.terminal).unwrap().st_rdev)
        }

        fn terminal(&self) -> CallerTerminal {
            let file = TerminalFile::of(&self.terminal).unwrap();
            CallerTerminal { device: self.device(), file }
        }
    }

    impl Drop for Session {
        fn drop(&mut self) {
            // Its jobs get the hangup of the terminal.
            let _ = self.shell.kill();
            let _ = self.shell.wait();
        }
    }

    /// A job in front with the words of a command.
    const PLAIN: &str = "sh -c 'echo $$; read wait' client make all; true";

    fn wait_until(is_so: impl Fn() -> bool) {
        let clock = SystemClock::start();
        while !is_so() {
            assert!(clock.monotonic() < Duration::from_secs(50));
            poll(&mut [], Some(&LOOK)).unwrap();
        }
    }

    /// Ends a process that no session ends.
    fn end(requester: &Requester) {
        let process = requester.pidfd().unwrap();
        pidfd::signal(process.as_fd(), 0, 9, SignalScope::Process).unwrap();
    }

    #[test]
    fn a_job_in_front_stands_for_a_process_that_nobody_knows() {
        let session = Session::start("sh -c 'echo $$; read wait'; true");
        let group: i32 = session.said.parse().unwrap();
        let requester = Requester::in_front(session.terminal()).unwrap();
        assert!(matches!(&requester, Requester::Job(job) if job.group == group), "{requester:?}");
        assert!(requester.is_in_front(session.device()) && !requester.has_ended());
        // A shell without jobs is one itself.
        let session = Session::start("exec sh -c 'echo $$; read wait'");
        assert!(Requester::in_front(session.terminal()).is_some_and(|it| it.is_job()));
        let terminal = session.terminal();
        drop(session);
        assert!(Requester::in_front(terminal).is_none());
    }

    #[test]
    fn who_reads_from_the_background_is_stopped_and_nobody_else() {
        for (script, is_stopped) in [
            ("sleep 100 & echo $!; read wait", true),
            // In front, and without a shell that could take it there.
            ("sh -c 'echo $$; exec sleep 100'; true", false),
            ("setsid --fork sh -c 'echo $$; exec sleep 100'; read wait", false),
        ] {
            let session = Session::start(script);
            let pid: u32 = session.said.parse().unwrap();
            let requester = Requester::process(pid).unwrap();
            requester.stop_for_input(session.device());
            let stopped = || ProcessStat::of(pid).unwrap().is_stopped;
            if is_stopped {
                wait_until(stopped);
            }
            assert_eq!(stopped(), is_stopped, "{script}");
            end(&requester);
        }
    }

    #[test]
    fn who_takes_long_to_stop_has_stopped_before_the_shell_hears_of_it() {
        let slow = r#"$SIG{TSTP} = sub { select(undef, undef, undef, 0.3); kill STOP => $$ }; $| = 1; print "$$\n"; sleep 1 while 1"#;
        let slow = slow.replace('$', "\\$").replace('"', "\\\"");
        // The shell that hears of it stays: with it its terminal would go, and the job.
        let session = Session::start(&format!("sh -c \"perl -e '{slow}'; true\"; read wait"));
        let pid: u32 = session.said.parse().unwrap();
        let first = ProcessStat::of(pid).unwrap().parent;
        Requester::in_front(session.terminal()).unwrap().stop();
        let [slow, first] = [pid, first].map(|pid| ProcessStat::of(pid).unwrap());
        assert!(slow.group == first.group && slow.is_stopped, "{slow:?} of {first:?}");
    }

    #[test]
    fn who_ignores_a_stop_is_not_waited_for() {
        let session = Session::start(
            "sh -c \"trap '' TSTP; perl -e '\\$| = 1; print qq(\\$\\$\\n); sleep 1 while 1'; true\"; true",
        );
        let pid: u32 = session.said.parse().unwrap();
        assert!(ignores(pid, SIGTSTP) && !ignores(std::process::id(), SIGTSTP), "{}", session.said);
    }

    #[test]
    fn a_shell_with_jobs_keeps_what_is_typed() {
        let session = Session::start("echo $$; read wait");
        assert!(Requester::in_front(session.terminal()).is_none());
        let session = Session::start("sleep 100 & echo $!; read wait");
        assert!(Requester::in_front(session.terminal()).is_none());
        // No hangup reaches a job in the background.
        let pid = rustix::process::Pid::from_raw(session.said.parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    #[test]
    fn who_has_left_the_session_is_in_front_only_while_a_process_there_waits_for_it() {
        let asks = r#"sh -c "echo \$\$; exec sleep 1000""#;
        let session = Session::start(&format!("setsid --wait {asks}; true"));
        let device = session.device();
        let requester = Requester::process(session.said.parse().unwrap()).unwrap();
        assert!(requester.is_in_front(device));
        let others = requester.others(device);
        assert!(!others.are_none() && others.may_end_the_job(2), "{others:?}");
        others.signal(2);
        wait_until(|| !requester.is_in_front(device));
        end(&requester);
        // The shell is in front, and waits for nobody.
        let session = Session::start(&format!("setsid --fork {asks}; read wait"));
        let requester = Requester::process(session.said.parse().unwrap()).unwrap();
        wait_until(|| !requester.is_in_front(session.device()));
        end(&requester);
    }

    #[test]
    fn a_process_is_found_by_the_words_that_it_asked_for() {
        let session = Session::start(PLAIN);
        let words = |text: &str| -> Vec<CString> {
            text.split(' ').map(|word| CString::new(word).unwrap()).collect()
        };
        let found = |text| Requester::with_words(session.terminal(), &words(text));
        let pid: u32 = session.said.parse().unwrap();
        assert!(matches!(found("make all"), Some(Requester::Process(found, _)) if found == pid));
        assert!(found("make some").is_none());
        let other = CallerTerminal { device: session.device() + 1, ..session.terminal() };
        assert!(Requester::with_words(other, &words("make all")).is_none());
    }

    #[test]
    fn a_terminal_of_another_sandbox_with_the_same_number_is_another() {
        let (session, other) = (Session::start(PLAIN), Session::start(PLAIN));
        let words = [c"make".to_owned(), c"all".to_owned()];
        let of =
            |terminal| (Requester::in_front(terminal), Requester::with_words(terminal, &words));
        assert!(matches!(of(session.terminal()), (Some(_), Some(_))));
        let same_number = CallerTerminal { device: session.device(), ..other.terminal() };
        assert!(matches!(of(same_number), (None, None)));
    }
}
