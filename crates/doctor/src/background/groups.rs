//! Whether a job can be put into a cgroup of its own, frozen there, and the others' waiting be read.

use std::fs;
use std::path::{Path, PathBuf};

use jobs::cgroup::Cgroup;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use sys::mounts::Mounts;

use super::NAME;
use crate::finding::{Finding, MeasurementOutcome};
use crate::machine::Machine;
use crate::remedy::Remedy;

/// Says what there is of cgroups, freezer, pressure and delegation.
pub(super) fn findings(machine: &Machine, mounts: &Mounts) -> Vec<Finding> {
    vec![holding(machine, mounts), pressure(), delegation(machine, mounts)]
}

/// Returns where cgroup2 is mounted.
fn root(mounts: &Mounts) -> Option<PathBuf> {
    Some(mounts.iter().find(|mount| mount.fs_type == "cgroup2")?.point.clone())
}

/// Returns the cgroup of the user's manager.
fn manager(machine: &Machine, mounts: &Mounts) -> Option<PathBuf> {
    let uid = machine.uid;
    let path = format!("user.slice/user-{uid}.slice/user@{uid}.service");
    let path = root(mounts)?.join(path);
    path.is_dir().then_some(path)
}

fn may_write(path: &Path) -> bool {
    accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

fn controllers(group: &Path) -> Vec<String> {
    let text = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

/// How `unjank run` would hold a job that is started here.
fn holding(machine: &Machine, mounts: &Mounts) -> Finding {
    let measured =
        "/proc/self/cgroup, the rights to its directory, the socket of the user's systemd";
    let note = |text: &str| {
        Finding::new(NAME, "holding a job", measured, MeasurementOutcome::Note(text.to_owned()))
    };
    let socket = machine.runtime_dir.as_ref().map(|dir| dir.join("systemd/private"));
    let has_manager = socket.is_some_and(|socket| socket.exists());
    let Some(own) = Cgroup::of(mounts, std::process::id()) else {
        return note("by signals: there is no cgroup2 here, so the others are seen only by what the disk reads for them")
            .because("a frozen cgroup is not noticed by anybody; a stopped process is, by its parent")
            .hint("start with cgroup version 2 alone, by the kernel parameter systemd.unified_cgroup_hierarchy=1");
    };
    if has_manager && manager(machine, mounts).is_some() {
        return note(
            "by the freezer, in a scope of background.slice that the user's systemd makes; the others are seen by their pressure",
        );
    }
    let usable = may_write(own.path()) && may_write(&own.path().join("cgroup.procs"));
    if usable {
        return note(
            "by the freezer, in a cgroup inside of this one; the others are seen by their pressure",
        );
    }
    note("by signals: this user may make no cgroup here, and there is no systemd of the user to ask; the others are seen only by what the disk reads for them")
        .because(format!("{} is not this user's", own.path().display()))
        .hint("log in by a session of systemd (pam_systemd), which starts one for each user")
}

fn pressure() -> Finding {
    let path = "/proc/pressure/io";
    let finding = |outcome| Finding::new(NAME, "pressure of others", path, outcome);
    match fs::read_to_string(path) {
        Ok(text) if text.starts_with("some ") => finding(MeasurementOutcome::Note(
            "the kernel counts how long programs wait (PSI)".to_owned(),
        )),
        // With psi=0 the files are there and cannot be read.
        _ => finding(MeasurementOutcome::Note(
            "the kernel does not count how long programs wait (no PSI)".to_owned(),
        ))
        .because("a job is held by what the disk reads for others alone")
        .hint("let the kernel count, by the kernel parameter psi=1"),
    }
}

/// Returns whether the I/O controller is delegated to this user.
pub(super) fn io_is_delegated(machine: &Machine, mounts: &Mounts) -> bool {
    manager(machine, mounts).is_some_and(|path| controllers(&path).iter().any(|name| name == "io"))
}

fn delegation(machine: &Machine, mounts: &Mounts) -> Finding {
    let measured = "cgroup.controllers of the root and of user@.service";
    let note = |text: String| {
        Finding::new(NAME, "delegation to the user", measured, MeasurementOutcome::Note(text))
    };
    let Some(group) = manager(machine, mounts) else {
        return note("this user has no cgroup of systemd: IOWeight=, MemoryHigh= and the like of user units do nothing".to_owned());
    };
    let delegated = controllers(&group);
    if delegated.iter().any(|name| name == "io") {
        return note(format!("{}: IOWeight= of user units is obeyed", delegated.join(" ")));
    }
    let has = root(mounts).map(|root| controllers(&root)).unwrap_or_default();
    let list = if delegated.is_empty() { "nothing".to_owned() } else { delegated.join(" ") };
    let finding =
        note(format!("{list}, not io: IOWeight= of user units is accepted and does nothing"));
    if !has.iter().any(|name| name == "io") {
        return finding.because("the kernel has no I/O controller to delegate");
    }
    finding.because("systemd delegates cpu, memory and pids alone").remedy(Remedy::DelegateIo)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Help;

    #[test]
    fn delegation_is_read_from_the_cgroup_of_the_manager() {
        let tree = tempfile::tempdir().unwrap();
        let line = format!("30 1 0:26 / {} rw - cgroup2 cgroup2 rw\n", tree.path().display());
        let mounts = Mounts::parse(line.as_bytes());
        let machine = Machine { uid: 1000, ..Machine::default() };
        assert!(!io_is_delegated(&machine, &mounts));
        let group = tree.path().join("user.slice/user-1000.slice/user@1000.service");
        fs::create_dir_all(&group).unwrap();
        let put = |path: PathBuf, text: &str| {
            use std::io::Write;
            let mut options = fs::OpenOptions::new();
            let file = options.create(true).write(true).truncate(true).open(path);
            file.unwrap().write_all(text.as_bytes()).unwrap();
        };
        put(group.join("cgroup.controllers"), "cpu memory pids\n");
        put(tree.path().join("cgroup.controllers"), "cpuset cpu io memory pids\n");
        let found = delegation(&machine, &mounts);
        assert!(!io_is_delegated(&machine, &mounts));
        assert_eq!(found.help, [Help::Remedy(Remedy::DelegateIo)]);
        put(group.join("cgroup.controllers"), "cpu io memory pids\n");
        assert!(io_is_delegated(&machine, &mounts));
        assert!(delegation(&machine, &mounts).help.is_empty());
    }
}
