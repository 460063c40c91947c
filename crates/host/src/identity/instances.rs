//! The running sandboxes of Flatpak, as the host recorded them when it created them.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Flock, FlockType, fcntl_getlk};

use super::{FlatpakInfo, ProcessDirectory, read};

/// The facts by which a process is assigned to a sandbox; it can choose none of them.
#[derive(Debug, Default)]
pub(super) struct Belongs {
    /// Its mount namespace.
    mounts: Option<PathBuf>,
    /// Its process namespaces, apart from that of the service.
    processes: Vec<u64>,
    /// Its pipes, if it is a proxy. Other programs may share a pipe that they inherited.
    pipes: Vec<PathBuf>,
}

/// Whether a process is a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// It calls for itself.
    ForItself,
    /// It is the proxy of a sandbox.
    ForOthers,
}

impl Belongs {
    pub(super) fn read(host: &ProcessDirectory, pid: u32, speaks: Speaks) -> Belongs {
        let own = sys::namespace::around(&host.proc.join("self/ns/pid")).unwrap_or_default();
        let mut processes = sys::namespace::around(&host.of(pid, "ns/pid")).unwrap_or_default();
        processes.retain(|number| !own.contains(number));
        let mounts = std::fs::read_link(host.of(pid, "ns/mnt")).ok();
        let pipes = match speaks {
            Speaks::ForItself => Vec::new(),
            Speaks::ForOthers => pipes(host, pid),
        };
        Belongs { mounts, processes, pipes }
    }
}

/// A running sandbox.
#[derive(Debug)]
pub(super) struct Instance {
    /// Its number.
    pub(super) number: String,
    /// The application.
    pub(super) id: String,
    /// A process inside, and the one outside that started it.
    members: [Option<u32>; 2],
    /// The mount namespace inside.
    mounts: Option<PathBuf>,
    /// The process namespace inside.
    processes: Option<u64>,
}

impl Instance {
    /// Returns the sandbox of a process.
    pub(super) fn of(host: &ProcessDirectory, belongs: &Belongs) -> Option<Instance> {
        let names = std::fs::read_dir(&host.instances).into_iter().flatten();
        let numbers = names.filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.bytes().all(|byte| byte.is_ascii_digit()).then_some(name)
        });
        let mut all: Vec<Instance> =
            numbers.filter_map(|number| Instance::running(host, number)).collect();
        // A nested sandbox has an instance of its own, with another mount namespace than the outer one.
        let by_mounts = |it: &Instance| it.mounts.is_some() && it.mounts == belongs.mounts;
        let by_processes =
            |it: &Instance| it.processes.is_some_and(|own| belongs.processes.contains(&own));
        // The messages of a sandbox come from its proxy, which has a mount namespace of its own, and a pipe by which it notices
        // the end of the sandbox.
        let by_pipes = |it: &Instance| {
            let theirs = it.members.into_iter().flatten().flat_map(|pid| pipes(host, pid));
            theirs.into_iter().any(|pipe| belongs.pipes.contains(&pipe))
        };
        let found = all.iter().position(by_mounts).or_else(|| all.iter().position(by_processes));
        let found = found.or_else(|| all.iter().position(by_pipes))?;
        Some(all.swap_remove(found))
    }

    /// Returns whether a process with this mount namespace is inside.
    pub(super) fn holds(&self, host: &ProcessDirectory, pid: u32, mounts: &Path) -> bool {
        self.mounts.as_deref() == Some(mounts)
            || self.processes.is_some_and(|own| {
                let around = sys::namespace::around(&host.of(pid, "ns/pid"));
                around.is_ok_and(|around| around.contains(&own))
            })
    }

    /// Reads the record of an instance, if it runs: the process numbers of an ended one may be reused by now.
    pub(super) fn running(host: &ProcessDirectory, number: String) -> Option<Instance> {
        let dir = host.instances.join(&number);
        let id = FlatpakInfo::parse(&read(&dir.join("info")).ok()?).id?;
        let made: serde_json::Value =
            serde_json::from_str(&read(&dir.join("bwrapinfo.json")).ok()?).ok()?;
        let value = |name: &str| made.get(name)?.as_u64();
        let inside = value("child-pid").and_then(|pid| u32::try_from(pid).ok());
        let link = inside.and_then(|pid| std::fs::read_link(host.of(pid, "ns/mnt")).ok());
        let noted = value("mnt-namespace").map(|number| PathBuf::from(format!("mnt:[{number}]")));
        let runs = match lock(&dir.join(".ref")) {
            Lock::Held => true,
            Lock::Free => false,
            Lock::None => noted.is_none() || noted == link,
        };
        if !runs {
            return None;
        }
        let around = read(&dir.join("pid")).ok().and_then(|text| text.trim().parse().ok());
        Some(Instance {
            id,
            number,
            members: [inside, around],
            mounts: noted.or(link),
            processes: value("pid-namespace"),
        })
    }
}

/// The lock that a sandbox holds for as long as it runs.
enum Lock {
    Held,
    Free,
    /// The version of Flatpak has no such lock.
    None,
}

fn lock(path: &Path) -> Lock {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let Ok(file) = open(path, flags, Mode::empty()) else { return Lock::None };
    let file = File::from(file);
    match fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)) {
        Ok(Some(_)) => Lock::Held,
        Ok(None) => Lock::Free,
        Err(_) => Lock::None,
    }
}

/// Returns the pipes of a process by their inode numbers, without its standard descriptors, which many processes may
/// share.
fn pipes(host: &ProcessDirectory, pid: u32) -> Vec<PathBuf> {
    let open = std::fs::read_dir(host.of(pid, "fd")).into_iter().flatten();
    let named = open.filter_map(|entry| {
        let entry = entry.ok()?;
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        (number > 2).then(|| std::fs::read_link(entry.path()).ok()).flatten()
    });
    named.filter(|name| name.as_os_str().as_encoded_bytes().starts_with(b"pipe:[")).collect()
}
