//! A written file goes to the keeper, in one message that carries its descriptor; nothing stays behind in the program.

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, size_of, zeroed};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use preload::Errno;

use crate::sandbox;

/// The longest name of a mailbox: what an address holds behind its first NUL.
const LONGEST: usize = 107;

/// How long is waited for a place in the mailbox.
static PATIENCE: libc::timeval = libc::timeval { tv_sec: 1, tv_usec: 0 };
/// Its size, as wide as the call has it.
const PATIENCE_SIZE: libc::socklen_t = 16;
const _: () = assert!(size_of::<libc::timeval>() == 16);

/// What a message is for: a file to be written, or a socket to be told when all before it is on its way.
const FILE: u8 = b'f';
const TELL: u8 = b's';

/// How often, and for how long each time, an answer of the keeper is waited for: as long as a job is held at most.
const PATIENT_TURNS: u32 = 100;
const TURN_MS: c_int = 100;

/// `AF_UNIX`, as wide as an address has it.
const FAMILY: libc::sa_family_t = 1;

/// The mailbox's name, written once before the program begins.
static NAME: [AtomicU8; LONGEST] = [const { AtomicU8::new(0) }; LONGEST];
static LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Reads the name of the mailbox.
pub(crate) fn read() {
    // SAFETY: the name ends in NUL; before the program begins nobody changes the environment.
    let value = unsafe { libc::getenv(c"UNJANK_WRITEBACK".as_ptr()) };
    // SAFETY: it is null or a text of the environment, which nobody changes meanwhile.
    let name = unsafe { preload::bytes(value) };
    if name.len() > LONGEST {
        return;
    }
    for (to, from) in NAME.iter().zip(name) {
        to.store(*from, Ordering::Relaxed);
    }
    LENGTH.store(name.len(), Ordering::Relaxed);
}

/// Says whether `descriptor` is open for writing.
pub(crate) fn is_open_for_writing(descriptor: c_int) -> bool {
    if descriptor < 0 || sandbox::is_closed() {
        return false;
    }
    let _kept = Errno::keep();
    // SAFETY: the call takes numbers only.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY && flags & libc::O_PATH == 0
}

/// Says whether the file of `descriptor` is a regular one, open for writing, with something in it.
pub(crate) fn is_written(descriptor: c_int) -> bool {
    is_open_for_writing(descriptor) && is_filled(descriptor)
}

/// Says whether the file of `descriptor` is a regular one with something in it.
fn is_filled(descriptor: c_int) -> bool {
    let _kept = Errno::keep();
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the pointer is to memory of ours that is large enough.
    if unsafe { libc::fstat(descriptor, stat.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: the call succeeded, so it was written.
    let stat = unsafe { stat.assume_init() };
    stat.st_mode & libc::S_IFMT == libc::S_IFREG && stat.st_size > 0
}

/// Has the file of `descriptor` written: by the keeper, or from here where he cannot be reached or is behind.
pub(crate) fn hand_over(descriptor: c_int) {
    let _kept = Errno::keep();
    // A lock that the program holds by this description would last until the keeper is done with it: he gets one of his own.
    let own = reopen(descriptor);
    if own >= 0 {
        let sent = send(own, FILE);
        close(own);
        if sent {
            return;
        }
    }
    start(descriptor);
}

/// Has the file of a descriptor of ours written, and closes it.
pub(crate) fn hand_over_own(own: c_int) {
    let _kept = Errno::keep();
    if is_filled(own) && !send(own, FILE) {
        start(own);
    }
    close(own);
}

/// Starts write-back of a whole file in the class of this thread, after what of it was started before has been written: no more of it is on its way than was written in between.
pub(crate) fn start(descriptor: c_int) {
    let _kept = Errno::keep();
    // Two calls: who is held while he waits does not begin anything more.
    for flags in [libc::SYNC_FILE_RANGE_WAIT_BEFORE, libc::SYNC_FILE_RANGE_WRITE] {
        // SAFETY: the call takes numbers only. The bare one, because `sync_file_range` may be somebody's.
        unsafe { libc::syscall(libc::SYS_sync_file_range, descriptor, 0_i64, 0_i64, flags) };
    }
}

/// Opens the file of `descriptor` again, for reading; -1 where that is not allowed.
pub(crate) fn reopen(descriptor: c_int) -> c_int {
    let _kept = Errno::keep();
    let Some(link) = preload::link_of(descriptor) else { return -1 };
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    let (at, path) = (libc::AT_FDCWD, link.as_ptr());
    // SAFETY: the name ends in NUL. The bare call, because `openat` may be somebody's.
    let opened = unsafe { libc::syscall(libc::SYS_openat, at, path, flags, 0) };
    c_int::try_from(opened).unwrap_or(-1)
}

/// Closes a descriptor of ours.
pub(crate) fn close(descriptor: c_int) {
    // SAFETY: the descriptor was opened by `reopen` or `send` and is nobody else's; the bare call, because `close` is ours.
    unsafe { libc::syscall(libc::SYS_close, descriptor) };
}

/// Has the keeper start all that was handed over before, and waits until it has, or for too long: so that the flusher finds little when it is asked for everything.
pub(crate) fn wait_for_all() {
    if LENGTH.load(Ordering::Relaxed) == 0 || sandbox::is_closed() {
        return;
    }
    let _kept = Errno::keep();
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the pointer is to room for two descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
        return;
    }
    let [own, told] = ends;
    let sent = send(told, TELL);
    close(told);
    if sent {
        let mut polled = libc::pollfd { fd: own, events: libc::POLLIN, revents: 0 };
        for _ in 0..PATIENT_TURNS {
            // SAFETY: the pointer is to one value of ours. A signal ends one turn early.
            if unsafe { libc::poll(&raw mut polled, 1, TURN_MS) } > 0 {
                break;
            }
        }
    }
    close(own);
}

/// Sends a descriptor to the mailbox, with a word that says what for. A full one is waited for, a while: the keeper is behind, and nobody is to get further ahead of the disk. Says whether it is there.
fn send(descriptor: c_int, word: u8) -> bool {
    let length = LENGTH.load(Ordering::Relaxed);
    if length == 0 {
        return false;
    }
    // SAFETY: zeros are a valid address.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = FAMILY;
    for (to, from) in address.sun_path.iter_mut().skip(1).zip(&NAME[..length]) {
        *to = from.load(Ordering::Relaxed).cast_signed();
    }
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes numbers only.
    let socket = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if socket < 0 {
        return false;
    }
    // SAFETY: the pointer is to a value of this size, which lives until the call has returned. Without the limit the wait has none, and the keeper's end ends it.
    unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_SNDTIMEO,
            (&raw const PATIENCE).cast::<c_void>(),
            PATIENCE_SIZE,
        )
    };
    let sent = send_by(socket, &mut address, length, descriptor, word);
    close(socket);
    sent
}

/// Room for one message header and a descriptor behind it, aligned as the kernel wants it.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    descriptor: c_int,
    padding: c_int,
}

fn send_by(
    socket: c_int,
    address: &mut libc::sockaddr_un,
    length: usize,
    descriptor: c_int,
    mut word: u8,
) -> bool {
    let mut control = Control {
        header: libc::cmsghdr {
            cmsg_len: size_of::<libc::cmsghdr>() + size_of::<c_int>(),
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        },
        descriptor,
        padding: 0,
    };
    let mut part = libc::iovec { iov_base: (&raw mut word).cast::<c_void>(), iov_len: 1 };
    // SAFETY: zeros are a valid message: nothing at all.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = std::ptr::from_mut(address).cast();
    // The family, the NUL that makes it abstract, and the name.
    message.msg_namelen = u32::try_from(size_of::<libc::sa_family_t>() + 1 + length).unwrap_or(0);
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    let flags = libc::MSG_NOSIGNAL;
    // SAFETY: all pointers of the message are to values of this function, which live until the call has returned.
    unsafe { libc::sendmsg(socket, &raw const message, flags) == 1 }
}
