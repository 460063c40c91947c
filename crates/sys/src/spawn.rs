//! Starts a program that waits, before its first instruction, until a tracer is ready.

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::{fs, ptr};

use rustix::pipe::{PipeFlags, pipe_with};

use crate::seccomp::tracing::SeccompFilter;

/// A program to start.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProgramToStart {
    /// Its name, looked up in `PATH` if there is no slash in it, and its arguments.
    pub arguments: Vec<OsString>,
    /// Its whole environment; ours if there is none.
    pub environment: Option<Vec<(OsString, OsString)>>,
    /// Where it starts; where we are if there is none.
    pub directory: Option<PathBuf>,
    /// Where its standard output goes.
    pub stdout: ProgramStdout,
}

/// Where the standard output of a program goes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ProgramStdout {
    /// Where ours goes.
    #[default]
    Ours,
    /// Where our standard error goes: our own output is a document, which the program must not be in.
    Stderr,
}

/// What the child does when it is released.
enum Work {
    Exec {
        program: CString,
        arguments: Pointers,
        environment: Option<Pointers>,
        directory: Option<CString>,
        stdout: ProgramStdout,
    },
    /// Asks for its parent's number so many times, the cheapest call there is.
    Idle(u32),
}

/// Strings and the array of their addresses that ends with a null, as `exec` takes them.
struct Pointers {
    _strings: Vec<CString>,
    addresses: Vec<*const libc::c_char>,
}

impl Pointers {
    fn new(strings: Vec<CString>) -> Pointers {
        let ends = std::iter::once(ptr::null());
        let addresses = strings.iter().map(|s| s.as_ptr()).chain(ends).collect();
        Pointers { _strings: strings, addresses }
    }
}

/// A child that waits to be released. Dropped before that, it ends without having done anything.
#[derive(Debug)]
pub struct HeldChild {
    process: u32,
    go: fs::File,
    failed: fs::File,
}

/// A child that was released.
#[derive(Debug)]
pub struct Started {
    failed: fs::File,
}

/// Starts `command`, held; with `filter` installed between the release and its first instruction.
///
/// It is in our process group and session with our descriptors, as a program that a shell starts, has `SIGPIPE` at its default,
/// and our directory and environment where the command says no others.
/// The caller has to wait for its end: by the thread that starts it, since only that thread is told with `__WNOTHREAD`.
///
/// # Errors
///
/// As `fork(2)` and `pipe(2)`; invalid input if an argument holds a zero byte or there are none.
pub fn hold(command: &ProgramToStart, filter: Option<&SeccompFilter>) -> io::Result<HeldChild> {
    let [program, ..] = &command.arguments[..] else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let environment = command.environment.as_ref().map(|variables| {
        let pairs = variables.iter().map(|(name, value)| {
            let mut pair = name.clone();
            pair.push("=");
            pair.push(value);
            c_string(&pair)
        });
        pairs.collect::<io::Result<Vec<_>>>().map(Pointers::new)
    });
    let arguments = command.arguments.iter().map(|a| c_string(a)).collect::<io::Result<_>>()?;
    let directory = command.directory.as_ref().map(|d| c_string(d.as_os_str())).transpose()?;
    let work = Work::Exec {
        program: c_string(program)?,
        arguments: Pointers::new(arguments),
        environment: environment.transpose()?,
        directory,
        stdout: command.stdout,
    };
    start(&work, filter)
}

/// Starts a child, held, that makes `calls` calls of `getppid` under `filter` and ends: what a tracer measures itself on.
///
/// # Errors
///
/// As [`hold`].
pub fn hold_idle(calls: u32, filter: Option<&SeccompFilter>) -> io::Result<HeldChild> {
    start(&Work::Idle(calls), filter)
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn start(work: &Work, filter: Option<&SeccompFilter>) -> io::Result<HeldChild> {
    let (wait, go) = pipe_with(PipeFlags::CLOEXEC)?;
    let (failed, fail) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let (mut readiness, ready) =
        pipe_with(PipeFlags::CLOEXEC).map(|(r, w)| (fs::File::from(r), w))?;
    let highest = highest_descriptor();
    // SAFETY: the child calls only what may be called between `fork` and `exec` in a program with threads.
    let process = unsafe { libc::fork() };
    match u32::try_from(process) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(0) => {
            close_ours(highest, [&wait, &fail, &ready]);
            // SAFETY: the kernel reads the byte of the string.
            unsafe { libc::write(ready.as_raw_fd(), c"".as_ptr().cast(), 1) };
            child(work, filter, &wait, &fail)
        }
        Ok(process) => {
            drop(ready);
            // Nothing is read if it was killed; then that is found as it is released.
            let _ = readiness.read_exact(&mut [0]);
            Ok(HeldChild { process, go: fs::File::from(go), failed: fs::File::from(failed) })
        }
    }
}

/// Returns a number that is above those of our descriptors, but for what other threads open in this moment.
fn highest_descriptor() -> i32 {
    let numbers = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.max().unwrap_or(1024).saturating_add(64)
}

/// Closes, in the child, what the program will not have but for `kept`. Left to the program's beginning that would be its time: to
/// close the last descriptor of what another thread has had in the kernel takes long, and our own end of the pipe would keep it
/// open when the parent is gone.
fn close_ours(highest: i32, kept: [&OwnedFd; 3]) {
    for number in 3..=highest {
        // SAFETY: asks for a flag; a number without a descriptor is an error.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        let is_ours = flags >= 0 && flags & libc::FD_CLOEXEC != 0;
        if is_ours && kept.iter().all(|fd| fd.as_raw_fd() != number) {
            // SAFETY: closes a descriptor that the child does not use again; it leaves without running destructors.
            unsafe { libc::close(number) };
        }
    }
}

/// The child's part: waits, installs, and runs the program; tells `fail` why it cannot.
fn child(work: &Work, filter: Option<&SeccompFilter>, wait: &OwnedFd, fail: &OwnedFd) -> ! {
    let mut byte = 0_u8;
    // SAFETY: the kernel writes at most one byte to where `byte` is.
    let told = unsafe { libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1) };
    if told != 1 {
        leave(127);
    }
    let Err(error) = work.prepare().and_then(|()| filter.map_or(Ok(()), SeccompFilter::install))
    else {
        let error = work.run();
        tell(fail, &error);
        leave(127)
    };
    tell(fail, &error);
    leave(127)
}

fn tell(fail: &OwnedFd, error: &io::Error) {
    let code = error.raw_os_error().unwrap_or(libc::EINVAL).to_ne_bytes();
    // SAFETY: the kernel reads the four bytes of `code`.
    unsafe { libc::write(fail.as_raw_fd(), code.as_ptr().cast(), code.len()) };
}

fn leave(status: i32) -> ! {
    // SAFETY: ends the process at once; nothing of the parent's is flushed or dropped twice.
    unsafe { libc::_exit(status) }
}

impl Work {
    /// Sets up what needs calls that the filter should not see.
    fn prepare(&self) -> io::Result<()> {
        let Work::Exec { directory, stdout, .. } = self else { return Ok(()) };
        // Programs in Rust ignore SIGPIPE, and what is ignored stays so for the next program.
        // SAFETY: sets a disposition that has no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        if let Some(directory) = directory {
            // SAFETY: the path ends with a zero byte.
            if unsafe { libc::chdir(directory.as_ptr()) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        if *stdout == ProgramStdout::Stderr {
            // SAFETY: both numbers are those of standard streams; one that is closed is an error.
            if unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// Does the work; returns only if the program cannot be run.
    fn run(&self) -> io::Error {
        match self {
            Work::Idle(calls) => {
                for _ in 0..*calls {
                    // SAFETY: takes nothing, and always succeeds.
                    unsafe { libc::getppid() };
                }
                leave(0)
            }
            Work::Exec { program, arguments, environment, .. } => {
                let arguments = arguments.addresses.as_ptr();
                match environment {
                    // SAFETY: both arrays end with a null and hold strings that end with zero bytes.
                    Some(environment) => unsafe {
                        libc::execvpe(program.as_ptr(), arguments, environment.addresses.as_ptr())
                    },
                    // SAFETY: as above; the environment is the one that the process has.
                    None => unsafe { libc::execvp(program.as_ptr(), arguments) },
                };
                io::Error::last_os_error()
            }
        }
    }
}

impl HeldChild {
    /// Returns the child's number.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Lets it go on.
    ///
    /// # Errors
    ///
    /// As `write(2)`: it was killed meanwhile.
    pub fn release(mut self) -> io::Result<Started> {
        self.go.write_all(&[1])?;
        Ok(Started { failed: self.failed })
    }
}

impl Started {
    /// Returns why the program could not be run, if the child has said so; to be asked when it has ended or has run `exec`.
    #[must_use]
    pub fn failure(&mut self) -> Option<io::Error> {
        let mut code = [0; 4];
        let read = self.failed.read_exact(&mut code);
        read.is_ok().then(|| io::Error::from_raw_os_error(i32::from_ne_bytes(code)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptrace::{Patience, TraceStop, Waited, wait_one};

    fn end_of(process: u32) -> TraceStop {
        loop {
            match wait_one(process, Patience::Blocks).unwrap() {
                Waited::Thread(_, status) => return status,
                Waited::Nothing => {}
                Waited::Nobody => panic!("the child is somebody else's"),
            }
        }
    }

    fn shell(script: &str) -> ProgramToStart {
        let arguments = ["sh", "-c", script].map(OsString::from).into();
        ProgramToStart { arguments, ..ProgramToStart::default() }
    }

    #[test]
    fn a_released_program_runs_as_it_was_told() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = shell("test \"$WORD\" = said && pwd -P > out && exit 7");
        command.environment =
            Some(vec![("PATH".into(), "/usr/bin:/bin".into()), ("WORD".into(), "said".into())]);
        command.directory = Some(directory.path().to_owned());
        let held = hold(&command, None).unwrap();
        let process = held.process();
        let mut started = held.release().unwrap();
        assert_eq!(end_of(process), TraceStop::Exited(7));
        assert!(started.failure().is_none());
        let out = std::fs::read_to_string(directory.path().join("out")).unwrap();
        assert_eq!(out.trim_end(), directory.path().canonicalize().unwrap().to_str().unwrap());
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let command = ProgramToStart {
            arguments: vec!["/nowhere/at/all".into()],
            ..ProgramToStart::default()
        };
        let held = hold(&command, None).unwrap();
        let process = held.process();
        let mut started = held.release().unwrap();
        assert_eq!(end_of(process), TraceStop::Exited(127));
        assert_eq!(started.failure().unwrap().raw_os_error(), Some(libc::ENOENT));
        assert!(hold(&ProgramToStart::default(), None).is_err());
    }

    #[test]
    fn a_child_that_is_not_released_ends() {
        let held = hold(&shell("exit 3"), None).unwrap();
        let process = held.process();
        drop(held);
        assert_eq!(end_of(process), TraceStop::Exited(127));
    }

    #[test]
    fn who_is_held_has_nothing_of_ours_that_the_program_will_not_have() {
        let directory = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let mut options = fs::File::options();
            options.write(true).create_new(true).open(directory.path().join(name)).unwrap()
        };
        let (file, given) = (open("ours"), open("given"));
        rustix::io::fcntl_setfd(&given, rustix::io::FdFlags::empty()).unwrap();
        let held = hold(&shell("exit 3"), None).unwrap();
        let process = held.process();
        let has = |name: &str| {
            let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
            let links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
            links.into_iter().any(|link| link == directory.path().join(name))
        };
        assert!(has("given") && !has("ours"));
        drop(file);
        held.release().unwrap();
        assert_eq!(end_of(process), TraceStop::Exited(3));
    }

    #[test]
    fn a_filter_without_a_tracer_fails_its_calls() {
        let number = u32::try_from(libc::SYS_getppid).unwrap();
        let filter = SeccompFilter::tracing(&[number]);
        let held = hold_idle(1, Some(&filter)).unwrap();
        let process = held.process();
        held.release().unwrap();
        assert_eq!(end_of(process), TraceStop::Exited(0));
        let exec = u32::try_from(libc::SYS_execve).unwrap();
        let held = hold(&shell("exit 0"), Some(&SeccompFilter::tracing(&[exec]))).unwrap();
        let process = held.process();
        let mut started = held.release().unwrap();
        assert_eq!(end_of(process), TraceStop::Exited(127));
        assert_eq!(started.failure().unwrap().raw_os_error(), Some(libc::ENOSYS));
    }
}
