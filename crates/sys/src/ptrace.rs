//! `ptrace(2)` and waiting for what it stops, typed; only for threads that were seized.
//!
//! All of it is for the one thread that seized: the kernel takes requests and tells stops to nobody else.

use std::io;
use std::ptr;

/// A thread, as this process's namespace numbers it.
pub type Tid = u32;

/// The options that a tracer of ours sets: stops for new children and threads, `exec`, ends, and calls that a seccomp filter chose.
const OPTIONS: i32 = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT
    | libc::PTRACE_O_TRACESECCOMP;

/// What becomes of traced threads when the tracer ends without letting them go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Orphans {
    /// They are killed: with a seccomp filter that asks a tracer, they could not go on.
    Die,
    /// They go on untraced.
    Live,
}

/// Why a thread stopped, or that it ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TraceStop {
    /// It ended with this status.
    Exited(i32),
    /// It was killed by this signal.
    Killed(i32),
    /// It is about to receive this signal.
    Signal(i32),
    /// All threads of its process are stopped by this signal (`SIGSTOP` and its like).
    Group(i32),
    /// It entered or left a system call while calls were asked for.
    Call,
    /// A filter asks what is to be done with the call that it entered.
    Seccomp,
    /// It is new, or was interrupted.
    Stopped,
    /// It started a thread or a process, whose number is the event's message.
    Started,
    /// It runs another program; its former number is the event's message.
    Exec,
    /// It is about to end with the status that is the event's message.
    Exiting,
    /// Something else, to be continued.
    Other,
}

const fn status_of(status: i32) -> TraceStop {
    if libc::WIFEXITED(status) {
        return TraceStop::Exited(libc::WEXITSTATUS(status));
    }
    if libc::WIFSIGNALED(status) {
        return TraceStop::Killed(libc::WTERMSIG(status));
    }
    if !libc::WIFSTOPPED(status) {
        return TraceStop::Other;
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        0 if signal == libc::SIGTRAP | 0x80 => TraceStop::Call,
        0 => TraceStop::Signal(signal),
        libc::PTRACE_EVENT_SECCOMP => TraceStop::Seccomp,
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
            TraceStop::Started
        }
        libc::PTRACE_EVENT_EXEC => TraceStop::Exec,
        libc::PTRACE_EVENT_EXIT => TraceStop::Exiting,
        libc::PTRACE_EVENT_STOP => match signal {
            libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => {
                TraceStop::Group(signal)
            }
            _ => TraceStop::Stopped,
        },
        _ => TraceStop::Other,
    }
}

/// How long [`wait`] waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Patience {
    /// Until something happened or a signal came.
    Blocks,
    /// Not at all.
    None,
}

/// What [`wait`] found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Waited {
    /// This thread stopped or ended.
    Thread(Tid, TraceStop),
    /// A signal came to us first, or nothing is there to be told.
    Nothing,
    /// The calling thread traces nothing and has no children.
    Nobody,
}

/// Waits for a stop or an end of the calling thread's tracees and children, and of no other thread's.
///
/// # Errors
///
/// As `wait4(2)`, of which `EINTR` and `ECHILD` are no errors here.
pub fn wait(patience: Patience) -> io::Result<Waited> {
    wait_for(-1, patience)
}

/// Waits as [`wait`], for one thread.
///
/// # Errors
///
/// As [`wait`].
pub fn wait_one(tid: Tid, patience: Patience) -> io::Result<Waited> {
    wait_for(i32::try_from(tid).map_err(|_| io::ErrorKind::InvalidInput)?, patience)
}

fn wait_for(whom: i32, patience: Patience) -> io::Result<Waited> {
    let flags = match patience {
        Patience::Blocks => libc::__WALL | libc::__WNOTHREAD,
        Patience::None => libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG,
    };
    let mut status = 0;
    // SAFETY: the kernel writes one `int` to where `status` is, and nothing to the null pointer.
    let tid = unsafe { libc::wait4(whom, &raw mut status, flags, ptr::null_mut()) };
    match u32::try_from(tid) {
        Ok(0) => Ok(Waited::Nothing),
        Ok(tid) => Ok(Waited::Thread(tid, status_of(status))),
        Err(_) => {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => Ok(Waited::Nothing),
                Some(libc::ECHILD) => Ok(Waited::Nobody),
                _ => Err(error),
            }
        }
    }
}

/// A request as the C library declares it: musl's numbers are signed.
#[cfg(target_env = "musl")]
type PtraceRequest = libc::c_int;
/// A request as the C library declares it.
#[cfg(not(target_env = "musl"))]
type PtraceRequest = libc::c_uint;

/// `PTRACE_GET_SYSCALL_INFO` of `linux/ptrace.h`, which not every C library declares.
const GET_SYSCALL_INFO: PtraceRequest = 0x420e;

/// Makes a request whose address and data are plain numbers, or an address that outlives the call.
fn request(what: PtraceRequest, tid: Tid, address: usize, data: usize) -> io::Result<i64> {
    let tid = libc::pid_t::try_from(tid).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: callers pass numbers, or pointers to buffers that live and are as long as they say.
    let done = unsafe { libc::ptrace(what, tid, address, data) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

/// Returns an option's bits or a signal's number as the kernel takes them.
fn number(value: i32) -> usize {
    usize::try_from(value).unwrap_or(0)
}

/// Begins to trace a thread, which goes on undisturbed; what it starts will be traced too.
///
/// # Errors
///
/// As `ptrace(2)`: `EPERM` if it is traced already or a stranger's, `ESRCH` if it has ended.
pub fn seize(tid: Tid, orphans: Orphans) -> io::Result<()> {
    let options = match orphans {
        Orphans::Die => OPTIONS | libc::PTRACE_O_EXITKILL,
        Orphans::Live => OPTIONS,
    };
    request(libc::PTRACE_SEIZE, tid, 0, number(options)).map(drop)
}

/// Asks a running thread to stop soon, which [`TraceStop::Stopped`] tells.
///
/// # Errors
///
/// As `ptrace(2)`: `ESRCH` if it has ended.
pub fn interrupt(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

/// Lets a stopped thread go on, with a signal or none (0), until something but a plain call happens.
///
/// # Errors
///
/// As `ptrace(2)`: `ESRCH` if it was killed meanwhile.
pub fn cont(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, number(signal)).map(drop)
}

/// Lets a stopped thread go on, with a signal or none (0), until it enters or leaves a system call.
///
/// # Errors
///
/// As [`cont`].
pub fn cont_to_call(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, 0, number(signal)).map(drop)
}

/// Leaves a thread in its group stop, and listens for what ends it.
///
/// # Errors
///
/// As [`cont`].
pub fn listen(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0, 0).map(drop)
}

/// Lets a stopped thread go for good, with a signal or none (0).
///
/// # Errors
///
/// As [`cont`].
pub fn detach(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, number(signal)).map(drop)
}

/// Returns the message of the event that stopped a thread.
///
/// # Errors
///
/// As [`cont`].
pub fn event_message(tid: Tid) -> io::Result<u64> {
    let mut message: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, tid, 0, (&raw mut message).expose_provenance())?;
    Ok(message)
}

/// Where a stopped thread is with regard to system calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum At {
    /// It is about to make this call; a filter asked if `Seccomp` stopped it.
    Entry {
        /// The number of the call.
        number: u64,
        /// Its arguments.
        arguments: [u64; 6],
    },
    /// A call returned this, or failed with the `errno` that is its negative.
    Exit {
        /// The value, negative for errors.
        value: i64,
        /// Whether it is an error, as the architecture says it.
        failed: bool,
    },
    /// Elsewhere.
    Elsewhere,
}

/// Where a stopped thread is, and from where it made its call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CallStop {
    /// Before or after a call.
    pub at: At,
    /// `AUDIT_ARCH_*` of the convention that the call is made by.
    pub architecture: u32,
    /// The address after the instruction that made the call.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
}

/// `struct ptrace_syscall_info` as words: the longest form, of a seccomp stop, has eleven, newer kernels one more.
#[repr(C, align(8))]
struct Words([u64; 12]);

/// Returns where a stopped thread is; Linux 5.3 and newer.
///
/// # Errors
///
/// As [`cont`]; `EIO` on older kernels.
pub fn call_stop(tid: Tid) -> io::Result<CallStop> {
    let mut info = Words([0; 12]);
    let size = size_of::<Words>();
    request(GET_SYSCALL_INFO, tid, size, (&raw mut info).expose_provenance())?;
    let [head, ip, sp, first, rest @ ..] = info.0;
    let [operation, _, _, _, architecture @ ..] = head.to_ne_bytes();
    let at = match operation {
        1 | 3 => {
            let [a, b, c, d, e, f, ..] = rest;
            At::Entry { number: first, arguments: [a, b, c, d, e, f] }
        }
        2 => {
            let [is_error, ..] = rest[0].to_ne_bytes();
            At::Exit { value: first.cast_signed(), failed: is_error != 0 }
        }
        _ => At::Elsewhere,
    };
    Ok(CallStop { at, architecture: u32::from_ne_bytes(architecture), ip, sp })
}

/// The registers that an unwinder begins with.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct InitialRegisters {
    /// The instruction pointer.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer: `rbp`, `x29`.
    pub fp: u64,
    /// What a function keeps for its caller: `rbx`, `r12` to `r15`; of `aarch64` the link register first, the rest zero.
    pub kept: [u64; 5],
}

/// Returns the registers of a stopped thread.
///
/// # Errors
///
/// As [`cont`].
pub fn registers(tid: Tid) -> io::Result<InitialRegisters> {
    Ok(registers_of(&general_registers(tid)?))
}

fn general_registers(tid: Tid) -> io::Result<[u64; 64]> {
    // As many words as any architecture's general registers have.
    let mut words = [0_u64; 64];
    let mut buffer =
        libc::iovec { iov_base: (&raw mut words).cast(), iov_len: size_of_val(&words) };
    let general = number(libc::NT_PRSTATUS);
    request(libc::PTRACE_GETREGSET, tid, general, (&raw mut buffer).expose_provenance())?;
    Ok(words)
}

/// Returns the number of the call that a stopped thread has left last, and its result; `None` if it came from elsewhere.
///
/// For a call that the kernel will restart, this is `-ERESTARTSYS` or the like. On machines but x86-64 it is not known.
///
/// # Errors
///
/// As [`cont`].
pub fn call_result(tid: Tid) -> io::Result<Option<(i64, i64)>> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(None);
    }
    let words = general_registers(tid)?;
    let (result, number) = (words[10].cast_signed(), words[15].cast_signed());
    Ok((number >= 0).then_some((number, result)))
}

/// `struct user_regs_struct`, in its order.
#[cfg(target_arch = "x86_64")]
fn registers_of(words: &[u64; 64]) -> InitialRegisters {
    let [r15, r14, r13, r12, rbp, rbx, ..] = *words;
    InitialRegisters { ip: words[16], sp: words[19], fp: rbp, kept: [rbx, r12, r13, r14, r15] }
}

/// `struct user_pt_regs`, in its order.
#[cfg(target_arch = "aarch64")]
fn registers_of(words: &[u64; 64]) -> InitialRegisters {
    InitialRegisters { ip: words[32], sp: words[31], fp: words[29], kept: [words[30], 0, 0, 0, 0] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_stopped_the_thread() {
        let stop = |event: i32, signal: i32| (event << 16) | (signal << 8) | 0x7f;
        assert_eq!(status_of(7 << 8), TraceStop::Exited(7));
        assert_eq!(status_of(9), TraceStop::Killed(9));
        assert_eq!(status_of(stop(0, libc::SIGTRAP | 0x80)), TraceStop::Call);
        assert_eq!(status_of(stop(0, libc::SIGTRAP)), TraceStop::Signal(libc::SIGTRAP));
        assert_eq!(status_of(stop(7, libc::SIGTRAP)), TraceStop::Seccomp);
        assert_eq!(status_of(stop(128, libc::SIGTSTP)), TraceStop::Group(libc::SIGTSTP));
        assert_eq!(status_of(stop(128, libc::SIGTRAP)), TraceStop::Stopped);
        assert_eq!(status_of(stop(3, libc::SIGTRAP)), TraceStop::Started);
        assert_eq!(status_of(stop(99, libc::SIGTRAP)), TraceStop::Other);
    }

    #[test]
    fn who_is_not_traced_is_an_error() {
        let error = cont(std::process::id(), 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
        assert!(call_stop(u32::MAX).is_err());
    }
}
