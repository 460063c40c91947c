//! The listing probe: the largest directories that the user opens, and the mounts on which a program would hang.
//!
//! Everything is listed in another process with a limit of time: what does not answer is given up, and the doctor goes on.

mod look;
mod places;

use std::time::Duration;

use listing::{AttributeSet, WorkerProgram};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use sys::mounts::{MountInfo, Mounts};

use self::look::{DirectoryReader, ListingOutcome};
use self::places::{CandidateDirectory, DirectoryPurpose};
use super::finding::{Finding, MeasurementOutcome};
use super::machine::Machine;
use super::remedy::Remedy;
use super::{Probe, ProbeStep, StepContext};
use report::figure::{duration, frames};
use report::samples::Samples;

const NAME: &str = "listing";
/// A directory that has not answered after this is given up.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long all directories together may take.
const BUDGET: Duration = Duration::from_secs(3);
/// So many of the largest are measured.
const LARGEST: usize = 5;
/// Directories with fewer entries are not worth a line.
const FEW: u32 = 100;
/// From so many entries on, programs that keep a sorted list entry by entry are felt.
const MANY: u32 = 10_000;
/// Times that a directory is opened.
const ROUNDS: usize = 5;
/// Mounts that are looked at.
const MOUNTS: usize = 8;

/// Lists the directories that the user opens.
#[derive(Debug)]
pub struct ListingProbe;

impl Probe for ListingProbe {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "open the largest directories, and mounts that would hang"
    }

    fn title(&self) -> &'static str {
        "Directories"
    }

    fn steps<'a>(&self, machine: &'a Machine) -> Vec<ProbeStep<'a>> {
        let Some(worker) = worker(machine) else {
            return vec![ProbeStep::new("look for the worker", 1, |_| {
                let why = "there is no unjank beside this program to list with".to_owned();
                vec![Finding::new(NAME, "directories", "", MeasurementOutcome::Skipped(why))]
            })];
        };
        let on_mounts = worker.clone();
        vec![
            ProbeStep::new("open directories", 1200, move |tools| {
                directories(machine, &worker, tools)
            }),
            ProbeStep::new("open mounts", 300, move |tools| mounts(machine, &on_mounts, tools)),
        ]
    }
}

/// Finds the program that lists for us.
fn worker(machine: &Machine) -> Option<WorkerProgram> {
    let path = machine.program_dir.as_ref()?.join("unjank");
    let arguments = vec!["listing-worker".into()];
    path.exists().then_some(WorkerProgram { path, arguments })
}

/// Opens all directories once, and the largest several times.
fn directories(machine: &Machine, worker: &WorkerProgram, tools: &StepContext<'_>) -> Vec<Finding> {
    let start = tools.clock.monotonic();
    let mut findings = Vec::new();
    let mut found: Vec<(u32, CandidateDirectory)> = Vec::new();
    let mut is_spent = false;
    for place in places::of(machine) {
        if tools.stopped() {
            break;
        }
        if tools.spent(start, BUDGET) {
            is_spent = true;
            break;
        }
        let look = DirectoryReader {
            worker,
            fields: AttributeSet::NONE,
            patience: PATIENCE,
            clock: tools.clock,
        };
        match look.at(&place.path) {
            ListingOutcome::Answered(seen) if seen.entries >= FEW => {
                found.push((seen.entries, place))
            }
            ListingOutcome::Silent => findings.push(silent(&machine.short(&place.path))),
            // What is small, missing or not for us opens at once.
            ListingOutcome::Answered(_) | ListingOutcome::Missing | ListingOutcome::Failed(_) => (),
        }
    }
    found.sort_by_cached_key(|(entries, _)| std::cmp::Reverse(*entries));
    found.truncate(LARGEST);
    for (_, place) in found {
        if tools.stopped() {
            break;
        }
        if tools.spent(start, BUDGET) {
            is_spent = true;
            break;
        }
        findings.extend(directory(machine, &place, worker, tools));
    }
    if is_spent {
        let note = format!("not all were opened: the time for all is {}", duration(BUDGET));
        findings.push(Finding::new(NAME, "other directories", "", MeasurementOutcome::Note(note)));
    } else if findings.is_empty() {
        let note = format!("none of the user's directories has {FEW} entries");
        findings.push(Finding::new(NAME, "directories", "", MeasurementOutcome::Note(note)));
    }
    findings
}

/// Opens a directory several times.
fn directory(
    machine: &Machine,
    place: &CandidateDirectory,
    worker: &WorkerProgram,
    tools: &StepContext<'_>,
) -> Vec<Finding> {
    let look = DirectoryReader {
        worker,
        fields: AttributeSet::DEFAULT,
        patience: PATIENCE,
        clock: tools.clock,
    };
    let (mut first, mut whole) = (Samples::default(), Samples::default());
    let mut entries = 0;
    let short = machine.short(&place.path);
    for _ in 0..ROUNDS {
        match look.at(&place.path) {
            ListingOutcome::Answered(seen) => {
                first.push(report::figure::nanoseconds(seen.first));
                whole.push(report::figure::nanoseconds(seen.done));
                entries = seen.entries;
            }
            ListingOutcome::Silent => return vec![silent(&short)],
            ListingOutcome::Missing | ListingOutcome::Failed(_) => break,
        }
    }
    if first.is_empty() {
        return Vec::new();
    }
    let whole = Duration::from_nanos(nanos(whole.median()));
    let note = format!(
        "{entries} entries with their attributes in {}, {}",
        duration(whole),
        frames(whole, tools.frame)
    );
    let measured = format!("listed {short} in another process, {ROUNDS} times");
    let all = format!("all of {short}");
    let mut whole = Finding::new(NAME, all, measured.clone(), MeasurementOutcome::Note(note));
    if entries >= MANY {
        whole = explain(whole, place, entries);
    }
    vec![
        Finding::new(NAME, format!("open {short}"), measured, MeasurementOutcome::Time(first)),
        whole,
    ]
}

fn explain(finding: Finding, place: &CandidateDirectory, entries: u32) -> Finding {
    let finding = finding.because(format!(
        "{entries} entries; file managers and dialogs that insert each into a sorted list take seconds for them"
    ));
    match place.kind {
        DirectoryPurpose::Thumbnails => {
            finding.remedy(Remedy::RemoveThumbnails(place.path.clone()))
        }
        DirectoryPurpose::Trash => finding.hint("empty the trash"),
        DirectoryPurpose::Applications => finding,
        DirectoryPurpose::Folder => {
            finding.hint("move what is old into folders of their own, for example by year")
        }
    }
}

/// Opens each mount that another machine or another program answers for.
fn mounts(machine: &Machine, worker: &WorkerProgram, tools: &StepContext<'_>) -> Vec<Finding> {
    let mounts = match Mounts::read() {
        Ok(mounts) => mounts,
        Err(error) => {
            let outcome = MeasurementOutcome::Skipped(format!("cannot read the mounts: {error}"));
            return vec![Finding::new(NAME, "mounts", "/proc/self/mountinfo", outcome)];
        }
    };
    let waits = |mount: &&MountInfo| waits_for_others(mount) && is_reached(mount, machine.uid);
    let slow: Vec<&MountInfo> = mounts.iter().filter(waits).collect();
    let mut findings = Vec::new();
    for mount in slow.iter().take(MOUNTS) {
        if tools.stopped() {
            break;
        }
        let look = DirectoryReader {
            worker,
            fields: AttributeSet::NONE,
            patience: PATIENCE,
            clock: tools.clock,
        };
        findings.push(of_mount(mount, look.at(&mount.point), machine.uid));
    }
    if slow.len() > MOUNTS {
        let note = format!("{} more were not looked at", slow.len() - MOUNTS);
        findings.push(Finding::new(NAME, "other mounts", "", MeasurementOutcome::Note(note)));
    }
    findings
}

/// Returns whether somebody else answers for a mount, who may be away.
fn waits_for_others(mount: &MountInfo) -> bool {
    // Looking at an automount would start it.
    (mount.is_network() || mount.is_fuse()) && mount.fs_type != "autofs"
}

/// Returns whose FUSE a mount is.
fn owner_of_fuse(mount: &MountInfo) -> Option<u32> {
    mount.fs_options.iter().find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
}

/// Returns whether programs of this user get to a mount: not to another user's FUSE, nor to what is in another user's directories.
fn is_reached(mount: &MountInfo, uid: u32) -> bool {
    let is_others_fuse = mount.is_fuse()
        && owner_of_fuse(mount).is_some_and(|owner| owner != uid)
        && !mount.has("allow_other");
    let session = mount.point.strip_prefix("/run/user").ok().and_then(|rest| rest.iter().next());
    let is_others_session =
        session.and_then(|user| user.to_str()?.parse().ok()).is_some_and(|user: u32| user != uid);
    // The directory above it, which does not wait for anybody else as a rule.
    let above = mount.point.parent().unwrap_or(&mount.point);
    let may_enter =
        || accessat(CWD, above, Access::EXEC_OK, AtFlags::EACCESS) != Err(Errno::ACCESS);
    !is_others_fuse && !is_others_session && may_enter()
}

fn of_mount(mount: &MountInfo, looked: ListingOutcome, uid: u32) -> Finding {
    let point = mount.point.display().to_string();
    let who = if mount.is_network() {
        format!("another machine answers for it ({})", mount.fs_type)
    } else {
        format!("a program answers for it ({})", mount.fs_type)
    };
    let measured = format!("listed {point} in another process, at most {}", duration(PATIENCE));
    let name = format!("open {point}");
    match looked {
        ListingOutcome::Silent => {
            let is_own_fuse = mount.is_fuse() && owner_of_fuse(mount) == Some(uid);
            let point = mount.point.clone();
            silent(&point.display().to_string())
                .because(who)
                .remedy(Remedy::Detach { point, is_own_fuse })
        }
        ListingOutcome::Answered(seen) => {
            let mut samples = Samples::default();
            samples.push(report::figure::nanoseconds(seen.first));
            let finding = Finding::new(NAME, name, measured, MeasurementOutcome::Time(samples))
                .because(format!("{who}: when it is away, programs that open it hang"));
            if mount.fs_type.starts_with("nfs") && !mount.has("soft") && !mount.has("softerr") {
                return finding.hint("mount it with softerr,timeo=50 so that calls fail instead of hanging, where nothing writes to it that must not be lost");
            }
            finding
        }
        ListingOutcome::Missing => {
            Finding::new(NAME, name, measured, MeasurementOutcome::Note("is not there".into()))
        }
        ListingOutcome::Failed(why) if why.starts_with(&Errno::NOTCONN.to_string()) => {
            let is_own_fuse = owner_of_fuse(mount) == Some(uid);
            Finding::new(NAME, name, measured, MeasurementOutcome::Note(why))
                .because("the program that answered for it has ended")
                .remedy(Remedy::Detach { point: mount.point.clone(), is_own_fuse })
        }
        ListingOutcome::Failed(why) => {
            Finding::new(NAME, name, measured, MeasurementOutcome::Note(why)).because(who)
        }
    }
}

/// A directory that does not answer.
fn silent(name: &str) -> Finding {
    let measured = format!("listed {name} in another process");
    let wrong = format!("no answer within {}: programs that open it hang", duration(PATIENCE));
    Finding::new(NAME, format!("open {name}"), measured, MeasurementOutcome::Wrong(wrong))
}

/// Returns a number of nanoseconds without its fraction.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times of a second")]
fn nanos(time: f64) -> u64 {
    time.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::SystemTime;

    use sys::clock::Clock;

    use super::super::finding::Help;
    use super::*;

    /// A machine so slow that a minute is over at each look.
    #[derive(Debug, Default)]
    struct MinuteClock(AtomicU64);

    impl Clock for MinuteClock {
        fn now(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(60 * self.0.fetch_add(1, Ordering::Relaxed))
        }
    }

    #[test]
    fn directories_for_which_no_time_is_left_are_not_called_small() {
        let machine = Machine { home: Some("/no/such/home".into()), ..Machine::default() };
        let worker = WorkerProgram { path: "/no/such/worker".into(), arguments: Vec::new() };
        let (clock, stop) = (MinuteClock::default(), AtomicBool::new(false));
        let tools = StepContext { clock: &clock, frame: report::grade::FRAME, stop: &stop };
        let findings = directories(&machine, &worker, &tools);
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        let MeasurementOutcome::Note(note) = &finding.outcome else { panic!("{finding:?}") };
        assert!(note.starts_with("not all were opened"), "{note}");
    }

    fn mount(line: &str) -> MountInfo {
        Mounts::parse(line.as_bytes()).iter().next().unwrap().clone()
    }

    #[test]
    fn mounts_that_others_answer_for_are_looked_at() {
        assert!(waits_for_others(&mount("31 30 0:40 / /far ro - nfs4 host:/far rw\n")));
        assert!(waits_for_others(&mount("31 30 0:40 / /far ro - fuse.sshfs host: rw\n")));
        assert!(!waits_for_others(&mount("31 30 0:40 / / rw - ext4 /dev/sda rw\n")));
        assert!(!waits_for_others(&mount("31 30 0:40 / /auto rw - autofs systemd-1 rw\n")));
    }

    #[test]
    fn mounts_of_other_users_are_left_out() {
        let fuse = |point: &str, options: &str| {
            mount(&format!("31 30 0:40 / {point} rw - fuse.x x rw,{options}\n"))
        };
        assert!(is_reached(&fuse("/mine", "user_id=1000,group_id=1000"), 1000));
        assert!(is_reached(&fuse("/shared", "user_id=0,group_id=0,allow_other"), 1000));
        assert!(!is_reached(&fuse("/theirs", "user_id=1001,group_id=1001"), 1000));
        assert!(!is_reached(&fuse("/theirs", "user_id=1001,group_id=1001"), 0), "not even root's");
        assert!(is_reached(&fuse("/run/user/1000/doc", "user_id=1000"), 1000));
        assert!(!is_reached(&fuse("/run/user/1001/doc", "user_id=1001,allow_other"), 1000));
        assert!(is_reached(&mount("31 30 0:40 / /far rw - nfs4 host:/far rw\n"), 1000));
    }

    #[test]
    fn a_mount_without_an_answer_is_wrong_and_one_with_an_answer_is_timed() {
        let far = mount("31 30 0:40 / /far rw - nfs4 host:/far rw,hard\n");
        let finding = of_mount(&far, ListingOutcome::Silent, 1000);
        assert!(matches!(finding.outcome, MeasurementOutcome::Wrong(_)) && finding.help.len() == 1);
        let seen = look::DirectoryTimes {
            first: Duration::from_millis(3),
            done: Duration::from_millis(4),
            entries: 2,
        };
        let finding = of_mount(&far, ListingOutcome::Answered(seen), 1000);
        assert!(
            matches!(&finding.outcome, MeasurementOutcome::Time(samples) if samples.median() == 3e6)
        );
        assert!(matches!(&finding.help[..], [Help::Hint(hint)] if hint.contains("softerr")));
    }
}
