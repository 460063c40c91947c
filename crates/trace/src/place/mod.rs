//! Identifies the target of a call: paths of descriptors, peers of sockets, owners of locks, and the file systems and devices of paths.
//!
//! This happens while the call waits or at its exit, for slow calls only: later a descriptor may refer to another file.

mod awaited;
pub(crate) mod bus_names;
#[doc(hidden)] // For tests and fuzz targets.
pub mod dbus;
mod display;
mod lock;
mod memory;
mod mount;
mod operation;
mod recorded;
mod socket;
mod subject;

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;

use self::awaited::{AwaitedDescriptor, of_poll, of_select};
use self::dbus::BusCall;
pub use self::display::is_display_path;
use self::display::{KnownPeers, is_display};
use self::mount::MountTable;
pub use self::recorded::CopiedCall;
use self::subject::{CallObject, subject};
use super::call::TargetId;
use super::mark;
use super::recorder::TraceRecorder;
use super::recording::Target;
use super::syscall::call_name;
pub use kerneltrace::record::CopiedSocket;

/// `AT_FDCWD` as it stands in a register.
const CURRENT: u64 = 0xffff_ff9c;

/// The most descriptors of a `poll` that are examined.
const POLLED: usize = 64;

/// The most descriptors among which a display is looked for.
const DESCRIPTORS: usize = 100;

/// The most sockets whose last request is stored.
const REQUESTS: usize = 4096;

/// A call as it is made.
#[derive(Clone, Copy, Debug)]
pub struct SyscallContext {
    /// The process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// The number of the call.
    pub number: u32,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// What it returned, if it has returned and did not fail.
    pub returned: Option<i64>,
}

/// Identifies the targets of calls.
#[derive(Debug, Default)]
pub struct ContextLookup {
    mounts: MountTable,
    requests: HashMap<(u32, i32), BusCall>,
    peers: KnownPeers,
    /// What a thread that is in a `select` waits for: the kernel writes the answer over it.
    selects: HashMap<u32, [u64; 2]>,
    /// Whether what is at a path is a named pipe.
    named_pipes: HashMap<Vec<u8>, bool>,
}

/// How a named pipe is told; its path follows.
pub const NAMED_PIPE: &str = "named pipe ";

fn named_pipe(path: &[u8]) -> Target {
    Target::Other(format!("{NAMED_PIPE}{}", String::from_utf8_lossy(path)))
}

/// What is known of descriptors that are waited for.
enum Awaited {
    /// The connection to the display is one of them.
    Display(Target),
    /// The only one, or the one from which an answer is expected.
    One(i32),
    /// So many.
    Several(usize),
}

/// Returns the name of the mark that a call which found no file has set; none if its path is another one.
pub(crate) fn mark(call: &SyscallContext) -> Option<String> {
    let at = match subject(call_name(call.number)?)? {
        CallObject::Path(at) | CallObject::PathAt(_, at) | CallObject::Opened(_, at) => at,
        _ => return None,
    };
    let address = call.arguments[at];
    // Most of these calls look for something else: their paths are not read.
    (memory::longs(call.process, address)? == [mark::BEGINNING]).then_some(())?;
    mark::name_of(&memory::path(call.process, address)?).map(str::to_owned)
}

impl ContextLookup {
    /// Creates one that knows nothing yet.
    #[must_use]
    pub fn new() -> ContextLookup {
        ContextLookup::default()
    }

    /// Returns the target of `call`; `None` if it is unknown.
    pub fn target(
        &mut self,
        call: &SyscallContext,
        recorder: &mut TraceRecorder,
    ) -> Option<TargetId> {
        let target = self.find(call, recorder)?;
        recorder.target(target)
    }

    /// Returns the target that stands for a file which `process` has mapped.
    pub(crate) fn mapped(
        &mut self,
        process: u32,
        path: Vec<u8>,
        recorder: &mut TraceRecorder,
    ) -> Option<TargetId> {
        let mount = self.mounts.of_path(process, &path, recorder);
        recorder.target(Target::File { path, mount })
    }

    /// Stores the request of a `sendmsg` or `sendto` with a D-Bus message, for the wait that may follow; `at_ns` is since the
    /// recording began.
    pub fn sent(&mut self, call: &SyscallContext, at_ns: u64, recorder: &mut TraceRecorder) {
        let SyscallContext { process, arguments, .. } = *call;
        let Some(name) = call_name(call.number) else { return };
        let Some(descriptor) = descriptor(arguments[0]) else { return };
        let bytes = match name {
            "sendto" | "write" => part(process, arguments[1], arguments[2]),
            "sendmsg" => {
                // struct msghdr: name, its length, the parts, how many.
                let header = memory::longs::<4>(process, arguments[1]);
                header.and_then(|header| gathered(process, header[2], header[3]))
            }
            "writev" => gathered(process, arguments[1], arguments[2]),
            _ => None,
        };
        if let Some(bytes) = bytes {
            self.sent_message(process, descriptor, &bytes, at_ns, recorder);
        }
    }

    /// Stores the request of a message of D-Bus that begins with `bytes`, for the wait that may follow.
    pub(crate) fn sent_message(
        &mut self,
        process: u32,
        descriptor: i32,
        bytes: &[u8],
        at_ns: u64,
        recorder: &mut TraceRecorder,
    ) {
        let Some(request) = BusCall::parse(bytes) else { return };
        if request.wants_reply {
            let peer = self.peers.peer(process, descriptor);
            let peer = peer.unwrap_or_else(|| "a bus".to_owned());
            recorder.sent(process, at_ns, Target::Socket { peer, request: Some(request.text()) });
        }
        if self.requests.len() >= REQUESTS {
            self.requests.clear();
        }
        self.requests.insert((process, descriptor), request);
    }

    /// Stores what a thread waits for that is in a `select` already, or begins one; of another call nothing.
    pub(crate) fn selects(&mut self, call: &SyscallContext) {
        if !matches!(call_name(call.number), Some("select" | "pselect6")) {
            return;
        }
        if self.selects.len() >= REQUESTS {
            self.selects.clear();
        }
        self.selects.insert(call.thread, sets(call));
    }

    /// Removes the requests of `process`, when it has ended or executes another program.
    pub fn forget(&mut self, process: u32) {
        self.requests.retain(|(asker, _), _| *asker != process);
        self.peers.forget(process);
        self.selects.remove(&process);
    }

    fn find(&mut self, call: &SyscallContext, recorder: &mut TraceRecorder) -> Option<Target> {
        let SyscallContext { process, arguments, .. } = *call;
        match subject(call_name(call.number)?)? {
            CallObject::Descriptor(at) => {
                let number = descriptor(arguments[at])?;
                let target = self.descriptor(process, number, recorder)?;
                Some(if reads(call.number) { read_from(process, target) } else { target })
            }
            CallObject::Path(at) => self.path(process, CURRENT, arguments[at], recorder),
            CallObject::PathAt(at, path) => {
                self.path(process, arguments[at], arguments[path], recorder)
            }
            CallObject::Opened(at, path) => {
                let opened = call.returned.and_then(|returned| i32::try_from(returned).ok());
                let opened = opened.filter(|opened| *opened >= 0);
                // What was opened has its true path; what could not be opened has only the asked one.
                let found = opened.and_then(|opened| self.descriptor(process, opened, recorder));
                found.filter(|found| matches!(found, Target::File { .. })).or_else(|| {
                    let at = at.map_or(CURRENT, |at| arguments[at]);
                    self.path(process, at, arguments[path], recorder)
                })
            }
            CallObject::Paths(from, to) => {
                let at = [CURRENT, arguments[from], CURRENT, arguments[to]];
                self.paths(process, at, recorder)
            }
            CallObject::PathsAt(at) => self.paths(process, at.map(|at| arguments[at]), recorder),
            CallObject::Connect => self.connected(call),
            CallObject::Futex => {
                let owner = lock::owner(process, call.thread, arguments[0], arguments[1]);
                Some(Target::Lock { owner, owner_stack: None })
            }
            CallObject::Child => child(call, recorder),
            CallObject::Poll => self.polled(call, recorder),
            CallObject::Select => {
                // Of one that has returned, the sets are the answer.
                let now = || call.returned.is_none().then(|| sets(call));
                let known = self.selects.get(&call.thread).copied().or_else(now);
                self.selected(call, known?, recorder)
            }
        }
    }

    /// Returns the target of an open descriptor.
    fn descriptor(
        &mut self,
        process: u32,
        descriptor: i32,
        recorder: &mut TraceRecorder,
    ) -> Option<Target> {
        let link = link(&format!("/proc/{process}/fd/{descriptor}"))?;
        if link.starts_with(b"/memfd:") || link.starts_with(b"/dev/") {
            return Some(Target::Other(String::from_utf8_lossy(&link).into_owned()));
        }
        if link.starts_with(b"/") {
            let mount = self.mounts.of_descriptor(process, descriptor, recorder);
            return Some(match mount::is_named_pipe(process, descriptor, mount, recorder) {
                true => named_pipe(&link),
                false => Target::File { path: link, mount },
            });
        }
        if link.starts_with(b"socket:") {
            let peer = socket::peer(process, descriptor);
            let request = self.request(process, descriptor);
            let peer = peer.unwrap_or_else(|| String::from_utf8_lossy(&link).into_owned());
            return Some(Target::Socket { peer, request });
        }
        let kind = link.strip_prefix(b"anon_inode:").unwrap_or(&link);
        Some(Target::Other(String::from_utf8_lossy(kind).into_owned()))
    }

    /// Returns the last request that was sent on a socket.
    fn request(&self, process: u32, descriptor: i32) -> Option<String> {
        self.requests.get(&(process, descriptor)).map(BusCall::text)
    }

    fn path(
        &mut self,
        process: u32,
        directory: u64,
        path: u64,
        recorder: &mut TraceRecorder,
    ) -> Option<Target> {
        let given = memory::path(process, path)?;
        if given.is_empty() {
            // With `AT_EMPTY_PATH` the directory itself is meant.
            return self.descriptor(process, descriptor(directory)?, recorder);
        }
        let path = absolute(process, directory, given);
        let mount = self.mounts.of_path(process, &path, recorder);
        Some(Target::File { path, mount })
    }

    fn paths(
        &mut self,
        process: u32,
        [from_at, from, to_at, to]: [u64; 4],
        recorder: &mut TraceRecorder,
    ) -> Option<Target> {
        let from = absolute(process, from_at, memory::path(process, from)?);
        let to = absolute(process, to_at, memory::path(process, to)?);
        let mount = self.mounts.of_path(process, &to, recorder);
        Some(Target::Files { from, to, mount })
    }

    fn connected(&mut self, call: &SyscallContext) -> Option<Target> {
        let SyscallContext { process, arguments, .. } = *call;
        let peer = descriptor(arguments[0]).and_then(|socket| socket::peer(process, socket));
        let len = usize::try_from(arguments[2]).ok()?.min(128);
        let asked = || socket::address(&memory::bytes(process, arguments[1], len)?);
        Some(Target::Socket { peer: peer.or_else(asked)?, request: None })
    }

    fn polled(&mut self, call: &SyscallContext, recorder: &mut TraceRecorder) -> Option<Target> {
        let SyscallContext { process, arguments, .. } = *call;
        let count = usize::try_from(arguments[1]).ok()?;
        let bytes = memory::bytes(process, arguments[0], 8 * count.min(POLLED))?;
        match self.awaited(call, &of_poll(&bytes)) {
            Awaited::Display(display) => Some(display),
            Awaited::One(asked) => self.descriptor(process, asked, recorder),
            Awaited::Several(_) => Some(Target::Other(format!("{count} descriptors"))),
        }
    }

    /// Returns the target of a `select` with these sets.
    fn selected(
        &mut self,
        call: &SyscallContext,
        sets: [u64; 2],
        recorder: &mut TraceRecorder,
    ) -> Option<Target> {
        let count = call.arguments[0];
        match self.awaited(call, &of_select(sets, count)) {
            Awaited::Display(display) => Some(display),
            // Of more than these, not all are known.
            _ if count > 64 => None,
            Awaited::One(only) => self.descriptor(call.process, only, recorder),
            Awaited::Several(0) => None,
            Awaited::Several(several) => Some(Target::Other(format!("{several} descriptors"))),
        }
    }

    /// Returns what a wait for these descriptors is for: the display, if the main thread waits to read from it; else the only
    /// descriptor, or the socket with an open request.
    fn awaited(&mut self, call: &SyscallContext, list: &[AwaitedDescriptor]) -> Awaited {
        if call.thread == call.process {
            let mut read = list.iter().filter(|awaited| !awaited.writes);
            let display =
                read.find_map(|awaited| self.peers.display(call.process, awaited.descriptor));
            if let Some(peer) = display {
                let others = u32::try_from(list.len() - 1).unwrap_or(u32::MAX);
                return Awaited::Display(Target::Display { peer, others });
            }
        }
        if let [only] = list {
            return Awaited::One(only.descriptor);
        }
        let asked = list.iter().map(|awaited| awaited.descriptor).find(|descriptor| {
            let request = self.requests.get(&(call.process, *descriptor));
            request.is_some_and(|request| request.wants_reply)
        });
        asked.map_or(Awaited::Several(list.len()), Awaited::One)
    }
}

/// Reads what a `select` waits for: of the first 64 descriptors, those to read and those to write.
fn sets(call: &SyscallContext) -> [u64; 2] {
    let set = |address: u64| memory::longs(call.process, address).map_or(0, |[set]| set);
    [set(call.arguments[1]), set(call.arguments[2])]
}

/// Returns whether a call reads from its descriptor, and waits until there is something.
fn reads(number: u32) -> bool {
    matches!(call_name(number), Some("read" | "readv" | "recvfrom" | "recvmsg" | "recvmmsg"))
}

/// Returns the target of a call that reads from a socket: a connection to the display is told from others.
fn read_from(process: u32, target: Target) -> Target {
    match target {
        Target::Socket { peer, .. } if is_display(process, &peer) => {
            Target::Display { peer, others: 0 }
        }
        target => target,
    }
}

/// Returns whether a process is connected to a display, as programs with windows are.
#[must_use]
pub fn has_display(process: u32) -> bool {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    let numbers = entries
        .filter_map(|entry| str::from_utf8(entry.ok()?.file_name().as_bytes()).ok()?.parse().ok());
    numbers.take(DESCRIPTORS).any(|descriptor: i32| {
        let is_socket = link(&format!("/proc/{process}/fd/{descriptor}"))
            .is_some_and(|link| link.starts_with(b"socket:"));
        let peer = if is_socket { socket::peer(process, descriptor) } else { None };
        peer.is_some_and(|peer| is_display(process, &peer))
    })
}

/// Takes a descriptor out of a register; the kernel looks at its lower half only.
fn descriptor(argument: u64) -> Option<i32> {
    i32::try_from(argument & 0xffff_ffff).ok()
}

/// Joins a path to the directory that it is relative to.
fn absolute(process: u32, directory: u64, path: Vec<u8>) -> Vec<u8> {
    if path.starts_with(b"/") {
        return path;
    }
    let base = if directory & 0xffff_ffff == CURRENT {
        link(&format!("/proc/{process}/cwd"))
    } else {
        let number = descriptor(directory);
        number.and_then(|number| link(&format!("/proc/{process}/fd/{number}")))
    };
    let Some(mut base) = base else { return path };
    if !base.ends_with(b"/") {
        base.push(b'/');
    }
    base.extend(path);
    base
}

pub(crate) fn link(path: &str) -> Option<Vec<u8>> {
    Some(std::fs::read_link(path).ok()?.as_os_str().as_bytes().to_vec())
}

/// Names the child that a `wait4` or `waitid` waited for.
fn child(call: &SyscallContext, recorder: &mut TraceRecorder) -> Option<Target> {
    // An `int`: its upper half means nothing, and -1 or the negative number of a group is any child.
    let number = |argument: u64| {
        let number = u32::try_from(argument & u64::from(u32::MAX)).ok()?;
        i32::try_from(number).is_ok_and(|number| number > 0).then_some(number)
    };
    let is_wait4 = call_name(call.number) == Some("wait4");
    let asked = match call.arguments {
        [pid, ..] if is_wait4 => number(pid),
        // P_PID.
        [1, pid, ..] => number(pid),
        _ => None,
    };
    let ended = call.returned.filter(|_| is_wait4).and_then(|pid| u32::try_from(pid).ok());
    let child = asked.or(ended.filter(|pid| *pid > 0))?;
    // A child that has been waited for has no command line any more; the recorder may have seen it.
    let line = sys::process_file::read(child, "cmdline", 4096).unwrap_or_default();
    let mut line: Vec<u8> = line.iter().map(|b| if *b == 0 { b' ' } else { *b }).collect();
    if line.is_empty()
        && let Some(process) = recorder.recording().processes.get(&child)
    {
        line = process.command.join(&b' ');
    }
    line.truncate(512);
    let end = line.trim_ascii_end().len();
    line.truncate(end);
    Some(Target::Child(child, line))
}

/// Reads the beginning of what is sent from one piece of memory.
fn part(process: u32, address: u64, len: u64) -> Option<Vec<u8>> {
    memory::bytes(process, address, usize::try_from(len).ok()?.min(dbus::HEADER))
}

/// Reads the beginning of what is sent from several pieces.
fn gathered(process: u32, address: u64, count: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for at in 0..count.min(8) {
        let [start, len] = memory::longs::<2>(process, address.checked_add(16 * at)?)?;
        bytes.extend(part(process, start, len).unwrap_or_default());
        if bytes.len() >= dbus::HEADER {
            break;
        }
    }
    Some(bytes)
}
