//! The commands of unjank that remove a cause, where one does, and what they brought where they are on.

use std::collections::BTreeMap;

use report::advice::Advice;
use serde::Serialize;

use crate::excluded::shared_list;
use crate::model::{
    CountedProcesses, DiskUse, DiskUser, Hang, HangCause, ObjectKind, is_of_program, without_helper,
};

/// What removes the cause of a hang.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HangRemedy {
    /// Syncs of lists of recent documents cost nothing.
    Relax,
    /// Lists of recent documents are in memory.
    Recents,
    /// The settings service writes less and has many changes share one write.
    Settings,
    /// Programs that keep their settings in a key file, which they sync themselves, use the settings service.
    Gsettings,
    /// Host commands of sandboxed programs are run by unjank.
    Host,
    /// Known background units of the user are held while programs wait.
    Run,
    /// The same for those of the system.
    SystemRun,
    /// Work that a person starts is started as a background job.
    Job,
}

impl HangRemedy {
    /// All of them.
    pub const ALL: [HangRemedy; 8] = [
        HangRemedy::Relax,
        HangRemedy::Recents,
        HangRemedy::Settings,
        HangRemedy::Gsettings,
        HangRemedy::Host,
        HangRemedy::Run,
        HangRemedy::SystemRun,
        HangRemedy::Job,
    ];

    /// Returns the name of the part that is switched on; `None` if there is nothing to switch on.
    #[must_use]
    pub fn part(self) -> Option<&'static str> {
        Some(match self {
            HangRemedy::Relax => "relax",
            HangRemedy::Recents => "recents",
            HangRemedy::Settings => "settings",
            HangRemedy::Gsettings => "gsettings",
            HangRemedy::Host => "host",
            HangRemedy::Run | HangRemedy::SystemRun => "run",
            HangRemedy::Job => return None,
        })
    }

    /// Returns whether only programs have it that are started after the next login.
    #[must_use]
    pub fn begins_at_login(self) -> bool {
        matches!(self, HangRemedy::Relax | HangRemedy::Gsettings)
    }

    /// Returns what it does, with the command for it.
    #[must_use]
    pub fn advice(self) -> Advice {
        let text = match self {
            HangRemedy::Relax => "programs do not wait for syncs of their recent-document lists",
            HangRemedy::Recents => "lists of recent documents are in memory",
            HangRemedy::Settings => {
                "unjankd stores settings with shorter writes, and all that wait share one"
            }
            HangRemedy::Gsettings => {
                "programs have the settings service write what they sync into a key file of their own now; what is in that file is not taken over"
            }
            HangRemedy::Host => "host commands of sandboxed programs are answered by unjank",
            HangRemedy::Run => "known background units are held while programs wait for the disk",
            HangRemedy::SystemRun => {
                "known background units of the system, as those of updates, are held while programs wait for the disk"
            }
            HangRemedy::Job => {
                "work that is started so leaves disks and processors to other programs; if it runs already: unjank run --attach PROCESS"
            }
        };
        let command = match (self, self.part()) {
            (HangRemedy::SystemRun, _) => "sudo unjank setup --system run".to_owned(),
            (_, Some(part)) => format!("unjank setup {part}"),
            (_, None) => "unjank run -- COMMAND".to_owned(),
        };
        Advice { text: text.to_owned(), command: Some(command) }
    }
}

/// The remedies that are on, with since when that is known, in nanoseconds since 1970.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AppliedRemedies(Vec<(HangRemedy, Option<u64>)>);

impl AppliedRemedies {
    /// None is on.
    pub const NONE: AppliedRemedies = AppliedRemedies(Vec::new());

    /// Makes it of those that are on.
    #[must_use]
    pub fn new(on: Vec<(HangRemedy, Option<u64>)>) -> AppliedRemedies {
        AppliedRemedies(on)
    }

    /// Returns whether one is on, and since when if that is known.
    fn since(&self, remedy: HangRemedy) -> Option<Option<u64>> {
        self.0.iter().find(|(on, _)| *on == remedy).map(|(_, since_ns)| *since_ns)
    }
}

/// What there is to say of a remedy of a hang.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum RemedyState {
    /// It would remove the cause.
    Off,
    /// It was switched on after the hang.
    OnSince {
        /// When, in nanoseconds since 1970.
        since_unix_ns: u64,
    },
    /// It was on and did not help.
    InVain,
}

/// A remedy of a hang, and whether it is on.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct HangAdvice {
    /// The remedy.
    pub remedy: HangRemedy,
    /// Whether it is on.
    #[serde(flatten)]
    pub state: RemedyState,
}

impl HangAdvice {
    /// Returns the command that would remove the cause.
    #[must_use]
    pub fn command(&self) -> Option<String> {
        self.remedy.advice().command.filter(|_| self.state == RemedyState::Off)
    }
}

/// Returns what removes the cause of a hang, beside what is on: what would, or since when it is on, or that it is on and did not
/// help. `None` where no part of unjank does.
#[must_use]
pub fn advise(hang: &Hang, applied: &AppliedRemedies) -> Option<HangAdvice> {
    let remedies = remedies_of(hang);
    let later = remedies.iter().find_map(|remedy| {
        let since_unix_ns = applied.since(*remedy)??;
        let is_later = hang.started_ns < since_unix_ns;
        is_later.then_some((*remedy, RemedyState::OnSince { since_unix_ns }))
    });
    let off = || remedies.iter().find(|remedy| applied.since(**remedy).is_none());
    let advice = later
        .or_else(|| Some((*off()?, RemedyState::Off)))
        .or_else(|| Some((*remedies.first()?, RemedyState::InVain)));
    advice.map(|(remedy, state)| HangAdvice { remedy, state })
}

/// A remedy, and for how many hangs it is one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RemedyCount {
    /// The remedy, and whether it is on.
    pub advice: HangAdvice,
    /// How many hangs.
    pub hangs: usize,
    /// All of their time, in nanoseconds.
    pub total_ns: u64,
}

/// Returns what there is to say of remedies of some hangs: first what is off and would mend the most time.
#[must_use]
pub fn count_remedies(hangs: &[Hang], applied: &AppliedRemedies) -> Vec<RemedyCount> {
    let mut found: BTreeMap<HangAdvice, (usize, u64)> = BTreeMap::new();
    for hang in hangs {
        if let Some(advice) = advise(hang, applied) {
            let (count, total_ns) = found.entry(advice).or_default();
            *count += 1;
            *total_ns = total_ns.saturating_add(hang.length_ns);
        }
    }
    let found = found.into_iter();
    let mut found: Vec<RemedyCount> =
        found.map(|(advice, (hangs, total_ns))| RemedyCount { advice, hangs, total_ns }).collect();
    let is_on = |count: &RemedyCount| count.advice.state != RemedyState::Off;
    found.sort_by_key(|count| (is_on(count), std::cmp::Reverse(count.total_ns)));
    found
}

/// Returns what removes the cause of a hang, the first choice first; nothing where no part of unjank does.
#[must_use]
pub fn remedies_of(hang: &Hang) -> Vec<HangRemedy> {
    let file = hang.object().filter(|object| object.kind == ObjectKind::File);
    let path = file.map_or("", |file| &*file.name);
    if is_recent_list(path, hang) {
        return match hang.cause {
            // GTK's programs put a new file in the place of the list, and sync it on the disk wherever the list is.
            HangCause::Sync if is_version_of_gtk(path) => vec![HangRemedy::Relax],
            HangCause::Sync => vec![HangRemedy::Relax, HangRemedy::Recents],
            HangCause::FileData | HangCause::PageFault => vec![HangRemedy::Recents],
            _ => of_busy_machine(hang),
        };
    }
    if hang.cause == HangCause::Sync && path.contains("/.config/dconf/") {
        return vec![HangRemedy::Settings];
    }
    // In a sandbox the part does not act.
    let is_key_file = path.contains("/glib-2.0/settings/") && !path.contains("/.var/app/");
    if hang.cause == HangCause::Sync && is_key_file {
        return vec![HangRemedy::Gsettings];
    }
    if waits_for_answer(hang) {
        if waits_for_settings(hang) {
            return vec![HangRemedy::Settings];
        }
        if last_program(hang).is_some_and(|program| program.starts_with("flatpak-session")) {
            return vec![HangRemedy::Host];
        }
    }
    of_busy_machine(hang)
}

/// Returns whether a file is a list of recent documents, a lock of it or a new version of it.
fn is_recent_list(path: &str, hang: &Hang) -> bool {
    // What a sandboxed program has in its own directory is out of the reach of these parts.
    let is_sandboxed = path.contains("/.var/app/");
    // Qt gives a new version a name after it has synced it.
    let is_unnamed = || {
        let name = path.strip_suffix(" (deleted)").and_then(|path| path.rsplit_once("/#"));
        name.is_some_and(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()))
            && hang.frames.iter().any(|frame| frame.function.contains("RecentDocument"))
    };
    !is_sandboxed && (shared_list(path).is_some() || is_unnamed())
}

/// Returns whether a file is a new version of the shared list as GLib makes it, or the list itself.
fn is_version_of_gtk(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.strip_prefix("recently-used.xbel").is_some_and(|ending| !ending.starts_with(".lock"))
}

/// Returns whether a hang may have waited for an answer: on a bus a thread of its own may receive it and wake who asked.
fn waits_for_answer(hang: &Hang) -> bool {
    matches!(
        hang.cause,
        HangCause::OtherProgram | HangCause::OtherCall | HangCause::Lock | HangCause::Child
    )
}

/// Functions that wait until the settings service has stored something.
const SETTINGS_WAITS: [&str; 5] = [
    "dconf_client_write_sync",
    "dconf_client_change_sync",
    "dconf_engine_change_sync",
    "dconf_client_sync",
    "g_settings_sync",
];

/// Returns whether a hang waited for dconf's settings service.
fn waits_for_settings(hang: &Hang) -> bool {
    let asked = || {
        let is_wait = |function: &str| SETTINGS_WAITS.contains(&function);
        hang.frames.iter().any(|frame| is_wait(&frame.function))
    };
    let hops = hang.chain.iter().flat_map(|chain| &chain.hops);
    match hang.waited_for() {
        _ if hops.map(|hop| &*hop.program).any(|program| program == "dconf-service") => true,
        // Without a chain the bus is at the other end.
        None | Some("dbus-daemon" | "dbus-broker" | "unjankd") => asked(),
        Some(_) => false,
    }
}

/// Returns the last program in the chain of the longest wait, if that is another one. A helper that waits for the command that it has
/// started is not what took the time.
fn last_program(hang: &Hang) -> Option<&str> {
    let hops = &hang.chain.as_ref()?.hops;
    let last = hops.iter().rfind(|hop| hop.process != 0)?;
    (last.process != hang.process).then_some(&*last.program)
}

/// So much of ten seconds that some thread waits for a processor means that the machine computes, in hundredths of a percent.
const BUSY_PROCESSORS: u16 = 1000;
/// Whoever reads or writes so much a second, and so much in all, uses a disk, in bytes.
const LEAST_BYTES: u64 = 256 << 10;

/// Programs of background units of users that `unjank setup run` knows (`jobs::units`), by how their names begin.
const USER_BACKGROUND: [&str; 5] =
    ["baloo_file", "localsearch", "tracker-extract", "tracker-miner", "borgmatic"];
/// Programs of background units of the system, in the same way; a user may have started one.
const SYSTEM_BACKGROUND: [&str; 10] = [
    "packagekitd",
    "updatedb",
    "mandb",
    "fwupd",
    "unattended-upgrade",
    "dnf-automatic",
    "snapper",
    "flatpak-system-helper",
    "rpm-ostree",
    "bees",
];

/// Returns what has others step back, where it is known that they used the disk or the processors meanwhile.
fn of_busy_machine(hang: &Hang) -> Vec<HangRemedy> {
    match hang.cause {
        HangCause::Sync | HangCause::FileData | HangCause::FileNames | HangCause::PageFault => {
            let others = hang.disk_use.as_ref().and_then(|used| other_users(hang, used));
            others.map_or(Vec::new(), |others| vec![others])
        }
        // Who had the processors is not recorded.
        HangCause::ProcessorQueue => {
            let is_busy = hang.pressure.is_some_and(|[cpu, ..]| cpu >= BUSY_PROCESSORS);
            if is_busy { vec![HangRemedy::Job] } else { Vec::new() }
        }
        _ => Vec::new(),
    }
}

/// Returns what has those step back who used the disks meanwhile, if it was others, and more than the program itself did.
fn other_users(hang: &Hang, used: &DiskUse) -> Option<HangRemedy> {
    let is_unit = |user: &DiskUser| user.process == 0;
    let is_own = |user: &DiskUser| {
        let is_of_program = is_of_program(&user.program, without_helper(&hang.program));
        user.process == hang.process || (is_of_program && !is_unit(user))
    };
    // What is written to a file may be in memory alone until later.
    let bytes = |user: &DiskUser| {
        let read = user.read_bytes.min(used.read_bytes);
        read.saturating_add(user.written_bytes.min(used.written_bytes))
    };
    let (own, named): (Vec<&DiskUser>, Vec<&DiskUser>) =
        used.programs.iter().partition(|user| is_own(user));
    let sum =
        |users: &[&DiskUser]| users.iter().map(|user| bytes(user)).fold(0, u64::saturating_add);
    let named_bytes = sum(&named);
    let all_bytes = used.read_bytes.saturating_add(used.written_bytes);
    let rest = |all: u64, of: fn(&DiskUser) -> u64| {
        all.saturating_sub(used.programs.iter().map(of).fold(0, u64::saturating_add))
    };
    // Where the program itself was perhaps not looked at, whatever nobody else did may be its own. A sync may write what the program
    // had written to files before.
    let is_known = used.processes == CountedProcesses::All || !own.is_empty();
    let (own_bytes, unnamed_bytes) = match (is_known, hang.cause) {
        (false, _) => (all_bytes.saturating_sub(named_bytes), 0),
        (true, HangCause::Sync) => (sum(&own), rest(used.read_bytes, |user| user.read_bytes)),
        (true, _) => {
            let read = rest(used.read_bytes, |user| user.read_bytes);
            let written = rest(used.written_bytes, |user| user.written_bytes);
            (sum(&own), read.saturating_add(written))
        }
    };
    let seconds = used.counted_ns.div_ceil(1_000_000_000).max(1);
    let others = named_bytes.max(unnamed_bytes);
    if others < LEAST_BYTES.saturating_mul(seconds) || others <= own_bytes {
        return None;
    }
    if unnamed_bytes > named_bytes {
        return Some(HangRemedy::SystemRun);
    }
    let most = named.into_iter().max_by_key(|user| bytes(user))?;
    if is_unit(most) {
        return jobs::units::is_known(&most.program).then_some(HangRemedy::SystemRun);
    }
    let is_one_of = |known: &[&str]| known.iter().any(|name| most.program.starts_with(name));
    if is_one_of(&USER_BACKGROUND) {
        return Some(HangRemedy::Run);
    }
    Some(if is_one_of(&SYSTEM_BACKGROUND) { HangRemedy::SystemRun } else { HangRemedy::Job })
}

#[cfg(test)]
mod tests;
