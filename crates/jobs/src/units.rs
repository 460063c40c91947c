//! Units of systemd that are known to work in the background, and the scheduling settings in the files of a unit.
//!
//! systemd.unit(5), systemd.exec(5), systemd.resource-control(5). Of a unit only the settings of `[Service]` that matter here are read; a setting that stands twice counts as it stood last.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Units that update, index or back up, and that nobody waits for.
pub const KNOWN: [&str; 28] = [
    "apt-daily-upgrade.service",
    "apt-daily.service",
    "bees.service",
    "borgbackup.service",
    "borgmatic.service",
    "btrfs-scrub@.service",
    "dnf-automatic.service",
    "dnf-makecache.service",
    "dpkg-db-backup.service",
    "flatpak-system-helper.service",
    "flatpak-update.service",
    "fstrim.service",
    "fwupd-refresh.service",
    "kde-baloo.service",
    "localsearch-3.service",
    "man-db.service",
    "mlocate-updatedb.service",
    "packagekit.service",
    "plocate-updatedb.service",
    "restic-backup.service",
    "rpm-ostreed-automatic.service",
    "snapd.service",
    "snapper-cleanup.service",
    "snapper-timeline.service",
    "tracker-extract-3.service",
    "tracker-miner-fs-3.service",
    "unattended-upgrades.service",
    "updatedb.service",
];

/// Those whose programs put themselves into the idle class (their sources say so): no setting of the unit tells.
pub const IDLE_BY_PROGRAM: [&str; 4] = [
    "kde-baloo.service",
    "localsearch-3.service",
    "tracker-extract-3.service",
    "tracker-miner-fs-3.service",
];

/// The `IOWeight=` of units that say nothing (systemd.resource-control(5)).
const DEFAULT_WEIGHT: u32 = 100;
/// Without this template nothing is started beside an adopted unit.
const TEMPLATE: &str = "unjank-run@.service";
/// Longer unit files are none.
const LONGEST: u64 = 256 * 1024;
/// More units than this are not looked at.
const MOST: usize = 4096;

/// Returns whether a unit is one of [`KNOWN`], or is made of a template among them, as `btrfs-scrub@home.service`.
#[must_use]
pub fn is_known(unit: &str) -> bool {
    let parts = unit.split_once('@').zip(unit.rsplit_once('.'));
    let template = parts.map(|((name, _), (_, kind))| format!("{name}@.{kind}"));
    KNOWN.iter().any(|known| *known == unit || template.as_deref() == Some(*known))
}

/// A manager of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// That of the system.
    System,
    /// That of one user, whose configuration may hold units.
    User,
}

impl Manager {
    /// Returns the directories in which it finds units, the strongest first. `configuration` is the user's.
    #[must_use]
    pub fn places(self, configuration: Option<&Path>) -> Vec<PathBuf> {
        let name = match self {
            Manager::System => "system",
            Manager::User => "user",
        };
        let fixed = [
            "/etc/systemd",
            "/run/systemd",
            "/usr/local/lib/systemd",
            "/usr/lib/systemd",
            "/lib/systemd",
        ];
        let own = configuration.filter(|_| self == Manager::User).map(|path| path.join("systemd"));
        own.into_iter().chain(fixed.map(PathBuf::from)).map(|path| path.join(name)).collect()
    }
}

/// The scheduling settings in the files of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitSettings {
    /// `IOSchedulingClass=`.
    pub io_class: Option<String>,
    /// `CPUSchedulingPolicy=`.
    pub cpu_policy: Option<String>,
    /// `IOWeight=`.
    pub io_weight: Option<String>,
    /// Whether `unjank run --attach` is started beside it: the unit wants it, and its template is there.
    pub is_adopted: bool,
}

impl UnitSettings {
    /// Returns whether its reads are to be in the idle class.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        match self.io_class.as_deref() {
            // Without a class the kernel goes by the policy (ioprio_set(2)).
            None => self.cpu_policy.as_deref() == Some("idle"),
            Some(class) => class == "idle" || class == "3",
        }
    }

    /// Returns whether it yields the disk to others in a way that acts. `class_acts` and `weight_acts` say whether I/O classes
    /// and weights have an effect for it; a weight yields only below that of the others.
    #[must_use]
    pub fn yields(&self, class_acts: bool, weight_acts: bool) -> bool {
        let weight = || self.io_weight.as_deref()?.parse::<u32>().ok();
        self.is_adopted
            || class_acts && self.is_idle()
            || weight_acts && weight().is_some_and(|weight| weight < DEFAULT_WEIGHT)
    }

    fn read(&mut self, text: &str) {
        let mut section = "";
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = name;
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            let value = value.trim();
            let set = || (!value.is_empty()).then(|| value.to_owned());
            match (section, key.trim()) {
                ("Service", "IOSchedulingClass") => self.io_class = set(),
                ("Service", "CPUSchedulingPolicy") => self.cpu_policy = set(),
                ("Service", "IOWeight") => self.io_weight = set(),
                ("Unit", "Wants") if value.starts_with("unjank-run@") => self.is_adopted = true,
                _ => (),
            }
        }
    }
}

/// Returns the services in `places`, with what is said of each; those that are masked are not among them.
#[must_use]
pub fn services(places: &[PathBuf]) -> BTreeMap<String, UnitSettings> {
    let mut names = BTreeSet::new();
    for place in places {
        let Ok(entries) = fs::read_dir(place) else { continue };
        let found = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.extend(found.filter(|name| name.ends_with(".service")).take(MOST));
    }
    names.into_iter().filter_map(|name| Some((name.clone(), settings(places, &name)?))).collect()
}

/// Returns what the files of `unit` say; `None` if there is none or it is masked.
#[must_use]
pub fn settings(places: &[PathBuf], unit: &str) -> Option<UnitSettings> {
    let file = file_of(places, unit)?;
    let mut settings = UnitSettings::default();
    settings.read(&text(&file)?);
    // Drop-ins count in the order of their names; of one name the one in the strongest place.
    let mut drop_ins: BTreeMap<String, PathBuf> = BTreeMap::new();
    for place in places.iter().rev() {
        let Ok(entries) = fs::read_dir(place.join(format!("{unit}.d"))) else { continue };
        for entry in entries.filter_map(Result::ok) {
            if let Ok(name) = entry.file_name().into_string()
                && name.ends_with(".conf")
            {
                drop_ins.insert(name, entry.path());
            }
        }
    }
    for path in drop_ins.values() {
        if let Some(text) = text(path) {
            settings.read(&text);
        }
    }
    settings.is_adopted &= file_of(places, TEMPLATE).is_some();
    Some(settings)
}

/// Returns the file of `unit` in the strongest place that has one; `None` if there is none, or that one is masked.
fn file_of(places: &[PathBuf], unit: &str) -> Option<PathBuf> {
    let file = places.iter().map(|place| place.join(unit)).find(|path| path.exists())?;
    // A mask leads to /dev/null.
    file.is_file().then_some(file)
}

fn text(path: &Path) -> Option<String> {
    // A pipe that somebody put there would hold us up.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn put(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut options = fs::OpenOptions::new();
        let mut file = options.create(true).write(true).truncate(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn drop_ins_count_after_the_unit_and_the_strongest_place_wins() {
        let dir = tempfile::tempdir().unwrap();
        let (own, lib) = (dir.path().join("own"), dir.path().join("lib"));
        let places = [own.clone(), lib.clone()];
        put(&lib.join("a.service"), "[Service]\nIOSchedulingClass=best-effort\n");
        put(&lib.join("a.service.d/50-x.conf"), "[Service]\nIOSchedulingClass = idle\n");
        put(&lib.join("b.service"), "[Install]\nIOSchedulingClass=idle\n[Service]\nIOWeight=10\n");
        put(&lib.join("c.service"), "[Service]\nCPUSchedulingPolicy=idle\n");
        std::os::unix::fs::symlink("/dev/null", own.with_file_name("null")).unwrap();
        fs::create_dir_all(&own).unwrap();
        std::os::unix::fs::symlink("/dev/null", own.join("c.service")).unwrap();
        put(&lib.join("d.service"), "\u{0}nonsense\n[Service\n=\n[Service]\nIOWeight=\n");
        let found = services(&places);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a.service", "b.service", "d.service"]);
        assert!(found["a.service"].is_idle());
        assert!(!found["b.service"].is_idle());
        assert_eq!(found["d.service"], UnitSettings::default());
        put(&own.join("a.service.d/50-x.conf"), "[Unit]\nWants=unjank-run@%n.service\n");
        let again = settings(&places, "a.service").unwrap();
        assert!(!again.is_idle() && !again.is_adopted, "what it wants is not there");
        put(&lib.join(TEMPLATE), "[Service]\n");
        let again = settings(&places, "a.service").unwrap();
        assert!(again.is_adopted && again.yields(false, false));
        std::os::unix::fs::symlink("/dev/null", own.join(TEMPLATE)).unwrap();
        assert!(!settings(&places, "a.service").unwrap().is_adopted, "its template is masked");
    }

    #[test]
    fn a_unit_of_a_template_is_known_as_its_template() {
        for known in ["man-db.service", "btrfs-scrub@.service", "btrfs-scrub@home-a.service"] {
            assert!(is_known(known), "{known}");
        }
        for other in ["man-db@x.service", "btrfs-scrub@home.timer", "btrfs-scrub@", "@", "", "sshd"]
        {
            assert!(!is_known(other), "{other}");
        }
    }

    #[test]
    fn only_what_acts_yields_the_disk() {
        let unit = |text: &str| {
            let mut settings = UnitSettings::default();
            settings.read(&format!("[Service]\n{text}\n"));
            settings
        };
        // What it says; whether it yields where nothing acts, where classes do, where weights do.
        for (text, yields) in [
            ("", [false, false, false]),
            ("IOSchedulingClass=idle", [false, true, false]),
            ("CPUSchedulingPolicy=idle", [false, true, false]),
            ("IOSchedulingClass=best-effort", [false, false, false]),
            ("IOSchedulingClass=best-effort\nCPUSchedulingPolicy=idle", [false, false, false]),
            ("IOSchedulingClass=3\nCPUSchedulingPolicy=other", [false, true, false]),
            ("IOWeight=10", [false, false, true]),
            ("IOWeight=100", [false, false, false]),
            ("IOWeight=1000", [false, false, false]),
            ("IOWeight=much", [false, false, false]),
        ] {
            let unit = unit(text);
            let found = [(false, false), (true, false), (false, true)];
            assert_eq!(found.map(|(class, weight)| unit.yields(class, weight)), yields, "{text}");
        }
    }
}
