//! Filters that decide system calls of a program in the place of the kernel: they succeed without being made, or we are asked.
//!
//! seccomp_unotify(2).

use std::io::{self, IoSliceMut};
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use libc::{
    BPF_JEQ, BPF_JMP, BPF_K, SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_FILTER_FLAG_SPEC_ALLOW,
    SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND,
    SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_USER_NOTIF, SECCOMP_USER_NOTIF_FLAG_CONTINUE,
    seccomp_data, seccomp_notif, seccomp_notif_resp, sock_filter,
};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::{NATIVE, answer, install, load, statement};

/// Jumps in classic BPF reach 255 instructions.
const MOST_RULES: usize = 120;

/// The lowest number of the socket by which a child hands us its listener: one that a program's own calls will hardly name.
const HANDOVER: i32 = 700;

/// What a filter does with a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FilterAction {
    /// It returns 0 at once and is not made.
    Succeed,
    /// The thread waits until we answer.
    Ask,
}

/// A program for the kernel that decides calls by their numbers; others are made as always.
#[derive(Clone, Debug)]
pub struct SeccompDecider(Vec<sock_filter>);

/// Goes on with the next instruction if the loaded word is `k`, else passes over `skip` of them.
fn unless_equal(k: u32, skip: u8) -> sock_filter {
    sock_filter { jf: skip, ..statement(BPF_JMP | BPF_JEQ | BPF_K, k) }
}

impl SeccompDecider {
    /// Makes a filter of calls by number; without rules it lets everything through, at the price that every filter has.
    ///
    /// # Errors
    ///
    /// `Unsupported` on an architecture that we do not know, `InvalidInput` with more than 120 rules.
    pub fn new(rules: &[(u32, FilterAction)]) -> io::Result<SeccompDecider> {
        if NATIVE == 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if rules.len() > MOST_RULES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let allow = answer(SECCOMP_RET_ALLOW);
        let mut code =
            vec![load(offset_of!(seccomp_data, arch)), unless_equal(NATIVE, 1), skip(1), allow];
        code.push(load(offset_of!(seccomp_data, nr)));
        for (number, decision) in rules {
            let result = match decision {
                FilterAction::Succeed => SECCOMP_RET_ERRNO,
                FilterAction::Ask => SECCOMP_RET_USER_NOTIF,
            };
            code.extend([unless_equal(*number, 1), answer(result)]);
        }
        code.push(allow);
        Ok(SeccompDecider(code))
    }

    /// Returns the filter that lets `sendmsg` on the descriptor `socket` through, whatever this one does with it.
    fn sparing(&self, socket: i32) -> SeccompDecider {
        let Ok(number) = u32::try_from(libc::SYS_sendmsg) else { return self.clone() };
        // After the check of the architecture and the load of the number: if it is sendmsg, look at the low half of its first argument.
        let low = if cfg!(target_endian = "little") { 0 } else { 4 };
        let mut code = self.0.clone();
        let spare = [
            unless_equal(number, 4),
            load(offset_of!(seccomp_data, args) + low),
            unless_equal(u32::try_from(socket).unwrap_or(0), 1),
            answer(SECCOMP_RET_ALLOW),
            load(offset_of!(seccomp_data, nr)),
        ];
        code.splice(5..5, spare);
        SeccompDecider(code)
    }
}

/// Passes over `count` instructions.
fn skip(count: u32) -> sock_filter {
    statement(BPF_JMP | libc::BPF_JA, count)
}

/// Has `command` install a filter without questions just before it becomes its program.
///
/// Where the caller lacks `CAP_SYS_ADMIN` the program gets `no_new_privs` too: set-user-id programs below it have no privileges.
pub fn before_exec(command: &mut Command, filter: SeccompDecider) {
    let arm = move || install(&filter.0, SECCOMP_FILTER_FLAG_SPEC_ALLOW).map(drop);
    // SAFETY: the closure makes system calls only; it neither allocates nor takes locks after the fork.
    unsafe { command.pre_exec(arm) };
}

/// Has `command` install a filter with questions just before it becomes its program, and hand us the listener.
///
/// The questions begin before the program does: [`Handover::listener`] has to be called, and they have to be answered, while `spawn` is under way.
///
/// # Errors
///
/// As `socketpair(2)`.
pub fn asking_before_exec(command: &mut Command, filter: &SeccompDecider) -> io::Result<Handover> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let theirs = fcntl_dupfd_cloexec(&theirs, HANDOVER)?;
    let filter = filter.sparing(theirs.as_raw_fd());
    let arm = move || {
        let flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_SPEC_ALLOW;
        // Since 5.19: a signal does not make a program ask again what we have begun to answer.
        let number = match install(&filter.0, flags | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => install(&filter.0, flags)?,
            done => done?,
        };
        let number = i32::try_from(number).map_err(|_| io::ErrorKind::InvalidData)?;
        // SAFETY: the kernel made this descriptor for us just now; nobody else has it.
        let listener = unsafe { OwnedFd::from_raw_fd(number) };
        send(&theirs, listener.as_fd())?;
        // Closing it could be a question, which would come before anybody hears it; exec closes it.
        std::mem::forget(listener);
        Ok(())
    };
    // SAFETY: the closure makes system calls only; it neither allocates nor takes locks after the fork.
    unsafe { command.pre_exec(arm) };
    Ok(Handover(ours))
}

/// Sends one descriptor in a message of one byte.
fn send(socket: &OwnedFd, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    message.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[io::IoSlice::new(b"l")], &mut message, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The way on which a child's listener comes.
#[derive(Debug)]
pub struct Handover(OwnedFd);

impl Handover {
    /// Waits for the listener: until the child has sent it, or the child and the `Command` are gone.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if no listener came: the filter could not be installed, which `spawn` tells.
    pub fn listener(self) -> io::Result<Listener> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut message = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        recvmsg(&self.0, &mut [IoSliceMut::new(&mut byte)], &mut message, RecvFlags::CMSG_CLOEXEC)?;
        let received = message.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        received.map(Listener).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Where questions arrive: readable while one waits, hung up when nobody is left to ask.
///
/// When it is dropped, every call that would be a question fails with `ENOSYS`.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A thread that waits for our answer.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// What the answer must name.
    pub id: u64,
    /// The thread, in our process namespace; 0 if it is in none that we see.
    pub thread: u32,
    /// The number of the call.
    pub number: i32,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CallVerdict {
    /// It returns 0 and is not made.
    Succeed,
    /// It is made.
    Make,
}

impl Listener {
    /// Returns the next question; waits for one.
    ///
    /// # Errors
    ///
    /// `NotFound` if the thread that asked was killed meanwhile; go on with the next.
    pub fn receive(&self) -> io::Result<Question> {
        // SAFETY: a structure of numbers, for which zero is a value; the kernel wants it zeroed.
        let mut question: seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills the structure that this request has, and keeps no pointer.
        let result = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                SECCOMP_IOCTL_NOTIF_RECV,
                std::ptr::from_mut(&mut question),
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let seccomp_notif { id, pid, data, .. } = question;
        Ok(Question { id, thread: pid, number: data.nr, arguments: data.args })
    }

    /// Answers a question.
    ///
    /// # Errors
    ///
    /// `NotFound` if nobody waits for the answer any more.
    pub fn answer(&self, id: u64, answer: CallVerdict) -> io::Result<()> {
        let flags = match answer {
            CallVerdict::Succeed => 0,
            CallVerdict::Make => u32::try_from(SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or(1),
        };
        let response = seccomp_notif_resp { id, val: 0, error: 0, flags };
        // SAFETY: the kernel reads the structure that this request has, and keeps no pointer.
        let result = unsafe {
            libc::ioctl(self.0.as_raw_fd(), SECCOMP_IOCTL_NOTIF_SEND, std::ptr::from_ref(&response))
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]

    use super::*;

    /// What `mkdir(1)` calls, by architecture.
    #[cfg(target_arch = "x86_64")]
    const MKDIR: libc::c_long = libc::SYS_mkdir;
    #[cfg(not(target_arch = "x86_64"))]
    const MKDIR: libc::c_long = libc::SYS_mkdirat;

    fn number(call: libc::c_long) -> u32 {
        u32::try_from(call).unwrap()
    }

    /// A shell in an empty directory.
    fn shell(script: &str) -> (tempfile::TempDir, Command) {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(dir.path());
        (dir, command)
    }

    #[test]
    fn a_call_that_succeeds_by_filter_is_not_made() {
        let (dir, mut command) = shell("mkdir made && mkdir made");
        let filter = SeccompDecider::new(&[(number(MKDIR), FilterAction::Succeed)]).unwrap();
        before_exec(&mut command, filter);
        assert!(command.status().unwrap().success(), "the second would fail");
        assert!(!dir.path().join("made").exists());
    }

    #[test]
    fn a_filter_without_rules_changes_nothing() {
        let (dir, mut command) = shell("mkdir made && ! mkdir made 2>&-");
        before_exec(&mut command, SeccompDecider::new(&[]).unwrap());
        assert!(command.status().unwrap().success());
        assert!(dir.path().join("made").exists());
    }

    #[test]
    fn questions_are_answered_one_by_one_also_those_on_the_way_to_the_program() {
        let (dir, mut command) = shell("mkdir one; mkdir two; mkdir three");
        // execve and sendmsg are asked by the child before it is the program.
        let calls = [MKDIR, libc::SYS_execve, libc::SYS_sendmsg];
        let filter =
            SeccompDecider::new(&calls.map(|call| (number(call), FilterAction::Ask))).unwrap();
        let handover = asking_before_exec(&mut command, &filter).unwrap();
        let answers = std::thread::spawn(move || {
            let listener = handover.listener().unwrap();
            let mut made = 0;
            while let Ok(question) = listener.receive() {
                assert_ne!(question.thread, 0);
                let is_mkdir = libc::c_long::from(question.number) == MKDIR;
                made += u32::from(is_mkdir);
                let skipped = is_mkdir && made == 2;
                let answer = if skipped { CallVerdict::Succeed } else { CallVerdict::Make };
                listener.answer(question.id, answer).unwrap();
                if made == 3 {
                    break;
                }
            }
            // The shell may ask once more before it ends: it must not be left alone.
            listener
        });
        assert!(command.status().unwrap().success());
        drop(answers.join().unwrap());
        let there = |name: &str| dir.path().join(name).exists();
        assert_eq!([there("one"), there("two"), there("three")], [true, false, true]);
    }

    #[test]
    fn a_program_that_is_not_there_leaves_nobody_waiting() {
        let mut command = Command::new("/no/such/program");
        let filter = SeccompDecider::new(&[(number(libc::SYS_fsync), FilterAction::Ask)]).unwrap();
        let handover = asking_before_exec(&mut command, &filter).unwrap();
        let waiting = std::thread::spawn(move || handover.listener());
        assert!(command.status().is_err());
        drop(command);
        // The listener came and nobody is left to ask, or it did not come: both end.
        if let Ok(listener) = waiting.join().unwrap() {
            assert!(listener.receive().is_err());
        }
    }

    #[test]
    fn too_many_rules_are_refused() {
        assert!(SeccompDecider::new(&[(1, FilterAction::Ask); MOST_RULES + 1]).is_err());
    }
}
