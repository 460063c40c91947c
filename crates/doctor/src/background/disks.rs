//! Path, device, scheduler: which remedy reaches the requests of a disk.

use std::fs;
use std::path::Path;
use std::time::Duration;

use sys::device::Device;

use super::{NAME, WorkDirectory};
use crate::finding::{Finding, MeasurementOutcome};
use crate::remedy::Remedy;
use report::figure::duration;

/// Returns whether the scheduler of a disk tells classes apart, and they get there.
pub(super) fn knows_classes(device: &Device) -> bool {
    matches!(device.scheduler.as_deref(), Some("bfq" | "mq-deadline")) && buffered(device).is_none()
}

/// Returns whether weights of cgroups act on a disk: under bfq, or with a cost model that root has turned on.
pub(super) fn knows_weights(device: &Device) -> bool {
    if device.scheduler.as_deref() == Some("bfq") {
        return true;
    }
    let Some((major, minor)) = device.disk_number else { return false };
    let text = fs::read_to_string("/sys/fs/cgroup/io.cost.qos").unwrap_or_default();
    let ours = format!("{major}:{minor} ");
    text.lines().any(|line| line.starts_with(&ours) && line.contains("enable=1"))
}

/// Returns the loop device on the way that writes through the page cache: the class of what it is given is lost there.
fn buffered(device: &Device) -> Option<&str> {
    let file = Path::new("/sys/block").join(&device.name).join("loop/dio");
    let direct = fs::read_to_string(file).ok()?;
    (direct.trim() == "0").then_some(&*device.name)
}

/// Says what can act on a disk, and what would help.
pub(super) fn finding(place: &WorkDirectory) -> Finding {
    let name = format!("disk of background work ({})", place.label);
    let measured = "/proc/self/mountinfo, /sys/block/*/queue";
    let Some(device) = &place.device else {
        let text = if place.is_local {
            format!("{} shows no disk under it: holding alone acts", place.fs_type)
        } else {
            format!("{} is answered by others: holding alone acts, classes do not", place.fs_type)
        };
        return Finding::new(NAME, name, measured, MeasurementOutcome::Note(text));
    };
    let finding =
        Finding::new(NAME, name, measured, MeasurementOutcome::Note(describe(place, device)));
    advise(finding, device)
}

/// Describes a disk in a line and names what acts.
fn describe(place: &WorkDirectory, device: &Device) -> String {
    let scheduler = device.scheduler.as_deref().unwrap_or("none");
    let turns = match device.rotational {
        Some(true) => ", says that it rotates",
        Some(false) => ", does not rotate",
        None => "",
    };
    let throttling = match device.wbt_lat_usec {
        Some(0) => "write-back throttling off".to_owned(),
        Some(usec) => {
            format!("write-back throttling at {}", duration(Duration::from_micros(usec)))
        }
        None => "no write-back throttling".to_owned(),
    };
    let on = if device.name == device.disk {
        device.disk.clone()
    } else {
        format!("{} on {}", device.name, device.disk)
    };
    let (mut acts, mut without_effect) = (vec!["holding (unjank run)"], Vec::new());
    if knows_classes(device) {
        acts.insert(0, "I/O classes");
    } else {
        without_effect.push("I/O classes (ionice, IOSchedulingClass=)");
    }
    if device.wbt_lat_usec.is_some_and(|usec| usec > 0) {
        acts.push("write-back throttling");
    }
    if knows_weights(device) {
        acts.push("IOWeight=");
    } else {
        without_effect.push("IOWeight=");
    }
    let without_effect = if without_effect.is_empty() {
        String::new()
    } else {
        format!("; does nothing: {}", without_effect.join(", "))
    };
    format!(
        "{} on {on}{turns}, scheduler {scheduler}, {throttling}; acts: {}{without_effect}",
        place.fs_type,
        acts.join(", ")
    )
}

fn advise(finding: Finding, device: &Device) -> Finding {
    let disk = &device.disk;
    if let Some(name) = buffered(device) {
        return finding
            .because(format!("{name} writes through the page cache, which forgets the class"))
            .remedy(Remedy::DirectLoop(name.to_owned()));
    }
    let scheduler = device.scheduler.as_deref().unwrap_or("none");
    if knows_classes(device) {
        let finding = finding.because(
            "a class covers reads and what a program syncs itself; the kernel writes the rest later in the usual class, unless it is started by whoever wrote it, as unjank run does",
        );
        if scheduler == "bfq" && device.wbt_lat_usec == Some(0) {
            return finding
                .hint("as a rule bfq needs write-back throttling off, and turns it off by itself: leave it so");
        }
        return finding
            .hint("start what can wait with `unjank run`: its writes are in the idle class, too");
    }
    let finding = finding.because(format!("the scheduler {scheduler} of {disk} knows no classes"));
    let has_bfq = device.schedulers.iter().any(|name| name == "bfq");
    if disk.starts_with("nvme") || !has_bfq {
        // What bfq costs such a disk is more than what it brings.
        return finding
            .hint("run what works in the background with `unjank run`, which holds it while others wait and needs no scheduler");
    }
    finding.remedy(Remedy::SchedulerRule)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::finding::Help;

    fn place(scheduler: &str, throttling: &str, disk: &str) -> WorkDirectory {
        let sys = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = sys.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut options = fs::OpenOptions::new();
            options
                .create(true)
                .append(true)
                .open(path)
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
        };
        fs::create_dir_all(sys.path().join("dev/block")).unwrap();
        let device = sys.path().join("devices").join(disk);
        put(&format!("devices/{disk}/queue/scheduler"), scheduler);
        put(&format!("devices/{disk}/queue/rotational"), "0");
        put(&format!("devices/{disk}/queue/wbt_lat_usec"), throttling);
        std::os::unix::fs::symlink(&device, sys.path().join("dev/block/8:0")).unwrap();
        let device = Device::numbered(sys.path(), (8, 0));
        assert!(device.is_some());
        WorkDirectory {
            label: "home".to_owned(),
            fs_type: "ext4".to_owned(),
            is_local: true,
            device,
        }
    }

    fn text(finding: &Finding) -> &str {
        match &finding.outcome {
            MeasurementOutcome::Note(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_scheduler_without_classes_makes_them_useless_and_the_rule_is_given() {
        let found = finding(&place("[none] mq-deadline bfq", "2000", "sda"));
        insta::assert_snapshot!(text(&found), @"ext4 on sda, does not rotate, scheduler none, write-back throttling at 2.00 ms; acts: holding (unjank run), write-back throttling; does nothing: I/O classes (ionice, IOSchedulingClass=), IOWeight=");
        assert_eq!(found.help, [Help::Remedy(Remedy::SchedulerRule)]);
        let fast = finding(&place("[none] mq-deadline bfq", "2000", "nvme0n1"));
        assert!(matches!(fast.help[..], [Help::Hint(_)]), "no bfq for NVMe");
    }

    #[test]
    fn with_bfq_all_acts() {
        let found = finding(&place("none [bfq]", "0", "sda"));
        insta::assert_snapshot!(text(&found), @"ext4 on sda, does not rotate, scheduler bfq, write-back throttling off; acts: I/O classes, holding (unjank run), IOWeight=");
        assert!(found.cause.unwrap().contains("the kernel writes the rest later"));
        let deadline = finding(&place("[mq-deadline] none", "75000", "sda"));
        assert!(text(&deadline).contains("does nothing: IOWeight="), "{deadline:?}");
    }

    #[test]
    fn what_others_answer_for_has_no_disk() {
        let network = WorkDirectory {
            label: "home".into(),
            fs_type: "nfs4".into(),
            is_local: false,
            device: None,
        };
        assert!(text(&finding(&network)).contains("holding alone acts"));
    }
}
