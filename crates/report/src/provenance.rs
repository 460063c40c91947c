//! Where figures come from: the command, the program, the machine and the date.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::figure::Quantity;

/// What has to be said beside every figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The command that made the figures.
    pub command: String,
    /// The version of this program.
    pub version: String,
    /// When, in UTC, as RFC 3339 writes it.
    pub date: String,
    /// The kernel's name and release.
    pub kernel: String,
    /// The processor, as it calls itself, and how many of them.
    pub processor: String,
    /// How many processors there are.
    pub processors: usize,
    /// All memory, in bytes.
    pub memory_bytes: u64,
    /// Whether this program was built with optimisation; figures of one that was not say little.
    pub optimised: bool,
    /// The profile that cargo built this program with: `dist` is that of packages. Empty in documents of earlier versions.
    #[serde(default)]
    pub profile: String,
}

impl Provenance {
    /// Describes this machine at `now`.
    #[must_use]
    pub fn of_this_machine(command: String, now: SystemTime) -> Provenance {
        let uname = rustix::system::uname();
        let kernel =
            format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy());
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let machine = uname.machine().to_string_lossy().into_owned();
        let memory = rustix::system::sysinfo();
        let unit = u64::from(memory.mem_unit.max(1));
        #[expect(
            clippy::useless_conversion,
            reason = "the field is narrower on some architectures"
        )]
        let memory_bytes = u64::from(memory.totalram).saturating_mul(unit);
        Provenance {
            command,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            date: date(now),
            kernel,
            processor: model.map_or(machine, |(_, name)| name.trim().to_owned()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes,
            optimised: !cfg!(debug_assertions),
            profile: env!("UNJANK_PROFILE").to_owned(),
        }
    }

    /// Returns whether this program was built as that of a package is: figures of another one are worse.
    #[must_use]
    pub fn is_built_as_packaged() -> bool {
        matches!(env!("UNJANK_PROFILE"), "" | "dist")
    }

    /// Returns the lines that stand under a table.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let build = match &*self.profile {
            _ if !self.optimised => " (debug build: the figures are not ours to show)".to_owned(),
            "" | "dist" => String::new(),
            other => {
                format!(" (built with the profile {other}: the figures are not those of a package)")
            }
        };
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let memory = Quantity::Size.show(self.memory_bytes as f64);
        vec![
            format!("{} · unjank {}{build}", self.command, self.version),
            format!("{} · {} x {} · {memory}", self.kernel, self.processors, self.processor),
            self.date.clone(),
        ]
    }
}

fn date(now: SystemTime) -> String {
    jiff::Timestamp::try_from(now).map_or_else(
        |_| "unknown".to_owned(),
        |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_date_is_in_utc_and_to_the_second() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_260_477_123);
        assert_eq!(date(time), "2026-11-21T11:27:57Z");
    }

    #[test]
    fn what_was_not_built_as_packages_are_is_told() {
        let mut this = Provenance::of_this_machine(String::new(), SystemTime::UNIX_EPOCH);
        assert!(!this.profile.is_empty());
        this.optimised = true;
        for (profile, told) in [("release", true), ("dist", false), ("", false)] {
            this.profile = profile.to_owned();
            let line = &this.lines()[0];
            assert_eq!(line.contains("built with the profile release: "), told, "{line}");
        }
        this.optimised = false;
        assert!(this.lines()[0].contains("debug build"));
    }

    #[test]
    fn this_machine_has_a_kernel_and_memory() {
        let this = Provenance::of_this_machine("unjank doctor".to_owned(), SystemTime::UNIX_EPOCH);
        assert!(this.kernel.starts_with("Linux "), "{}", this.kernel);
        assert!(this.memory_bytes > 1 << 20 && this.processors > 0);
    }
}
