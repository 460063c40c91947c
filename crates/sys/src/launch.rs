//! Starts a program with exactly the descriptors, environment and directory that it is to have, without copying our memory.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The group and session of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A session of its own, of which it is the leader.
    OwnSession,
    /// A process group of its own in our session.
    OwnGroup,
}

/// A program to start. It begins with all signals at their defaults and none blocked.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The file; a relative one is looked for in `directory`.
    pub program: &'a CStr,
    /// Its arguments, its name first.
    pub arguments: &'a [CString],
    /// Its environment, `NAME=value` each.
    pub environment: &'a [CString],
    /// Where it starts; where we are if there is none.
    pub directory: Option<BorrowedFd<'a>>,
    /// Its descriptors: ours, and the numbers that they get. Ours have to be above all of those numbers; see [`above`].
    /// Others of ours go along unless they are closed on exec; see [`close_on_exec`].
    pub descriptors: &'a [(OwnedFd, RawFd)],
    /// Its session.
    pub place: Place,
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
/// # Errors
///
/// As `execve(2)`, `fork(2)` and `fchdir(2)`; `InvalidInput` if a descriptor of ours is not above all of its numbers.
pub fn launch(wanted: &Launch<'_>) -> io::Result<Child> {
    let highest = wanted.descriptors.iter().map(|(_, target)| *target).max().unwrap_or(-1);
    if wanted.descriptors.iter().any(|(ours, target)| ours.as_raw_fd() <= highest || *target < 0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut actions = Actions::new()?;
    if let Some(directory) = wanted.directory {
        actions.change_directory(directory)?;
    }
    for (ours, target) in wanted.descriptors {
        actions.duplicate(ours.as_raw_fd(), *target)?;
    }
    let attributes = Attributes::new(wanted.place)?;
    let arguments = pointers(wanted.arguments);
    let environment = pointers(wanted.environment);
    let mut pid = 0;
    // SAFETY: everything that is pointed to lives until the call returns; the arrays end with a null and hold
    // strings that end with zero bytes.
    let failed = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            wanted.program.as_ptr(),
            &raw const actions.0,
            &raw const attributes.0,
            arguments.as_ptr(),
            environment.as_ptr(),
        )
    };
    check(failed)?;
    let process = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    // Our own child, of which nobody has taken the end yet: the number is its own.
    let pidfd = pidfd_open(process, PidfdFlags::empty())?;
    Ok(Child { pid: pid.unsigned_abs(), pidfd })
}

fn pointers(strings: &[CString]) -> Vec<*mut libc::c_char> {
    let ends = std::iter::once(ptr::null_mut());
    strings.iter().map(|string| string.as_ptr().cast_mut()).chain(ends).collect()
}

fn check(error: libc::c_int) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// What the child does before the program begins.
struct Actions(libc::posix_spawn_file_actions_t);

impl Actions {
    fn new() -> io::Result<Actions> {
        let mut made = MaybeUninit::uninit();
        // SAFETY: the call fills in what it is pointed to.
        check(unsafe { libc::posix_spawn_file_actions_init(made.as_mut_ptr()) })?;
        // SAFETY: the call succeeded.
        Ok(Actions(unsafe { made.assume_init() }))
    }

    fn duplicate(&mut self, ours: RawFd, target: RawFd) -> io::Result<()> {
        // SAFETY: adds to what was initialised.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(&raw mut self.0, ours, target) })
    }

    fn change_directory(&mut self, directory: BorrowedFd<'_>) -> io::Result<()> {
        let directory = directory.as_raw_fd();
        // SAFETY: adds to what was initialised.
        check(unsafe { libc::posix_spawn_file_actions_addfchdir_np(&raw mut self.0, directory) })
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: it was initialised, and is not used again.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.0) };
    }
}

/// How the child begins.
struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn new(place: Place) -> io::Result<Attributes> {
        let mut made = MaybeUninit::uninit();
        // SAFETY: the call fills in what it is pointed to.
        check(unsafe { libc::posix_spawnattr_init(made.as_mut_ptr()) })?;
        // SAFETY: the call succeeded.
        let mut attributes = Attributes(unsafe { made.assume_init() });
        let place = match place {
            Place::OwnSession => libc::POSIX_SPAWN_SETSID,
            // The group 0 that it begins with means its own.
            Place::OwnGroup => i16::try_from(libc::POSIX_SPAWN_SETPGROUP).unwrap_or_default(),
        };
        let signals = libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        let flags = place | i16::try_from(signals).unwrap_or_default();
        // SAFETY: sets flags of what was initialised.
        check(unsafe { libc::posix_spawnattr_setflags(&raw mut attributes.0, flags) })?;
        // libc leaves out the two that it uses itself, and its children then ignore them.
        let mut all = signal_set(libc::sigemptyset);
        // SAFETY: the set is bits only, and every signal has one.
        unsafe { (&raw mut all).write_bytes(0xff, 1) };
        // SAFETY: copies a set into what was initialised.
        check(unsafe {
            libc::posix_spawnattr_setsigdefault(&raw mut attributes.0, &raw const all)
        })?;
        let none = signal_set(libc::sigemptyset);
        // SAFETY: as above.
        check(unsafe { libc::posix_spawnattr_setsigmask(&raw mut attributes.0, &raw const none) })?;
        Ok(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: it was initialised, and is not used again.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.0) };
    }
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
    use crate::pidfd::{self, Ended};
    use std::io::Read;
    use std::os::fd::AsFd;

    fn words(words: &[&str]) -> Vec<CString> {
        words.iter().map(|word| CString::new(*word).unwrap()).collect()
    }

    /// Runs a shell with these descriptors; its output is what comes at `out`.
    fn shell(script: &str, descriptors: &[(OwnedFd, RawFd)]) -> io::Result<Child> {
        let temporary = rustix::fs::open("/tmp", rustix::fs::OFlags::PATH, 0.into()).unwrap();
        launch(&Launch {
            program: c"/bin/sh",
            arguments: &words(&["sh", "-c", script]),
            environment: &words(&["WORD=said"]),
            directory: Some(temporary.as_fd()),
            descriptors,
            place: Place::OwnSession,
        })
    }

    fn end(child: &Child) -> Ended {
        pidfd::wait_readable(child.pidfd.as_fd()).unwrap();
        pidfd::reap(child.pidfd.as_fd()).unwrap().unwrap()
    }

    #[test]
    fn a_program_has_what_it_was_given_and_nothing_else() {
        // Whoever runs the tests may have left some open.
        close_on_exec(3).unwrap();
        let (read, write) = std::io::pipe().unwrap();
        let descriptors: Vec<(OwnedFd, RawFd)> =
            [1, 40, 7].map(|target| (above(write.as_fd(), 41).unwrap(), target)).into();
        let script = "echo $WORD $PWD; ls /proc/self/fd | tr '\\n' ' '; trap | wc -l; \
                      grep -E 'SigBlk|SigIgn' /proc/$$/status; \
                      set -- $(cat /proc/$$/stat); test $5 = $$ -a $6 = $$ && echo leads; exit 3";
        let child = shell(script, &descriptors).unwrap();
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
            program: c"/nowhere/at/all",
            arguments: &words(&["x"]),
            environment: &[],
            directory: None,
            descriptors: &[],
            place: Place::OwnGroup,
        };
        assert_eq!(launch(&missing).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        let directory = Launch { program: c"/tmp", ..missing };
        assert_eq!(launch(&directory).unwrap_err().raw_os_error(), Some(libc::EACCES));
        let low = [(above(std::io::stdin().as_fd(), 3).unwrap(), 5000)];
        let low = Launch { program: c"/bin/true", descriptors: &low, ..missing };
        assert_eq!(launch(&low).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
