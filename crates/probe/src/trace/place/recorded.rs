//! What a call worked on, by what the kernel's programs copied while it ended: right even when the descriptor is closed by now.

use super::{Made, Places, link, subject::Subject, subject::subject};
use crate::trace::call::TargetId;
use crate::trace::kernel::call_name;
use crate::trace::recorder::Recorder;
use crate::trace::recording::Target;

/// A call, and what was copied with it.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// The call.
    pub made: Made,
    /// The first path among its arguments.
    pub first_path: Option<&'a [u8]>,
    /// The second path among its arguments.
    pub second_path: Option<&'a [u8]>,
    /// What its descriptor was, as `readlink /proc/PID/fd/N` says it; or the directory that its path is relative to.
    pub link: Option<&'a [u8]>,
    /// The number of that file's mount.
    pub mount: Option<u64>,
}

impl Places {
    /// Returns what a call worked on, by what was copied when it ended; what was not copied is looked up as it is now.
    pub fn recorded(&mut self, call: &Recorded<'_>, recorder: &mut Recorder) -> Option<TargetId> {
        let target = self.find_recorded(call, recorder)?;
        recorder.target(target)
    }

    fn find_recorded(&mut self, call: &Recorded<'_>, recorder: &mut Recorder) -> Option<Target> {
        let process = call.made.process;
        let joined = |path: &[u8]| match call.link {
            Some(directory) if !path.starts_with(b"/") => join(directory, path),
            _ => path.to_vec(),
        };
        match (call.first_path, call.second_path) {
            (Some(from), Some(to)) => {
                let (from, to) = (joined(from), joined(to));
                let mount = self.mount_of_path(process, &to, call.mount, recorder);
                Some(Target::Files { from, to, mount })
            }
            (Some(path), None) if !path.is_empty() => {
                let path = joined(path);
                let mount = self.mount_of_path(process, &path, call.mount, recorder);
                Some(Target::File { path, mount })
            }
            _ => match subject(call_name(call.made.number)?) {
                // These say more than their descriptor, and nothing was copied of it.
                Some(Subject::Futex | Subject::Child | Subject::Poll | Subject::Connect) => {
                    self.find(&call.made, recorder)
                }
                _ => self.find_link(call, recorder),
            },
        }
    }

    fn find_link(&mut self, call: &Recorded<'_>, recorder: &mut Recorder) -> Option<Target> {
        let known = call.link?;
        let is_plain = known.starts_with(b"/")
            && !known.starts_with(b"/memfd:")
            && !known.starts_with(b"/dev/");
        if is_plain {
            let mount = self.recorded_mount(call.made.process, call.mount, recorder);
            return Some(Target::File { path: known.to_vec(), mount });
        }
        if known.starts_with(b"socket:") {
            // Who is at the other end can be asked only while it is the same socket.
            let descriptor = call.made.arguments[0] & 0xffff_ffff;
            let now = link(&format!("/proc/{}/fd/{descriptor}", call.made.process));
            if now.as_deref() == Some(known) {
                return self.find(&call.made, recorder);
            }
            let peer = String::from_utf8_lossy(known).into_owned();
            return Some(Target::Socket { peer, request: None });
        }
        let kind = known.strip_prefix(b"anon_inode:").unwrap_or(known);
        Some(Target::Other(String::from_utf8_lossy(kind).into_owned()))
    }

    /// Returns the mount of a path: as it is now, or that of the directory it is relative to.
    fn mount_of_path(
        &mut self,
        process: u32,
        path: &[u8],
        directory: Option<u64>,
        recorder: &mut Recorder,
    ) -> Option<u32> {
        let now = self.mounts.of_path(process, path, recorder);
        now.or_else(|| self.recorded_mount(process, directory, recorder))
    }

    /// Returns the mount with a number, which means the same to all processes: ours are asked when the program is gone.
    fn recorded_mount(
        &mut self,
        process: u32,
        number: Option<u64>,
        recorder: &mut Recorder,
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
