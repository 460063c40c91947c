//! Reads what an interface thread does and waits for, without stopping it.

use std::collections::HashMap;
use std::fs;
use std::io;

use kernelwork::RingOperation;
use trace::backend::is_frozen;
use trace::backend::peek::blocked::{
    BlockedSyscall, FileRetention, SchedulerCounters, ThreadActivity, ThreadFiles,
};
use trace::call::TargetId;
use trace::place::{ContextLookup, SyscallContext};
use trace::recorder::TraceRecorder;
use trace::recording::{Backend, Target};
use trace::syscall::{call_name, runs_program};

use super::absence::Activity;
use super::kernel_stack::KernelStackReader;
use super::process::ThreadState;
use super::program_name::last_component;
use super::work::{CopiedWait, StackBytes};
use crate::model::{CallObject, ObjectKind};

/// The most threads whose files of `/proc` are kept open, two each.
const MOST_OPEN: usize = 200;
/// The most bytes of a stack that are copied.
const STACK_BYTES: usize = 192 << 10;
/// The most descriptors of a wait that are read.
const POLLED: usize = 256;
/// The events that `poll` knows.
const EVENTS: u16 = 0x37ff;
/// Those that it returns without being asked to: `POLLERR`, `POLLHUP`, `POLLNVAL`.
const UNASKED_EVENTS: u16 = 0x38;
/// A set of `select` has room for so many.
const SELECTED: usize = 1024;
/// After this many targets the cache of them is cleared.
const TARGETS: usize = 1000;

/// Reads interface threads.
#[derive(Debug)]
pub(crate) struct ThreadReader {
    files: HashMap<u32, ThreadFiles>,
    places: ContextLookup,
    recorder: TraceRecorder,
    descriptions: u32,
    kernel: KernelStackReader,
}

fn recorder() -> TraceRecorder {
    TraceRecorder::new(Backend::Peek, Vec::new(), std::time::SystemTime::UNIX_EPOCH)
}

impl ThreadReader {
    pub(crate) fn new() -> ThreadReader {
        ThreadReader {
            files: HashMap::new(),
            places: ContextLookup::new(),
            recorder: recorder(),
            descriptions: 0,
            kernel: KernelStackReader::default(),
        }
    }

    /// Opens the files of a process's first thread.
    pub(crate) fn open(&mut self, process: u32) {
        let keep = match self.files.len() < MOST_OPEN {
            true => FileRetention::Open,
            false => FileRetention::Closed,
        };
        self.files.insert(process, ThreadFiles::new(process, process, keep));
    }

    /// Forgets a process.
    pub(crate) fn close(&mut self, process: u32) {
        self.files.remove(&process);
        self.places.forget(process);
    }

    /// Returns the scheduler's counters; `None` if the thread has ended.
    pub(crate) fn counters(&self, process: u32) -> Option<SchedulerCounters> {
        self.files.get(&process)?.counters()
    }

    /// Returns what the thread does.
    pub(crate) fn activity(&self, process: u32, state: ThreadState) -> io::Result<Activity> {
        let files = self.files.get(&process).ok_or(io::ErrorKind::NotFound)?;
        let activity = match files.activity()? {
            Some(ThreadActivity::Running) | None => Activity::Running,
            Some(ThreadActivity::InCall(call)) => Activity::InCall(call),
            Some(ThreadActivity::OutsideOfCall(..)) => Activity::Fault,
        };
        // A thread that was stopped in a call still has its number.
        let is_stopped = match state.letter {
            'T' | 't' => true,
            'S' | 'D' => is_frozen(process),
            _ => false,
        };
        Ok(if is_stopped { Activity::Stopped } else { activity })
    }

    /// Copies the stack of a wait, and reads the descriptors that it waits for where they can be read.
    pub(crate) fn copy_wait(&mut self, process: u32, call: &BlockedSyscall) -> Option<CopiedWait> {
        let copy = copy_stack(process, call.ip, call.sp)?;
        let polled = waited_for(process, call);
        let copied = CopiedWait { copy, polled, is_part: false };
        self.is_still_in(process, call).then_some(copied)
    }

    /// Copies the stack of a call, and reads what it works on unless it ends meanwhile; the number is that of the description.
    ///
    /// `None` if it ends before its stack is copied.
    pub(crate) fn describe(
        &mut self,
        process: u32,
        call: &BlockedSyscall,
    ) -> Option<(u32, StackBytes, Option<CallObject>)> {
        if runs_program(call.number) {
            // The stack may already be that of the new program.
            return None;
        }
        let mut copy = copy_stack(process, call.ip, call.sp)?;
        copy.kernel = self.kernel.functions(process);
        if !self.is_still_in(process, call) {
            return None;
        }
        // This takes longer, and waits of a program that reads here and there in a file are short.
        let object = self.object_of(process, call);
        let object = object.filter(|_| self.is_still_in(process, call));
        let number = self.take_number();
        Some((number, copy, object))
    }

    /// Returns what a call works on, or worked on if its descriptor still is the same file's.
    pub(crate) fn object_of(&mut self, process: u32, call: &BlockedSyscall) -> Option<CallObject> {
        if self.recorder.recording().targets.len() > TARGETS {
            self.recorder = recorder();
        }
        let context = SyscallContext {
            process,
            thread: process,
            number: call.number,
            arguments: call.arguments,
            returned: None,
        };
        let target = self.places.target(&context, &mut self.recorder)?;
        self.object_of_target(target)
    }

    /// Returns what an operation of `io_uring` worked on: what its descriptor was, and the number of its mount.
    pub(crate) fn object_of_operation(
        &mut self,
        operation: &RingOperation,
        known: (&[u8], u32),
    ) -> Option<CallObject> {
        if self.recorder.recording().targets.len() > TARGETS {
            self.recorder = recorder();
        }
        let target = self.places.of_operation(operation, Some(known), &mut self.recorder)?;
        self.object_of_target(target)
    }

    fn object_of_target(&mut self, target: TargetId) -> Option<CallObject> {
        let index = usize::try_from(target.0).ok()?;
        let target = self.recorder.recording().targets.get(index).cloned()?;
        Some(object(&target, &mut self.recorder))
    }

    /// Copies the stack of a thread that waits outside of calls, for a page; the number is that of the description.
    pub(crate) fn describe_fault(&mut self, process: u32) -> Option<(u32, StackBytes)> {
        let files = self.files.get(&process)?;
        let found = files.activity().ok().flatten();
        let Some(ThreadActivity::OutsideOfCall(ip, sp)) = found else { return None };
        let mut copy = copy_stack(process, ip, sp)?;
        copy.kernel = self.kernel.functions(process);
        if files.activity().ok().flatten() != found {
            return None;
        }
        Some((self.take_number(), copy))
    }

    /// Returns the number of the next description.
    pub(crate) fn take_number(&mut self) -> u32 {
        self.descriptions = self.descriptions.wrapping_add(1);
        self.descriptions
    }

    /// Returns whether the thread is still in a call: then nothing has changed while it was read.
    fn is_still_in(&self, process: u32, call: &BlockedSyscall) -> bool {
        let now = self.files.get(&process).and_then(|files| files.activity().ok().flatten());
        now == Some(ThreadActivity::InCall(*call))
    }
}

fn copy_stack(process: u32, ip: u64, sp: u64) -> Option<StackBytes> {
    let mut bytes = vec![0; STACK_BYTES];
    let read = sys::remote::read(process, sp, &mut bytes).unwrap_or(0);
    bytes.truncate(read);
    bytes.shrink_to_fit();
    (!bytes.is_empty()).then_some(StackBytes::new(ip, sp, bytes))
}

/// Returns the descriptors that a wait is for, where they can be read.
pub(crate) fn waited_for(process: u32, call: &BlockedSyscall) -> Option<Vec<i32>> {
    match call_name(call.number)? {
        "poll" | "ppoll" => polled(process, call),
        "select" | "pselect6" => selected(process, call),
        "epoll_wait" | "epoll_pwait" | "epoll_pwait2" => registered(process, call),
        _ => None,
    }
}

/// Returns the descriptors that a call was for which has returned, where they can be read; `copy` is the stack at that moment.
pub(crate) fn looked_for(
    process: u32,
    call: &BlockedSyscall,
    copy: &StackBytes,
) -> Option<Vec<i32>> {
    match call_name(call.number)? {
        "poll" | "ppoll" => {
            let [array, count, ..] = call.arguments;
            let count = usize::try_from(count).ok().filter(|count| *count <= POLLED)?;
            // An array on the stack is another one by now.
            let at = array.checked_sub(copy.sp).and_then(|at| usize::try_from(at).ok());
            let copied = at.and_then(|at| copy.bytes.get(at..at.checked_add(8 * count)?));
            // Any other may have been freed, and its memory used for something else.
            let later = || {
                let bytes = pollfds(process, call)?;
                let is_open = |descriptor| {
                    fs::symlink_metadata(format!("/proc/{process}/fd/{descriptor}")).is_ok()
                };
                are_pollfds(&bytes, is_open).then(|| descriptors_of(&bytes))
            };
            copied.map(descriptors_of).or_else(later)
        }
        // The kernel leaves only those in a set of `select` for which there is something.
        "select" | "pselect6" => None,
        _ => waited_for(process, call),
    }
}

/// Returns the descriptors that a `poll` waits for; none if they cannot all be read.
fn polled(process: u32, call: &BlockedSyscall) -> Option<Vec<i32>> {
    pollfds(process, call).map(|bytes| descriptors_of(&bytes))
}

/// Returns the array that a `poll` is given; none if it cannot all be read.
fn pollfds(process: u32, call: &BlockedSyscall) -> Option<Vec<u8>> {
    let [array, count, ..] = call.arguments;
    let count = usize::try_from(count).ok().filter(|count| *count <= POLLED)?;
    let mut bytes = vec![0; 8 * count];
    if count > 0 && sys::remote::read(process, array, &mut bytes).ok()? < bytes.len() {
        return None;
    }
    Some(bytes)
}

/// Returns whether these bytes can be an array of `struct pollfd` after a call: each entry is of an open descriptor, or left out.
fn are_pollfds(bytes: &[u8], is_open: impl Fn(i32) -> bool) -> bool {
    bytes.chunks_exact(8).all(|entry| {
        let [a, b, c, d, e, f, g, h] = *entry else { return false };
        let descriptor = i32::from_le_bytes([a, b, c, d]);
        let [events, returned] = [[e, f], [g, h]].map(u16::from_le_bytes);
        let is_result = events & !EVENTS == 0 && returned & !(events | UNASKED_EVENTS) == 0;
        is_result && (descriptor < 0 || (events != 0 && is_open(descriptor)))
    })
}

/// Returns the descriptors in an array of `struct pollfd`.
fn descriptors_of(bytes: &[u8]) -> Vec<i32> {
    let entries = bytes.chunks_exact(8);
    let descriptors =
        entries.filter_map(|entry| Some(i32::from_le_bytes(entry.get(..4)?.try_into().ok()?)));
    descriptors.filter(|descriptor| *descriptor >= 0).collect()
}

/// Returns the descriptors that a `select` waits for to be readable; none if they cannot all be read.
fn selected(process: u32, call: &BlockedSyscall) -> Option<Vec<i32>> {
    let [count, set, ..] = call.arguments;
    let count = usize::try_from(count).ok().filter(|count| *count <= SELECTED)?;
    let mut bytes = vec![0; count.div_ceil(64) * 8];
    if set != 0 && count > 0 && sys::remote::read(process, set, &mut bytes).ok()? < bytes.len() {
        return None;
    }
    Some(members_of(&bytes, count))
}

/// Returns the descriptors in a set of `select(2)`, below a number.
fn members_of(set: &[u8], below: usize) -> Vec<i32> {
    let is_member = |at: &usize| set.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
    (0..below).filter(is_member).filter_map(|at| i32::try_from(at).ok()).collect()
}

/// Returns the descriptors that are registered in the `epoll` that is waited for.
fn registered(process: u32, call: &BlockedSyscall) -> Option<Vec<i32>> {
    let info = fs::read_to_string(format!("/proc/{process}/fdinfo/{}", call.arguments[0])).ok()?;
    Some(registered_in(&info))
}

/// Returns the descriptors in the file of an `epoll` in `/proc/PID/fdinfo`.
fn registered_in(info: &str) -> Vec<i32> {
    let targets = info.lines().filter_map(|line| line.strip_prefix("tfd:"));
    targets.filter_map(|rest| rest.split_ascii_whitespace().next()?.parse().ok()).collect()
}

/// Describes the target of a call by names only.
fn object(target: &Target, recorder: &mut TraceRecorder) -> CallObject {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (kind, name, mount) = match target {
        Target::File { path, mount } => (ObjectKind::File, text(path), *mount),
        Target::Files { to, mount, .. } => (ObjectKind::File, text(to), *mount),
        Target::Socket { peer, .. } | Target::Display { peer, .. } => {
            (ObjectKind::Socket, peer.clone(), None)
        }
        Target::Lock { .. } => (ObjectKind::Lock, "lock".to_owned(), None),
        Target::Child(child, command) => (ObjectKind::Child, child_name(*child, command), None),
        Target::Other(name) => (ObjectKind::Other, name.clone(), None),
    };
    let mounts = &recorder.recording().mounts;
    let mount = mount.and_then(|at| mounts.get(usize::try_from(at).ok()?));
    let file_system = mount.map(|mount| mount.kind.clone()).unwrap_or_default();
    let device = mount.map(|mount| {
        let source = mount.source.strip_prefix(b"/dev/").unwrap_or(&mount.source);
        text(source)
    });
    CallObject { kind, name, file_system, device: device.unwrap_or_default() }
}

/// Returns the name of the program of a child with this command line. Its arguments may be anything.
fn child_name(child: u32, command: &[u8]) -> String {
    let line = sys::process_file::read(child, "cmdline", 4096).unwrap_or_default();
    let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
    // Only in its own file a blank in a name is told from one between arguments.
    let program = match !first.is_empty() && command.starts_with(first) {
        true => first,
        false => command.split(|byte| *byte == b' ').next().unwrap_or_default(),
    };
    last_component(program)
}

/// Returns how much of the last ten seconds some thread waited for processors, disks and memory.
pub(crate) fn pressure() -> Option<[u16; 3]> {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/pressure/{name}")).ok()?;
        let share = text.split_once("avg10=")?.1.split_ascii_whitespace().next()?;
        let (whole, part) = share.split_once('.')?;
        let whole: u16 = whole.parse().ok()?;
        whole.checked_mul(100)?.checked_add(part.get(..2)?.parse().ok()?)
    };
    Some([read("cpu")?, read("io")?, read("memory")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_named_by_its_file_although_that_has_a_blank() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("my helper");
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
        let command = format!("{} 60", program.display());
        // On a busy machine that may take longer than is waited for.
        while sys::process_file::read(child.id(), "cmdline", 4096).is_err() {}
        assert_eq!(child_name(child.id(), command.as_bytes()), "my helper");
        // Another process has its number meanwhile, or it is gone.
        assert_eq!(child_name(child.id(), b"/usr/bin/make all"), "make");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(child_name(child.id(), b"/usr/bin/make all"), "make");
        assert_eq!(child_name(child.id(), b""), "");
    }

    #[test]
    fn the_members_of_a_set_of_select_are_read() {
        assert_eq!(members_of(&[0b1000_0001, 0, 2, 0, 0, 0, 0, 0x80], 64), [0, 7, 17, 63]);
        assert_eq!(members_of(&[0xff; 8], 3), [0, 1, 2], "others are not looked at");
        assert!(members_of(&[], 0).is_empty());
    }

    #[test]
    fn memory_that_was_freed_since_a_look_names_no_descriptors() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let entry = |descriptor: i32, events: u16, returned: u16| {
            [&descriptor.to_le_bytes()[..], &events.to_le_bytes(), &returned.to_le_bytes()].concat()
        };
        let looked = |entries: &[Vec<u8>]| {
            let array = entries.concat();
            let number = trace::syscall::call_number("poll").unwrap();
            let count = u64::try_from(entries.len()).unwrap();
            let arguments = [array.as_ptr().addr().try_into().unwrap(), count, 0, 0, 0, 0];
            let call = BlockedSyscall { number, arguments, sp: 8, ip: 0 };
            let copy = StackBytes::new(0, 8, Vec::new());
            looked_for(std::process::id(), &call, &copy)
        };
        let open = entry(descriptor, 1, 0);
        let left_out = entry(-1, 0, 0);
        assert_eq!(looked(&[open.clone(), left_out.clone()]), Some(vec![descriptor]));
        assert_eq!(looked(&[entry(descriptor, 1, 0x11), left_out]), Some(vec![descriptor]));
        for other in [entry(7_209_065, 1, 0), entry(descriptor, 0, 0), entry(descriptor, 1, 4)] {
            assert_eq!(looked(&[open.clone(), other]), None);
        }
        assert_eq!(looked(&[open, entry(descriptor, 0x6e, 0x73)]), None, "text");
    }

    #[test]
    fn what_is_registered_in_an_epoll_is_read_from_its_file() {
        let info = "pos:\t0\nflags:\t02\nmnt_id:\t15\nino:\t1057\n\
                    tfd:        5 events:       19 data: 5  pos:0 ino:2f sdev:8\n\
                    tfd:       12 events: 80000019 data: c  pos:0 ino:30 sdev:8\n";
        assert_eq!(registered_in(info), [5, 12]);
        assert!(registered_in("pos:\t0\n").is_empty());
    }
}
