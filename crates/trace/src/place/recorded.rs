//! The target of a call, from the data that the kernel's programs copied at its end: correct even if the descriptor is closed now.

use super::awaited::of_poll;
use super::mount;
use super::socket;
use super::subject::{CallObject, subject};
use super::{
    Awaited, ContextLookup, SyscallContext, descriptor, link, named_pipe, read_from, reads,
};
use kerneltrace::record::CopiedSocket;

use crate::call::TargetId;
use crate::recorder::TraceRecorder;
use crate::recording::Target;
use crate::syscall::call_name;

/// A call, and what was copied with it.
#[derive(Clone, Copy, Debug)]
pub struct CopiedCall<'a> {
    /// The call.
    pub made: SyscallContext,
    /// The first path among its arguments.
    pub first_path: Option<&'a [u8]>,
    /// The second path among its arguments.
    pub second_path: Option<&'a [u8]>,
    /// What a `poll` waited for: its only descriptor, or the first that was ready.
    pub polled: Option<i32>,
    /// The list of a `poll`, or the address of a `connect`.
    pub memory: &'a [u8],
    /// Of a `select`: which of the first 64 descriptors were to be read, and which written.
    pub sets: Option<[u64; 2]>,
    /// The number of the mount that the program's root is the root of, or 0.
    pub root_mount: u64,
    /// What its descriptor was, as `readlink /proc/PID/fd/N` says it; or the directory that its path is relative to.
    pub link: Option<&'a [u8]>,
    /// Whether that is the file that the call opened.
    pub is_opened: bool,
    /// The other end of its descriptor, if that is a socket.
    pub socket: Option<CopiedSocket<'a>>,
    /// The number of that file's mount.
    pub mount: Option<u64>,
}

/// The calls in which a named pipe is waited for.
const PIPE_CALLS: [&str; 8] =
    ["read", "readv", "write", "writev", "poll", "ppoll", "select", "pselect6"];
/// The most paths of which it is remembered whether they are named pipes.
const NAMED_PIPES: usize = 4096;

impl ContextLookup {
    /// Returns the target of a call, from the data that was copied at its end; the rest is looked up in its present state.
    pub fn recorded(
        &mut self,
        call: &CopiedCall<'_>,
        recorder: &mut TraceRecorder,
    ) -> Option<TargetId> {
        let target = self.find_recorded(call, recorder)?;
        recorder.target(target)
    }

    fn find_recorded(
        &mut self,
        call: &CopiedCall<'_>,
        recorder: &mut TraceRecorder,
    ) -> Option<Target> {
        // What was opened has its true path; what could not be opened has only the asked one.
        let is_file = |target: &Target| matches!(target, Target::File { .. });
        if call.is_opened
            && let Some(found) = self.find_link(call, recorder).filter(is_file)
        {
            return Some(found);
        }
        let joined = |path: &[u8]| match call.link {
            Some(directory) if !path.starts_with(b"/") && !call.is_opened => join(directory, path),
            _ => path.to_vec(),
        };
        match (call.first_path, call.second_path) {
            (Some(from), Some(to)) => {
                let (from, to) = (joined(from), joined(to));
                let mount = self.mount_of_path(call, &to, recorder);
                Some(Target::Files { from, to, mount })
            }
            (Some(path), None) if !path.is_empty() => {
                let path = joined(path);
                let mount = self.mount_of_path(call, &path, recorder);
                Some(Target::File { path, mount })
            }
            _ => match subject(call_name(call.made.number)?) {
                // These say more than their descriptor, and nothing was copied of it.
                Some(CallObject::Futex | CallObject::Child) => self.find(&call.made, recorder),
                Some(CallObject::Connect) => {
                    let known = call.socket.and_then(|copied| {
                        socket::copied_peer(&copied, call.made.process, recorder)
                    });
                    let peer = known.or_else(|| socket::address(call.memory))?;
                    Some(Target::Socket { peer, request: None })
                }
                Some(CallObject::Poll) => self.find_polled(call, recorder),
                Some(CallObject::Select) => {
                    // Nothing was copied of one that had begun before.
                    let known = call.sets.filter(|sets| *sets != [0, 0]);
                    let sets = known.or_else(|| self.selects.remove(&call.made.thread))?;
                    self.selected(&call.made, sets, recorder)
                }
                _ => {
                    let target = self.find_link(call, recorder)?;
                    let process = call.made.process;
                    Some(if reads(call.made.number) { read_from(process, target) } else { target })
                }
            },
        }
    }

    /// Returns the target of a `poll`.
    fn find_polled(
        &mut self,
        call: &CopiedCall<'_>,
        recorder: &mut TraceRecorder,
    ) -> Option<Target> {
        let process = call.made.process;
        // What was ready is known as it was then, also of a program that does not live any more.
        if let Some((descriptor, link)) = call.polled.zip(call.link)
            && let Some(copied) = call.socket
        {
            let peer = socket::copied_peer(&copied, call.made.process, recorder);
            self.peers.remember(process, descriptor, link.to_vec(), peer);
        }
        match self.awaited(&call.made, &of_poll(call.memory)) {
            Awaited::Display(display) => Some(display),
            // It was ready, or is the only one: what it was then is known.
            Awaited::One(asked) if call.polled == Some(asked) => self.find_link(call, recorder),
            Awaited::One(_) if call.made.arguments[1] <= 1 => self.find_link(call, recorder),
            Awaited::One(asked) => {
                let now = self.descriptor(process, asked, recorder);
                now.filter(|target| matches!(target, Target::Socket { .. })).or_else(|| {
                    let request = self.request(process, asked);
                    Some(Target::Socket { peer: "socket".to_owned(), request })
                })
            }
            Awaited::Several(_) if call.made.arguments[1] <= 1 => self.find_link(call, recorder),
            Awaited::Several(_) => {
                Some(Target::Other(format!("{} descriptors", call.made.arguments[1])))
            }
        }
    }

    fn find_link(&mut self, call: &CopiedCall<'_>, recorder: &mut TraceRecorder) -> Option<Target> {
        let known = call.link?;
        let is_plain = known.starts_with(b"/")
            && !known.starts_with(b"/memfd:")
            && !known.starts_with(b"/dev/");
        if is_plain {
            let process = call.made.process;
            let mount = self.recorded_mount(process, call.mount, recorder);
            let mut is_pipe = || {
                let number = call.polled.or_else(|| descriptor(call.made.arguments[0]))?;
                let now = link(&format!("/proc/{process}/fd/{number}"))?;
                (now == known).then(|| mount::is_named_pipe(process, number, mount, recorder))
            };
            // Other calls take no time on one.
            let may_wait = !call.is_opened
                && call_name(call.made.number).is_some_and(|name| PIPE_CALLS.contains(&name));
            let is_pipe = may_wait
                && self.named_pipes.get(known).copied().unwrap_or_else(|| {
                    // Of one that is closed by now it is not known.
                    let Some(is_pipe) = is_pipe() else { return false };
                    if self.named_pipes.len() >= NAMED_PIPES {
                        self.named_pipes.clear();
                    }
                    self.named_pipes.insert(known.to_vec(), is_pipe);
                    is_pipe
                });
            return Some(match is_pipe {
                true => named_pipe(known),
                false => Target::File { path: known.to_vec(), mount },
            });
        }
        if known.starts_with(b"socket:") {
            let number = call.polled.or_else(|| descriptor(call.made.arguments[0]));
            // Of a socket that was not understood, its other end can be asked only while it is the same socket.
            let now = number.filter(|descriptor| {
                let now = link(&format!("/proc/{}/fd/{descriptor}", call.made.process));
                call.socket.is_none() && now.as_deref() == Some(known)
            });
            if let Some(descriptor) = now {
                return self.descriptor(call.made.process, descriptor, recorder);
            }
            let peer = call
                .socket
                .and_then(|copied| socket::copied_peer(&copied, call.made.process, recorder));
            let peer = peer.unwrap_or_else(|| String::from_utf8_lossy(known).into_owned());
            let request = number.and_then(|number| self.request(call.made.process, number));
            return Some(Target::Socket { peer, request });
        }
        let kind = known.strip_prefix(b"anon_inode:").unwrap_or(known);
        Some(Target::Other(String::from_utf8_lossy(kind).into_owned()))
    }

    /// Returns the mount of a path: as it is now, or that of the directory it is relative to.
    fn mount_of_path(
        &mut self,
        call: &CopiedCall<'_>,
        path: &[u8],
        recorder: &mut TraceRecorder,
    ) -> Option<u32> {
        let process = call.made.process;
        // When the program is gone, a path means the same to us if it had our root.
        let has_our_root = || call.root_mount != 0 && mount::of_root() == Some(call.root_mount);
        let now = self.mounts.of_path(process, path, recorder).or_else(|| {
            let ours = has_our_root().then(std::process::id);
            self.mounts.of_path(ours?, path, recorder)
        });
        now.or_else(|| self.recorded_mount(process, call.mount, recorder))
    }

    /// Returns the mount with a number, which means the same to all processes: ours are asked when the program is gone.
    fn recorded_mount(
        &mut self,
        process: u32,
        number: Option<u64>,
        recorder: &mut TraceRecorder,
    ) -> Option<u32> {
        let is_there = std::fs::exists(format!("/proc/{process}/ns")).unwrap_or(false);
        let whose = if is_there { process } else { std::process::id() };
        self.mounts.numbered(whose, number?, recorder)
    }
}

/// Joins a path to a directory.
fn join(directory: &[u8], path: &[u8]) -> Vec<u8> {
    let mut joined = directory.to_vec();
    if !joined.ends_with(b"/") {
        joined.push(b'/');
    }
    joined.extend_from_slice(path);
    joined
}
