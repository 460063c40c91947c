//! What a job needs from the session around it: the folder of all jobs, its disks, and a scope of the user's systemd.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bus::client::{BusClient, ScopeRequest};
use jobs::cgroup::Cgroup;
use jobs::claim::{self, DirectoryClaim};
use jobs::linking::Linking;
use jobs::report::JobDisk;
use jobs::runtime::{self, JobsFolder};
use sys::mounts::Mounts;

use super::launches;

/// Says whether `program` loads a library that is put in front of its own.
pub(super) fn preloads(program: &OsStr) -> bool {
    let path = Path::new(program);
    let found = if path.components().count() > 1 {
        Some(path.to_owned())
    } else {
        #[expect(clippy::disallowed_methods, reason = "the environment is read in this crate")]
        let places = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&places).map(|place| place.join(path)).find(|path| path.is_file())
    };
    found.is_none_or(|path| Linking::of(&path) == Linking::Dynamic)
}

/// How long systemd may take to make a scope; after that the command starts without one.
const PATIENCE: Duration = Duration::from_secs(2);

/// Puts `process`, which waits for its command, into a cgroup: in a scope of `background.slice` if the user's systemd runs, else below the cgroup of this process where this user may.
pub(super) fn find(
    mounts: &Mounts,
    process: u32,
    keeper: u32,
    command: &str,
) -> Option<(Cgroup, Option<DirectoryClaim>)> {
    scope(mounts, process, keeper, command).or_else(|| runtime::make_cgroup(mounts, process))
}

/// Asks the user's systemd for a scope with one cgroup for the job and one for its keeper, so that the keeper, which lets the job run, survives the end of this session.
fn scope(
    mounts: &Mounts,
    process: u32,
    keeper: u32,
    command: &str,
) -> Option<(Cgroup, Option<DirectoryClaim>)> {
    let address = launches::address()?;
    Cgroup::of(mounts, process)?;
    let name = format!("unjank-run-{}.scope", std::process::id());
    let description = format!("{command}, by unjank run");
    let asked = async {
        let client = BusClient::connect(Some(&address)).await.ok()?;
        let processes = [process, keeper];
        let slice = "background.slice";
        let scope =
            ScopeRequest { name: &name, slice, description: &description, processes: &processes };
        client.start_scope(&scope).await.ok()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async { tokio::time::timeout(PATIENCE, asked).await.ok()? })?;
    let inside = |one| Cgroup::of(mounts, one).filter(|cgroup| cgroup.path().ends_with(&name));
    let (scope, _) = inside(process).zip(inside(keeper))?;
    let beside = scope.make("unjank-keeper").ok()?;
    let making = DirectoryClaim::while_making_in(scope.path());
    let made = scope.make(claim::IN_SCOPE).ok()?;
    let claim = DirectoryClaim::of(made.path());
    drop(making);
    // In one cgroup with the job the keeper would freeze itself.
    if beside.take(keeper).is_err() || made.take(process).is_err() {
        return None;
    }
    Some((made, claim))
}

/// Returns the folder in which jobs can be reached, made if it is not there; `None` without a runtime directory.
///
/// It is this user's alone. Root has one of its own where the environment names another user's (sudo) or none.
pub(super) fn jobs() -> Option<JobsFolder> {
    #[expect(clippy::disallowed_methods, reason = "the environment is read in this crate")]
    let named = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let user = rustix::process::geteuid();
    let of_root = user.is_root().then(|| PathBuf::from("/run"));
    let runtimes = [named.filter(|path| path.is_absolute()), of_root];
    let mut runtimes = runtimes.into_iter().flatten();
    runtimes.find_map(|runtime| JobsFolder::open(&runtime, user.as_raw()))
}

/// Returns the disks that the job is likely to work on: those of its directory and of `home`.
pub(super) fn disks(mounts: &Mounts, home: Option<&Path>) -> Vec<JobDisk> {
    let directory = env::current_dir().ok();
    runtime::disks(mounts, [directory.as_deref(), home].into_iter().flatten())
}
