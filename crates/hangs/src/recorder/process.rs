//! What `/proc` says of a process, and of its first thread.

use std::fs;
use std::time::SystemTime;

use sys::clock::since_boot;

use super::program_name::program_name;
use super::{nanoseconds, unix_ns};
use crate::model::HELPER;

/// So many processes that started each other are looked through.
const GENERATIONS: usize = 16;
/// The ends of the names of units that contain processes.
const UNIT_ENDINGS: [&str; 3] = [".service", ".scope", ".slice"];

/// A process, which is another one when its number is used again.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct ProcessIdentity {
    /// Its number.
    pub(crate) process: u32,
    /// When it began, in the kernel's ticks since boot.
    pub(crate) began: u64,
}

/// Returns the identity of a process; `None` if it has ended.
pub(crate) fn identity(process: u32) -> Option<ProcessIdentity> {
    let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
    let fields = stat_fields(&stat)?;
    let state = *fields.first()?;
    let began = fields.get(19)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(ProcessIdentity { process, began })
}

/// Returns when a process began, in nanoseconds since 1970 and of the monotonic clock; `None` if it has ended. The moments are
/// `now` by both clocks.
pub(crate) fn began_ns(process: u32, now: SystemTime, now_ns: u64) -> Option<(u64, u64)> {
    let ticks = identity(process)?.began;
    let a_second = rustix::param::clock_ticks_per_second().max(1);
    let began = u128::from(ticks) * 1_000_000_000 / u128::from(a_second);
    // The kernel counts the time in which the machine was suspended, too.
    let ago_ns = nanoseconds(since_boot()).saturating_sub(u64::try_from(began).unwrap_or(u64::MAX));
    Some((unix_ns(now).saturating_sub(ago_ns), now_ns.saturating_sub(ago_ns)))
}

/// Returns the process that started another one, or took its place; `None` if it has ended.
pub(super) fn parent(process: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
    stat_fields(&stat)?.get(1)?.parse().ok()
}

/// The state of the first thread of a process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ThreadState {
    /// The kernel's letter for it.
    pub(crate) letter: char,
    /// Where its stack begins, which is elsewhere after each `execve`.
    pub(crate) stack_start: u64,
    /// Whether its process has other threads, too.
    pub(crate) has_others: bool,
}

/// Returns the state of the first thread of a process; `None` if it has ended.
pub(crate) fn thread_state(process: u32) -> Option<ThreadState> {
    let stat = fs::read(format!("/proc/{process}/task/{process}/stat")).ok()?;
    let fields = stat_fields(&stat)?;
    let stack_start = fields.get(25)?.parse().ok()?;
    let threads: u64 = fields.get(17)?.parse().ok()?;
    let letter = fields.first()?.chars().next()?;
    Some(ThreadState { letter, stack_start, has_others: threads > 1 })
}

/// Returns the fields behind the name, which may contain parentheses.
fn stat_fields(stat: &[u8]) -> Option<Vec<&str>> {
    let name = stat.iter().rposition(|byte| *byte == b')')?;
    Some(str::from_utf8(&stat[name + 1..]).ok()?.split_ascii_whitespace().collect())
}

/// Returns the control group of a process, below the root of those that it sees; empty if it is not known.
pub(super) fn control_group(process: u32) -> String {
    let groups = fs::read(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let mut lines = groups.split(|byte| *byte == b'\n');
    let path = lines.find_map(|line| line.strip_prefix(b"0::")).unwrap_or_default();
    String::from_utf8_lossy(path).into_owned()
}

/// Returns the unit of systemd that contains a process, or its control group where none does; empty if it is not known.
pub(crate) fn unit_name(process: u32) -> String {
    unit_in(&control_group(process)).to_owned()
}

/// Returns the innermost unit of a control group, or the last part of its name, as in a container or beside another service manager.
fn unit_in(group: &str) -> &str {
    let parts = || group.rsplit('/').filter(|part| !part.is_empty());
    let is_unit = |part: &&str| UNIT_ENDINGS.iter().any(|ending| part.ends_with(ending));
    let last = parts().next().unwrap_or_default();
    // A slice has no processes of its own but for such a group below it.
    let inner = parts().find(|part| is_unit(part) && !part.ends_with(".slice"));
    match is_unit(&last) {
        true => last,
        false => inner.unwrap_or(last),
    }
}

/// Returns the name of the program that a process runs, with [`HELPER`] if a process that is followed started it, by itself or by others
/// of the same program. `followed` returns the names of those.
pub(super) fn name_beside<'a>(process: u32, followed: impl Fn(u32) -> Option<&'a str>) -> String {
    let name = program_name(process);
    let helper = format!("{name}{HELPER}");
    let mut at = process;
    for _ in 0..GENERATIONS {
        let Some(above) = parent(at).filter(|above| *above > 1) else { break };
        match followed(above) {
            Some(known) if *known == *name || *known == *helper => return helper,
            Some(_) => break,
            // It started others and shows nothing itself.
            None if program_name(above) == name => at = above,
            None => break,
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_an_identity_and_a_name() {
        let own = identity(std::process::id()).unwrap();
        assert_eq!(identity(own.process), Some(own));
        assert!(!program_name(own.process).is_empty());
        assert_eq!(identity(u32::MAX), None);
    }

    #[test]
    fn a_process_is_of_its_innermost_unit_or_of_its_control_group() {
        for (group, expected) in [
            ("/user.slice/user-1000.slice/session-2.scope", "session-2.scope"),
            ("/user.slice/user-1000.slice", "user-1000.slice"),
            ("/system.slice/cron.service", "cron.service"),
            ("/user.slice/user@1000.service/app.slice/app-x.scope/payload/a", "app-x.scope"),
            ("/docker/0123abc", "0123abc"),
            ("/machine/notes", "notes"),
            ("/user.slice/other", "other"),
            ("/", ""),
            ("", ""),
        ] {
            assert_eq!(unit_in(group), expected, "{group}");
        }
    }

    #[test]
    fn this_process_began_after_the_machine_and_before_now() {
        let clock = sys::clock::SystemClock::start();
        let now = sys::clock::Clock::now(&clock);
        let now_ns = sys::bpf::clock_ns();
        let (unix, monotonic) = began_ns(std::process::id(), now, now_ns).unwrap();
        assert!(monotonic < now_ns && unix < unix_ns(now));
        assert!((unix_ns(now) - unix).abs_diff(now_ns - monotonic) <= 1_000_000, "the same moment");
        assert!(now_ns - monotonic < 600_000_000_000, "a test takes no ten minutes");
        assert_eq!(began_ns(u32::MAX, now, now_ns), None);
    }

    #[test]
    fn a_process_that_another_one_of_the_same_program_started_is_its_helper() {
        let own = std::process::id();
        let dir = tempfile::tempdir().unwrap();
        let shell = dir.path().join("browser");
        fs::copy("/bin/sh", &shell).unwrap();
        // One that shows nothing starts another one; `wait` keeps a shell from taking the place of itself.
        let script = "$0 -c 'sleep 600 & echo $$; wait' $0; wait";
        let mut child = std::process::Command::new(&shell)
            .args(["-c", script])
            .arg(&shell)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        let helper: u32 = line.trim().parse().unwrap();
        let name = |followed: u32, of: &'static str| {
            name_beside(helper, |process| (process == followed).then_some(of))
        };
        let names = [
            name(child.id(), "browser"),
            name(child.id(), "browser (helper)"),
            name(child.id(), "notes"),
            name(own, "notes"),
            name_beside(child.id(), |_| None),
        ];
        let sleeper = fs::read_to_string(format!("/proc/{helper}/task/{helper}/children")).unwrap();
        for process in
            sleeper.split_whitespace().map(|process| process.parse().unwrap()).chain([helper])
        {
            let process = rustix::process::Pid::from_raw(process.cast_signed()).unwrap();
            rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
        }
        child.wait().unwrap();
        assert_eq!(names[0], "browser (helper)");
        assert_eq!(names[1], "browser (helper)");
        assert_eq!(names[2..], ["browser", "browser", "browser"], "the last two are none");
    }
}
