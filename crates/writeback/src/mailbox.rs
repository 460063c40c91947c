//! The keeper's socket: one connection for each question, which is closed when it is answered.
//!
//! Only bare system calls are made here: the C library's functions of these names are points where a thread may be cancelled (pthreads(7)), and what is open here would stay open.

use std::ffi::{c_int, c_long};
use std::mem::{MaybeUninit, size_of, zeroed};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicUsize, Ordering};

use preload::{argument, system_call};

/// What a message is for: a file that is about to be closed, or to be told when all before it is on its way.
pub(crate) const FILE: u8 = b'f';
pub(crate) const SYNC: u8 = b's';
/// The length of a message about a file: the word, the number of the descriptor at 4, the device at 8 and the file's number at 16.
pub(crate) const MESSAGE: usize = 24;

/// The longest path of a socket (unix(7)), with its NUL.
const LONGEST: usize = 108;

/// The path of the mailbox, written once before the program begins.
static PATH: [AtomicU8; LONGEST] = [const { AtomicU8::new(0) }; LONGEST];
static LENGTH: AtomicUsize = AtomicUsize::new(0);

/// The second of the monotonic clock until which the keeper is not asked again, because it did not answer.
static SILENT_UNTIL: AtomicI64 = AtomicI64::new(0);
/// How many seconds it is left alone then.
const PAUSE_S: i64 = 10;

/// How long the first answer is waited for, and how long a place in the line before it.
const TURN: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 };
const TURNS: u32 = 10;
static SECOND: libc::timeval = libc::timeval { tv_sec: 1, tv_usec: 0 };
/// How many turns are waited when all is to be started: as long as a job is held at most.
const TURNS_FOR_ALL: u32 = 100;

/// Where our descriptors are for as long as there are any: above all that programs choose by number.
const HIGH: c_int = 600;

/// What the keeper said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The file is the keeper's, or all is on its way.
    Taken,
    /// The file is on a file system whose pages are not written back here.
    NotHere,
    /// Nothing that helps.
    None,
}

/// Reads where the mailbox is.
pub(crate) fn read() {
    // SAFETY: the name ends in NUL; before the program begins nobody changes the environment.
    let value = unsafe { libc::getenv(c"UNJANK_WRITEBACK".as_ptr()) };
    // SAFETY: it is null or a text of the environment, which nobody changes meanwhile.
    let path = unsafe { preload::bytes(value) };
    // A name that is no path is not in a directory of the user's: anybody could take it.
    if path.len() >= LONGEST || path.first() != Some(&b'/') {
        return;
    }
    for (to, from) in PATH.iter().zip(path) {
        to.store(*from, Ordering::Relaxed);
    }
    LENGTH.store(path.len(), Ordering::Relaxed);
}

/// Sends a message and waits for its answer.
pub(crate) fn ask(message: &[u8]) -> Answer {
    if LENGTH.load(Ordering::Relaxed) == 0 || now_s() < SILENT_UNTIL.load(Ordering::Relaxed) {
        return Answer::None;
    }
    let Some(socket) = Socket::make() else { return Answer::None };
    let turns = if message == [SYNC] { TURNS_FOR_ALL } else { TURNS };
    let answer = if socket.connect() && socket.is_of_this_user() {
        socket.send(message).map_or_else(|reply| reply, |()| socket.wait(turns))
    } else {
        Reply::Silence
    };
    socket.close();
    match answer {
        Reply::Answer(answer) => answer,
        Reply::Silence => {
            SILENT_UNTIL.store(now_s().saturating_add(PAUSE_S), Ordering::Relaxed);
            Answer::None
        }
    }
}

fn now_s() -> i64 {
    // SAFETY: zeros are a valid time.
    let mut now: libc::timespec = unsafe { zeroed() };
    // SAFETY: the pointer is to a value of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    now.tv_sec
}

/// What came back.
enum Reply {
    Answer(Answer),
    /// The keeper is gone, stopped, or another user's.
    Silence,
}

/// A socket of ours, and which it is: a program may close or replace descriptors that it does not know.
#[derive(Clone, Copy)]
struct Socket {
    descriptor: c_int,
    inode: u64,
}

impl Socket {
    fn make() -> Option<Socket> {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the call takes numbers only.
        let low = unsafe {
            let arguments = [argument(libc::AF_UNIX), argument(kind), 0, 0, 0, 0];
            system_call(libc::SYS_socket, arguments)
        };
        let low = number(low)?;
        let inode = attributes(low).map_or(0, |about| about.stx_ino);
        // SAFETY: the call takes numbers only.
        let high = unsafe {
            let how = argument(libc::F_DUPFD_CLOEXEC);
            system_call(libc::SYS_fcntl, [argument(low), how, argument(HIGH), 0, 0, 0])
        };
        let low = Socket { descriptor: low, inode };
        // Under a low limit it stays where it is.
        let Some(high) = number(high) else { return Some(low) };
        low.close();
        Some(Socket { descriptor: high, inode })
    }

    fn is_ours(self) -> bool {
        attributes(self.descriptor).is_some_and(|about| about.stx_ino == self.inode)
    }

    fn close(self) {
        if self.is_ours() {
            // SAFETY: the descriptor was made by `make` and is nobody else's; the bare call, because `close` is ours.
            unsafe { system_call(libc::SYS_close, [argument(self.descriptor), 0, 0, 0, 0, 0]) };
        }
    }

    /// Connects to the keeper, after a second in the line at most.
    fn connect(self) -> bool {
        // SAFETY: zeros are a valid address.
        let mut address: libc::sockaddr_un = unsafe { zeroed() };
        address.sun_family = FAMILY;
        let length = LENGTH.load(Ordering::Relaxed);
        for (to, from) in address.sun_path.iter_mut().zip(&PATH[..length]) {
            *to = from.load(Ordering::Relaxed).cast_signed();
        }
        let own = argument(self.descriptor);
        let (level, option) = (argument(libc::SOL_SOCKET), argument(libc::SO_SNDTIMEO));
        let (second, size) = (&raw const SECOND, size_of::<libc::timeval>());
        // SAFETY: the pointer is to a value of this size, which lives until the call has returned. Without the limit the wait has none, and the keeper's end ends it.
        unsafe {
            let arguments = [own, level, option, second.expose_provenance(), size, 0];
            system_call(libc::SYS_setsockopt, arguments)
        };
        let (address, size) = (&raw const address, size_of::<libc::sockaddr_un>());
        // SAFETY: the pointer is to a value of this size, which lives until the call has returned.
        unsafe {
            let arguments = [own, address.expose_provenance(), size, 0, 0, 0];
            system_call(libc::SYS_connect, arguments) == 0
        }
    }

    /// Says whether whoever listens is this process's user: what is asked tells the names of files.
    fn is_of_this_user(self) -> bool {
        // SAFETY: zeros are valid credentials.
        let mut peer: libc::ucred = unsafe { zeroed() };
        let mut size = CREDENTIALS;
        let to = (&raw mut peer).expose_provenance();
        let length = (&raw mut size).expose_provenance();
        let (level, option) = (argument(libc::SOL_SOCKET), argument(libc::SO_PEERCRED));
        // SAFETY: the pointers are to values of ours, the first of the size that the second says.
        let done = unsafe {
            let arguments = [argument(self.descriptor), level, option, to, length, 0];
            system_call(libc::SYS_getsockopt, arguments)
        };
        // SAFETY: the call takes nothing.
        let user = unsafe { system_call(libc::SYS_geteuid, [0; 6]) };
        done == 0 && c_long::from(peer.uid) == user
    }

    /// Sends a message; otherwise says what that means.
    fn send(self, message: &[u8]) -> Result<(), Reply> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        let (from, length) = (message.as_ptr().expose_provenance(), message.len());
        // SAFETY: the pointer is to so many bytes, which live until the call has returned.
        let sent = unsafe {
            let arguments = [argument(self.descriptor), from, length, argument(flags), 0, 0];
            system_call(libc::SYS_sendto, arguments)
        };
        if usize::try_from(sent) == Ok(length) {
            return Ok(());
        }
        match preload::errno() {
            // It has let this caller go, and is there for the next one.
            libc::EPIPE | libc::ECONNRESET => Err(Reply::Answer(Answer::None)),
            _ => Err(Reply::Silence),
        }
    }

    /// Waits for an answer, a second, or some turns where the keeper asks for patience.
    fn wait(self, turns: u32) -> Reply {
        let (mut left, mut is_told_to_wait) = (TURNS, false);
        while left > 0 {
            left -= 1;
            let mut polled = libc::pollfd { fd: self.descriptor, events: libc::POLLIN, revents: 0 };
            let mut time = TURN;
            let one = (&raw mut polled).expose_provenance();
            let time = (&raw mut time).expose_provenance();
            // SAFETY: the pointers are to values of ours. A signal ends one turn early.
            let ready = unsafe { system_call(libc::SYS_ppoll, [one, 1, time, 0, 0, 0]) };
            if ready <= 0 {
                continue;
            }
            if !self.is_ours() {
                return Reply::Answer(Answer::None);
            }
            let mut word = 0_u8;
            let to = (&raw mut word).expose_provenance();
            // SAFETY: the pointer is to one byte of ours.
            let length = unsafe {
                let flags = argument(libc::MSG_DONTWAIT);
                system_call(libc::SYS_recvfrom, [argument(self.descriptor), to, 1, flags, 0, 0])
            };
            match (length, word) {
                (1, b'k' | b'd') => return Reply::Answer(Answer::Taken),
                (1, b'x') => return Reply::Answer(Answer::NotHere),
                (1, b'w') => {
                    if !is_told_to_wait {
                        left = turns;
                    }
                    is_told_to_wait = true;
                }
                (1, _) => return Reply::Answer(Answer::None),
                // It does not want this process, or is gone; the next one is answered or finds nobody.
                _ => return Reply::Answer(Answer::None),
            }
        }
        if is_told_to_wait { Reply::Answer(Answer::None) } else { Reply::Silence }
    }
}

/// The size of credentials, as wide as the call has it.
const CREDENTIALS: libc::socklen_t = 12;
const _: () = assert!(size_of::<libc::ucred>() == 12);

/// `AF_UNIX`, as wide as an address has it.
const FAMILY: libc::sa_family_t = 1;

/// Returns what a call has opened.
fn number(result: c_long) -> Option<c_int> {
    c_int::try_from(result).ok().filter(|number| *number >= 0)
}

/// Returns what the kernel knows of an open file; its file system, which may be in user space, is asked nothing.
pub(crate) fn attributes(descriptor: c_int) -> Option<libc::statx> {
    let mut about = MaybeUninit::<libc::statx>::uninit();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let empty = c"".as_ptr().expose_provenance();
    let wanted = argument(libc::STATX_BASIC_STATS.cast_signed());
    let to = about.as_mut_ptr().expose_provenance();
    // SAFETY: the name ends in NUL, and the pointer is to memory of ours that is large enough.
    let done = unsafe {
        let arguments = [argument(descriptor), empty, argument(flags), wanted, to, 0];
        system_call(libc::SYS_statx, arguments)
    };
    // SAFETY: the call succeeded, so it was written.
    (done == 0).then(|| unsafe { about.assume_init() })
}
