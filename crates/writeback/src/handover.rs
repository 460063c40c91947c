//! A written file is handed over to the keeper before it is closed: the program says which of its descriptors it is, and waits until the keeper has the file.
//!
//! No second descriptor of the file is made here, not even for a moment: closing one drops every POSIX lock that the process holds on the file (fcntl(2)).

use std::ffi::{c_int, c_uint};

use preload::{SavedErrno, argument, system_call};

use crate::mailbox::{self, Answer, MESSAGE, attributes};
use crate::sandbox;

/// What identifies a regular file with something in it.
#[derive(Clone, Copy)]
pub(crate) struct WrittenFile {
    device: u64,
    inode: u64,
}

/// Says whether `descriptor` is open for writing.
pub(crate) fn is_open_for_writing(descriptor: c_int) -> bool {
    if descriptor < 0 || sandbox::is_closed() {
        return false;
    }
    let _kept = SavedErrno::keep();
    // SAFETY: the call takes numbers only. The bare one, because `fcntl` may end the thread (pthreads(7)) and we would leave things behind.
    let flags = unsafe {
        let arguments = [argument(descriptor), argument(libc::F_GETFL), 0, 0, 0, 0];
        system_call(libc::SYS_fcntl, arguments)
    };
    let Some(flags) = c_int::try_from(flags).ok().filter(|flags| *flags >= 0) else { return false };
    flags & libc::O_ACCMODE != libc::O_RDONLY && flags & libc::O_PATH == 0
}

/// Returns the file of `descriptor` if it is a regular one, open for writing, with something in it.
pub(crate) fn written(descriptor: c_int) -> Option<WrittenFile> {
    if !is_open_for_writing(descriptor) {
        return None;
    }
    let _kept = SavedErrno::keep();
    let about = attributes(descriptor)?;
    if u32::from(about.stx_mode) & libc::S_IFMT != libc::S_IFREG || about.stx_size == 0 {
        return None;
    }
    let device = libc::makedev(about.stx_dev_major, about.stx_dev_minor);
    Some(WrittenFile { device, inode: about.stx_ino })
}

/// An error that an earlier write of the file met on its way to the disk, as a number of `errno`.
///
/// The kernel tells it once to each open file, and has told it to us: no `fsync` of the program would say it any more, so whoever calls
/// us returns it to the program.
#[must_use]
pub(crate) struct FailedWriteback(pub(crate) c_int);

/// Has the file of `descriptor` written: by the keeper, or from here where it cannot be reached, is behind or may not read it.
pub(crate) fn hand_over(descriptor: c_int, file: WrittenFile) -> Result<(), FailedWriteback> {
    let _kept = SavedErrno::keep();
    let mut message = [0; MESSAGE];
    message[0] = mailbox::FILE;
    message[4..8].copy_from_slice(&descriptor.to_ne_bytes());
    message[8..16].copy_from_slice(&file.device.to_ne_bytes());
    message[16..].copy_from_slice(&file.inode.to_ne_bytes());
    match mailbox::ask(&message) {
        Answer::Taken | Answer::NotHere => Ok(()),
        Answer::None => start(descriptor),
    }
}

/// Starts write-back of a whole file in the class of this thread, after what of it was started before has been written: no more of it is on its way than was written in between.
pub(crate) fn start(descriptor: c_int) -> Result<(), FailedWriteback> {
    let _kept = SavedErrno::keep();
    let call = |flags: c_uint| {
        // SAFETY: the call takes numbers only. The bare one, because `sync_file_range` may be somebody's.
        let done = unsafe {
            let flags = argument(flags.cast_signed());
            system_call(libc::SYS_sync_file_range, [argument(descriptor), 0, 0, flags, 0, 0])
        };
        if done < 0 { preload::errno() } else { 0 }
    };
    // Two calls: who is held while he waits does not begin anything more.
    let waited = call(libc::SYNC_FILE_RANGE_WAIT_BEFORE);
    call(libc::SYNC_FILE_RANGE_WRITE);
    match waited {
        libc::EIO | libc::ENOSPC | libc::EDQUOT => Err(FailedWriteback(waited)),
        // What is no file says so.
        _ => Ok(()),
    }
}

/// Has the keeper start all that was handed over before, and waits until it has, or for too long: so that the flusher finds little when it is asked for everything.
pub(crate) fn wait_for_all() {
    if !sandbox::is_closed() {
        let _kept = SavedErrno::keep();
        mailbox::ask(&[mailbox::SYNC]);
    }
}
