//! Starts a program with exactly the descriptors, environment and directory that it is to have, without copying our memory.

mod apart;

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::Rlimit;

pub use self::apart::keep_apart;
use self::apart::{ChildEnd, Way};

/// The group and session of a program.
#[derive(Clone, Copy, Debug)]
pub enum ProcessGroup<'a> {
    /// A session of its own, of which it is the leader.
    OwnSession,
    /// A process group of its own in our session.
    OwnGroup,
    /// The same, in the foreground of this terminal before the program begins, unless that is closed. Other descriptors have to go along.
    InFront(BorrowedFd<'a>),
}

/// What becomes of descriptors from 3 on that a program is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherDescriptors {
    /// They are closed, also what another thread of ours has got in this moment from somebody who does not say
    /// `O_CLOEXEC`.
    Closed,
    /// Those that are not closed on exec go along.
    GoAlong,
}

/// The file that is executed.
#[derive(Clone, Copy, Debug)]
pub enum LaunchedFile<'a> {
    /// Whatever is at this path then; a relative one is looked for in the directory of the launch.
    Path(&'a CStr),
    /// This very file, whatever its path leads to by now. The descriptor has to be above all numbers that the program gets.
    ///
    /// The interpreter of a script gets it as `/dev/fd/N`, and the descriptor stays open for it.
    File(BorrowedFd<'a>),
}

/// A program to start. It begins with all signals at their defaults and none blocked.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The file.
    pub program: LaunchedFile<'a>,
    /// Its arguments, its name first.
    pub arguments: &'a [CString],
    /// Its environment, `NAME=value` each.
    pub environment: &'a [CString],
    /// Where it starts; where we are if there is none.
    pub directory: Option<BorrowedFd<'a>>,
    /// Its descriptors: ours, and the numbers that they get. Ours have to be above all of those numbers; see [`above`].
    pub descriptors: &'a [(BorrowedFd<'a>, RawFd)],
    /// The other ones, but for the standard ones, which are ours.
    pub others: OtherDescriptors,
    /// Its session.
    pub place: ProcessGroup<'a>,
    /// How many descriptors it may have (`RLIMIT_NOFILE`); ours if there is none.
    pub open_files: Option<Rlimit>,
}

/// A program that was started.
#[derive(Debug)]
pub struct Child {
    /// Its number, which stays its own until [`crate::pidfd::reap`] has returned its end.
    pub pid: u32,
    /// The process itself.
    pub pidfd: OwnedFd,
}

/// Makes another descriptor of the same file whose number is `least` or more; closed on exec.
///
/// # Errors
///
/// As `fcntl(2)`: `EINVAL` if no process may have such a number, `EMFILE` if all are taken.
pub fn above(descriptor: BorrowedFd<'_>, least: RawFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(descriptor, least)?)
}

/// Keeps every descriptor from `least` on from the programs that we start, unless they are given it.
///
/// # Errors
///
/// As `close_range(2)`: the kernel is older than 5.11.
pub fn close_on_exec(least: u32) -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
    // SAFETY: sets a flag of descriptors; none is closed.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, least, u32::MAX, CLOSE_RANGE_CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes a descriptor that this process was started with and that nobody else in it knows of; `number` itself is closed on exec.
///
/// # Errors
///
/// `EBADF`: there is none of this number.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: makes another descriptor of whatever the number is, which stays.
    let made = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: sets a flag of a descriptor that was just seen to be there.
    unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    // SAFETY: the kernel made it for us just now; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Closes every descriptor that programs which we start would get unasked: who was started with them for such a program
/// has no use for them once it runs. The standard ones are empty afterwards.
///
/// # Errors
///
/// There is no `/dev/null` or `/proc`.
pub fn close_given() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let numbers: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in numbers {
        // SAFETY: asks for a flag; a number without a descriptor is an error.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
            // SAFETY: everything that Rust opens is closed on exec, so that nothing in this process owns this one.
            unsafe { libc::close(number) };
        }
    }
    Ok(())
}

/// Starts a program. When this returns it runs, or it never will.
///
/// The calling thread waits until the kernel has read the program, for as long as the file system of that takes.
/// Memory is shared until then and not copied.
///
/// # Errors
///
/// As `execve(2)`, `fork(2)` and `fchdir(2)`; `InvalidInput` if a descriptor of ours is not above all of its numbers.
pub fn launch(wanted: &Launch<'_>) -> io::Result<Child> {
    let highest = wanted.descriptors.iter().map(|(_, target)| *target).max().unwrap_or(-1);
    let too_low = match wanted.program {
        LaunchedFile::File(file) => file.as_raw_fd() <= highest,
        LaunchedFile::Path(_) => false,
    };
    let is_low =
        |(ours, target): &(BorrowedFd<'_>, RawFd)| ours.as_raw_fd() <= highest || *target < 0;
    if too_low || wanted.descriptors.iter().any(is_low) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (arguments, environment) = (pointers(wanted.arguments), pointers(wanted.environment));
    // Those that are given, the directory, the file.
    let mut needed: Vec<BorrowedFd<'_>> =
        wanted.descriptors.iter().map(|(ours, _)| *ours).collect();
    needed.extend(wanted.directory);
    if let LaunchedFile::File(file) = wanted.program {
        needed.push(file);
    }
    let is_closed = wanted.others == OtherDescriptors::Closed;
    let way = is_closed.then(|| Way::with(&needed)).flatten();
    let plan = Plan {
        wanted,
        way: way.as_ref().map(Way::child_end),
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
        error: AtomicI32::new(0),
    };
    // Sixteen bytes each: what the processor wants a stack to be aligned to.
    let mut stack: Vec<MaybeUninit<u128>> = Vec::with_capacity(STACK_BYTES / 16);
    // SAFETY: one past the end of the memory that was allocated, which is where a stack begins.
    let top = unsafe { stack.as_mut_ptr().add(stack.capacity()) };
    let mut process: RawFd = -1;
    // A handler of ours must not run in the child, which shares our memory.
    let blocked = BlockedSignals::all();
    let table = if way.is_some() { libc::CLONE_FILES } else { 0 };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD | table;
    // SAFETY: this thread is suspended until the child has executed a program or ended, so that `plan` and `stack` outlive
    // its use of them; `become_program` makes system calls only and unwinds never.
    let pid = unsafe {
        libc::clone(
            become_program,
            top.cast(),
            flags,
            (&raw const plan).cast_mut().cast(),
            &raw mut process,
            ptr::null_mut::<libc::c_void>(),
            ptr::null_mut::<libc::c_void>(),
        )
    };
    let failed = (pid < 0).then(io::Error::last_os_error);
    drop(blocked);
    drop(way);
    if let Some(error) = failed {
        return Err(error);
    }
    // SAFETY: the kernel made this descriptor for us just now; nobody else has it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(process) };
    let error = plan.error.load(Ordering::Acquire);
    if error != 0 {
        // Its end is nobody else's, and has come or will at once.
        let _ = crate::pidfd::wait_readable(pidfd.as_fd());
        let _ = crate::pidfd::reap(pidfd.as_fd());
        return Err(io::Error::from_raw_os_error(error));
    }
    Ok(Child { pid: pid.unsigned_abs(), pidfd })
}

/// The stack of a child that has not become its program yet: it calls nothing that needs more than a page of it.
const STACK_BYTES: usize = 64 << 10;
/// Signals have numbers from 1 to this, and so many bits in a set.
const SIGNALS: usize = 64;

/// What the child does before the program begins, and what came of it.
struct Plan<'a> {
    wanted: &'a Launch<'a>,
    /// Where the child, which has no descriptors else, receives those that it is to have.
    way: Option<ChildEnd>,
    arguments: *const *mut libc::c_char,
    environment: *const *mut libc::c_char,
    /// Why the program could not be executed; 0 if nothing was told.
    error: AtomicI32,
}

/// The child of [`launch`], in our memory and with a descriptor table, signal handlers and limits of its own.
extern "C" fn become_program(plan: *mut libc::c_void) -> libc::c_int {
    let plan = plan.cast::<Plan<'_>>();
    // SAFETY: the parent gave its own plan and waits until we have ended or executed.
    let plan = unsafe { &*plan };
    plan.error.store(plan.carry_out(), Ordering::Release);
    // SAFETY: ends the child at once; nothing of the parent's is flushed or dropped.
    unsafe { libc::_exit(127) }
}

impl Plan<'_> {
    /// Returns only if something failed, and what. Allocates nothing and takes no lock: other threads of ours go on.
    fn carry_out(&self) -> libc::c_int {
        let wanted = self.wanted;
        let mut received = [-1; 250];
        if let Some(way) = self.way {
            let highest = wanted.descriptors.iter().map(|(_, target)| *target).max().unwrap_or(2);
            // Before anything else: until then the table is the parent's.
            if let Err(error) = way.receive(highest.max(2) + 1, &mut received) {
                return error;
            }
        }
        let own = |at: usize, ours: RawFd| if self.way.is_some() { received[at] } else { ours };
        let given = wanted.descriptors.len();
        reset_handlers();
        let placed = match wanted.place {
            // SAFETY: takes nothing, and acts on the child alone.
            ProcessGroup::OwnSession => unsafe { libc::setsid() },
            // SAFETY: takes numbers, and acts on the child alone.
            ProcessGroup::OwnGroup | ProcessGroup::InFront(_) => unsafe { libc::setpgid(0, 0) },
        };
        if placed < 0 {
            return errno();
        }
        if let ProcessGroup::InFront(terminal) = wanted.place {
            // All signals are blocked, also the one that stops who does this from the background.
            let group = std::process::id().cast_signed();
            // SAFETY: takes numbers; the descriptor is in the child's copy of the parent's table.
            unsafe { libc::tcsetpgrp(terminal.as_raw_fd(), group) };
        }
        if let Some(directory) = wanted.directory {
            // SAFETY: takes a descriptor that the parent holds open, or that the child received.
            if unsafe { libc::fchdir(own(given, directory.as_raw_fd())) } < 0 {
                return errno();
            }
        }
        if wanted.others == OtherDescriptors::Closed
            && let Err(error) = close_on_exec(3)
        {
            return error.raw_os_error().unwrap_or(libc::EINVAL);
        }
        for (at, (ours, target)) in wanted.descriptors.iter().enumerate() {
            // SAFETY: takes numbers; the table is the child's own, and no target is one of those that it has.
            if unsafe { libc::dup2(own(at, ours.as_raw_fd()), *target) } < 0 {
                return errno();
            }
        }
        if let Some(limit) = &wanted.open_files {
            let value = |of: Option<u64>| of.unwrap_or(libc::RLIM_INFINITY);
            let limit =
                libc::rlimit { rlim_cur: value(limit.current), rlim_max: value(limit.maximum) };
            // SAFETY: reads the limits; they are of the child's process alone.
            if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } < 0 {
                return errno();
            }
        }
        set_mask(0);
        match wanted.program {
            LaunchedFile::Path(path) => self.execute_path(path),
            LaunchedFile::File(file) => {
                let at = given + usize::from(wanted.directory.is_some());
                self.execute_file(own(at, file.as_raw_fd()));
            }
        }
        errno()
    }

    fn execute_path(&self, path: &CStr) {
        // SAFETY: the path ends with a zero byte, and both arrays with a null.
        unsafe {
            libc::execve(
                path.as_ptr(),
                self.arguments.cast::<*const libc::c_char>(),
                self.environment.cast::<*const libc::c_char>(),
            )
        };
    }

    fn execute_file(&self, file: RawFd) {
        self.execute_open(file);
        if errno() == libc::ENOENT {
            // A script, whose interpreter cannot open what is closed by then (execveat(2)).
            // SAFETY: sets a flag of a descriptor in the child's own table.
            unsafe { libc::fcntl(file, libc::F_SETFD, 0) };
            self.execute_open(file);
        }
    }

    fn execute_open(&self, file: RawFd) {
        // SAFETY: the descriptor is open, the path empty, and both arrays end with a null.
        unsafe {
            libc::syscall(
                libc::SYS_execveat,
                file,
                c"".as_ptr(),
                self.arguments,
                self.environment,
                libc::AT_EMPTY_PATH,
            )
        };
    }
}

fn errno() -> libc::c_int {
    // SAFETY: takes nothing and returns the place of the thread's own error number.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the child shares it with the suspended parent.
    unsafe { *place }
}

/// Sets every signal to its default, also those that libc keeps for itself, which its own functions leave out.
fn reset_handlers() {
    // As the kernel has it: handler, flags, restorer, mask.
    let default = [0_u64; 4];
    for signal in 1..=SIGNALS {
        // SAFETY: reads the action, which has no handler; the two that cannot be changed are an error without effect.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                ptr::null_mut::<libc::c_void>(),
                SIGNALS / 8,
            )
        };
    }
}

/// Sets which signals this thread blocks, a bit each, and returns which it did.
fn set_mask(mask: u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: reads one set and writes the other, both of the size that is said.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            &raw mut before,
            SIGNALS / 8,
        )
    };
    before
}

/// All signals blocked in this thread, libc's own too, until it is dropped.
struct BlockedSignals(u64);

impl BlockedSignals {
    fn all() -> BlockedSignals {
        BlockedSignals(set_mask(u64::MAX))
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        set_mask(self.0);
    }
}

fn pointers(strings: &[CString]) -> Vec<*mut libc::c_char> {
    let ends = std::iter::once(ptr::null_mut());
    strings.iter().map(|string| string.as_ptr().cast_mut()).chain(ends).collect()
}

/// Makes a set of signals by one of libc's two ways to begin one.
pub(crate) fn signal_set(
    begin: unsafe extern "C" fn(*mut libc::sigset_t) -> libc::c_int,
) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both ways write the whole set and nothing else, and cannot fail.
    unsafe { begin(set.as_mut_ptr()) };
    // SAFETY: it is written; zeros would be a set, too.
    unsafe { set.assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pidfd::{self, ProcessEnd};
    use std::io::Read;

    /// Set in the copy of this test program that starts programs apart from descriptors of others.
    const APART: &str = "UNJANK_TEST_APART";

    #[test]
    fn programs_start_the_same_way_apart_from_the_descriptors_of_others() {
        #[expect(clippy::disallowed_methods, reason = "the test tells its copy what it is")]
        let is_copy = std::env::var_os(APART).is_some();
        if is_copy {
            keep_apart().unwrap();
            // Numbers of others begin above those that are ours.
            let other = File::open("/dev/null").unwrap();
            assert!(other.as_raw_fd() >= 64);
            let places = apart::free_places();
            assert!(places > 32, "{places}");
            a_program_has_what_it_was_given_and_nothing_else();
            a_program_that_cannot_start_is_an_error();
            the_file_that_was_opened_runs_and_not_what_its_path_leads_to_by_then();
            assert_eq!(apart::free_places(), places, "a place was lost");
            return;
        }
        let name =
            "launch::tests::programs_start_the_same_way_apart_from_the_descriptors_of_others";
        let mut copy = std::process::Command::new(std::env::current_exe().unwrap());
        copy.args(["--test-threads=1", "--nocapture", "--exact", name]).env(APART, "1");
        let output = copy.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn words(words: &[&str]) -> Vec<CString> {
        words.iter().map(|word| CString::new(*word).unwrap()).collect()
    }

    /// Runs a shell with these descriptors; its output is what comes at `out`.
    fn shell(script: &str, descriptors: &[(BorrowedFd<'_>, RawFd)]) -> io::Result<Child> {
        let temporary = rustix::fs::open("/tmp", rustix::fs::OFlags::PATH, 0.into()).unwrap();
        launch(&Launch {
            program: LaunchedFile::Path(c"/bin/sh"),
            arguments: &words(&["sh", "-c", script]),
            environment: &words(&["WORD=said"]),
            directory: Some(temporary.as_fd()),
            descriptors,
            others: OtherDescriptors::Closed,
            place: ProcessGroup::OwnSession,
            open_files: None,
        })
    }

    fn end(child: &Child) -> ProcessEnd {
        pidfd::wait_readable(child.pidfd.as_fd()).unwrap();
        pidfd::reap(child.pidfd.as_fd()).unwrap().unwrap()
    }

    #[test]
    fn a_program_has_what_it_was_given_and_nothing_else() {
        // Somebody who does not say O_CLOEXEC, and whoever runs the tests may have left some open, too.
        let stray = rustix::fs::open("/tmp", rustix::fs::OFlags::PATH, 0.into()).unwrap();
        assert!(rustix::io::fcntl_getfd(&stray).unwrap().is_empty());
        let (read, write) = std::io::pipe().unwrap();
        let descriptors: Vec<(OwnedFd, RawFd)> =
            [1, 40, 7].map(|target| (above(write.as_fd(), 41).unwrap(), target)).into();
        let script = "echo $WORD $PWD; ls /proc/self/fd | tr '\\n' ' '; trap | wc -l; \
                      while read -r name value; do case $name in \
                        SigBlk:|SigIgn:) echo $name $value;; esac; done </proc/$$/status; \
                      set -- $(cat /proc/$$/stat); test $5 = $$ -a $6 = $$ && echo leads; exit 3";
        let given: Vec<_> =
            descriptors.iter().map(|(ours, target)| (ours.as_fd(), *target)).collect();
        let child = shell(script, &given).unwrap();
        drop((write, descriptors));
        let mut text = String::new();
        File::from(OwnedFd::from(read)).read_to_string(&mut text).unwrap();
        assert_eq!(end(&child).wait_status, 3 << 8);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "said /tmp");
        // `ls` has its own directory open as the first free number.
        let open: Vec<&str> = lines[1].split_whitespace().collect();
        assert!(["1", "7", "40"].iter().all(|fd| open.contains(fd)), "{open:?}");
        assert!(
            open.iter().all(|fd| fd.parse::<u32>().is_err() || fd.parse::<u32>().unwrap() < 41)
        );
        assert_eq!(lines[2].split_whitespace().last(), Some("0000000000000000"), "{text}");
        assert_eq!(lines[3].split_whitespace().last(), Some("0000000000000000"), "{text}");
        assert_eq!(lines[4], "leads");
    }

    #[test]
    fn a_program_that_cannot_start_is_an_error() {
        let missing = Launch {
            program: LaunchedFile::Path(c"/nowhere/at/all"),
            arguments: &words(&["x"]),
            environment: &[],
            directory: None,
            descriptors: &[],
            others: OtherDescriptors::Closed,
            place: ProcessGroup::OwnGroup,
            open_files: None,
        };
        assert_eq!(launch(&missing).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        let directory = Launch { program: LaunchedFile::Path(c"/tmp"), ..missing };
        assert_eq!(launch(&directory).unwrap_err().raw_os_error(), Some(libc::EACCES));
        let stdin = above(std::io::stdin().as_fd(), 3).unwrap();
        let low = [(stdin.as_fd(), 5000)];
        let low =
            Launch { program: LaunchedFile::Path(c"/bin/true"), descriptors: &low, ..missing };
        assert_eq!(launch(&low).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    /// Starts a program with one descriptor for what it says, and returns that and its end.
    fn said(program: LaunchedFile<'_>, open_files: Option<Rlimit>) -> (String, i32) {
        let (mut read, write) = std::io::pipe().unwrap();
        let output = above(write.as_fd(), 3).unwrap();
        drop(write);
        let child = launch(&Launch {
            program,
            arguments: &words(&["sh", "-c", "echo runs; ulimit -Sn"]),
            environment: &[],
            directory: None,
            descriptors: &[(output.as_fd(), 1)],
            others: OtherDescriptors::Closed,
            place: ProcessGroup::OwnSession,
            open_files,
        });
        let child = child.unwrap();
        drop(output);
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        (text, end(&child).wait_status)
    }

    #[test]
    fn the_file_that_was_opened_runs_and_not_what_its_path_leads_to_by_then() {
        use rustix::fs::{OFlags, open};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        for (real, wanted) in [("/bin/sh", "runs\n"), ("script", "script\n")] {
            let _ = std::fs::remove_file(&path);
            let real = if real == "script" {
                let script = dir.path().join("script");
                let made = std::process::Command::new("sh")
                    .args(["-c", "printf '#!/bin/sh\necho script\n' >\"$0\"; chmod 755 \"$0\""])
                    .arg(&script)
                    .status();
                assert!(made.unwrap().success());
                script
            } else {
                real.into()
            };
            std::os::unix::fs::symlink(real, &path).unwrap();
            let file = open(&path, OFlags::PATH | OFlags::CLOEXEC, 0.into()).unwrap();
            std::fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink("/bin/false", &path).unwrap();
            let (text, status) = said(LaunchedFile::File(file.as_fd()), None);
            assert!(text.starts_with(wanted) && status == 0, "{text} {status}");
        }
        let directory = open("/tmp", OFlags::PATH | OFlags::CLOEXEC, 0.into()).unwrap();
        let refused = launch(&Launch {
            program: LaunchedFile::File(directory.as_fd()),
            arguments: &words(&["x"]),
            environment: &[],
            directory: None,
            descriptors: &[],
            others: OtherDescriptors::Closed,
            place: ProcessGroup::OwnSession,
            open_files: None,
        });
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EACCES));
    }

    #[test]
    fn a_program_gets_the_limit_of_descriptors_that_it_is_given() {
        let limit = Rlimit { current: Some(57), maximum: Some(1000) };
        assert_eq!(said(LaunchedFile::Path(c"/bin/sh"), Some(limit)).0, "runs\n57\n");
        let own = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap();
        assert_eq!(said(LaunchedFile::Path(c"/bin/sh"), None).0, format!("runs\n{own}\n"));
    }
}
