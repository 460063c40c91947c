//! The sandboxes of Flatpak that run, as the host wrote them down when it made them.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Flock, FlockType, fcntl_getlk};

use super::{Host, Said, read};

/// What tells where a process belongs, none of which it can choose.
#[derive(Debug, Default)]
pub(super) struct Belongs {
    /// Its mounts, as the kernel names them.
    mounts: Option<PathBuf>,
    /// The process namespaces that it is in, but for our own.
    processes: Vec<u64>,
    /// Its pipes, if it speaks for others: any two programs may have got the same one from whoever started both.
    pipes: Vec<PathBuf>,
}

/// Whether a process passes on what others say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// For itself.
    ForItself,
    /// For a sandbox.
    ForOthers,
}

impl Belongs {
    pub(super) fn read(host: &Host, pid: u32, speaks: Speaks) -> Belongs {
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
    /// A process inside, and the one around it.
    members: [Option<u32>; 2],
    /// The mounts inside, as the kernel names them.
    mounts: Option<PathBuf>,
    /// The process namespace inside.
    processes: Option<u64>,
}

impl Instance {
    /// Returns the one that a process belongs to.
    pub(super) fn of(host: &Host, belongs: &Belongs) -> Option<Instance> {
        let names = std::fs::read_dir(&host.instances).into_iter().flatten();
        let numbers = names.filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.bytes().all(|byte| byte.is_ascii_digit()).then_some(name)
        });
        let mut all: Vec<Instance> =
            numbers.filter_map(|number| Instance::running(host, number)).collect();
        // A sandbox inside of a sandbox has an instance of its own, whose mounts tell it from the outer one.
        let by_mounts = |it: &Instance| it.mounts.is_some() && it.mounts == belongs.mounts;
        let by_processes =
            |it: &Instance| it.processes.is_some_and(|own| belongs.processes.contains(&own));
        // What a sandbox says on the bus comes from its proxy, which has files of its own, and a pipe by which it learns of
        // the end of the sandbox.
        let by_pipes = |it: &Instance| {
            let theirs = it.members.into_iter().flatten().flat_map(|pid| pipes(host, pid));
            theirs.into_iter().any(|pipe| belongs.pipes.contains(&pipe))
        };
        let found = all.iter().position(by_mounts).or_else(|| all.iter().position(by_processes));
        let found = found.or_else(|| all.iter().position(by_pipes))?;
        Some(all.swap_remove(found))
    }

    /// Says whether a process with these mounts is inside.
    pub(super) fn holds(&self, host: &Host, pid: u32, mounts: &Path) -> bool {
        self.mounts.as_deref() == Some(mounts)
            || self.processes.is_some_and(|own| {
                let around = sys::namespace::around(&host.of(pid, "ns/pid"));
                around.is_ok_and(|around| around.contains(&own))
            })
    }

    /// Reads what is written down of one, if it runs: the numbers of one that has ended may be another's by now.
    pub(super) fn running(host: &Host, number: String) -> Option<Instance> {
        let dir = host.instances.join(&number);
        let id = Said::parse(&read(&dir.join("info")).ok()?).id?;
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
    /// There is none to hold.
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

/// Returns the pipes that a process has, as the kernel names them; not those that whoever started it may have shared
/// out among many.
fn pipes(host: &Host, pid: u32) -> Vec<PathBuf> {
    let open = std::fs::read_dir(host.of(pid, "fd")).into_iter().flatten();
    let named = open.filter_map(|entry| {
        let entry = entry.ok()?;
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        (number > 2).then(|| std::fs::read_link(entry.path()).ok()).flatten()
    });
    named.filter(|name| name.as_os_str().as_encoded_bytes().starts_with(b"pipe:[")).collect()
}
