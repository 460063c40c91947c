//! What the parts of unjank bring here: figures of this run and of earlier ones, kept in one small file.

use std::io;
use std::path::Path;

use report::figure::{Quantity, ratio};
use serde::{Deserialize, Serialize};
use setup::SetupPart;
use store::disk::Disk;
use store::publish::publish;

use crate::Diagnosis;
use crate::finding::{Finding, MeasurementOutcome};
use crate::machine::{Machine, RecentsSyncMode};

/// Where the figures are, below `$XDG_STATE_HOME`.
pub const FILE: &str = "unjank/doctor.json";
/// The name and version of the format.
const SCHEMA: &str = "unjank.doctor.figures/1";
/// A longer file is none of ours.
const LONGEST: u64 = 1 << 20;

/// Returns the steps that a part makes faster, as the doctor names them.
#[must_use]
pub fn steps_of(part: SetupPart) -> &'static [&'static str] {
    match part {
        SetupPart::Settings => &["write a setting, installed"],
        SetupPart::Host => &["run a host command"],
        SetupPart::Relax => &["one add as KDE's programs do", "one add as GTK's programs do"],
        SetupPart::Index => &["ask unjank what opens a file"],
        _ => &[],
    }
}

/// Returns the step that shows beforehand what a part would bring.
fn promise_of(part: SetupPart) -> Option<&'static str> {
    match part {
        SetupPart::Settings => Some("write a setting, unjank"),
        _ => None,
    }
}

/// Returns those of the parts that are switched on which were in effect when the steps of a run were measured.
///
/// Programs load the library of `relax` from the next login on, and another helper may have the name of `host` until then.
#[must_use]
pub fn in_effect(on: Vec<SetupPart>, diagnosis: &Diagnosis, machine: &Machine) -> Vec<SetupPart> {
    let serves = |finding: &Finding| match &finding.outcome {
        MeasurementOutcome::Note(owner) => {
            finding.probe == "host" && finding.name == "service" && owner.contains("/unjankd")
        }
        _ => false,
    };
    let is_effective = |part: &SetupPart| match part {
        SetupPart::Relax => matches!(machine.recents, RecentsSyncMode::Relaxed(_)),
        SetupPart::Host => diagnosis.findings.iter().any(serves),
        _ => true,
    };
    on.into_iter().filter(is_effective).collect()
}

/// The figure of a step in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptFigure {
    /// The step's name.
    pub step: String,
    /// Its median.
    pub median_ns: f64,
    /// Of how many samples.
    pub n: usize,
    /// When it was measured, as RFC 3339 writes it.
    pub date: String,
    /// The parts that were on.
    pub on: Vec<String>,
}

impl KeptFigure {
    fn shown(&self) -> String {
        Quantity::Time.show(self.median_ns)
    }
}

/// The figures that are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptFigures {
    #[serde(default)]
    schema: String,
    /// The last figure of each step.
    #[serde(default)]
    last: Vec<KeptFigure>,
    /// The last figure of each step from before its part was switched on.
    #[serde(default)]
    before: Vec<KeptFigure>,
}

impl KeptFigures {
    /// Reads the figures of earlier runs; none where there is no such file, or a damaged one.
    #[must_use]
    pub fn read(disk: &dyn Disk, path: Option<&Path>) -> KeptFigures {
        let read = || {
            let path = path?;
            disk.check_trusted(path).ok()?;
            disk.stat(path).ok().filter(|stat| stat.len <= LONGEST)?;
            let kept: KeptFigures = serde_json::from_slice(&disk.read(path).ok()?).ok()?;
            let all = || kept.last.iter().chain(&kept.before);
            let is_figure =
                |figure: &KeptFigure| figure.median_ns.is_finite() && figure.median_ns > 0.0;
            (kept.schema == SCHEMA && all().all(is_figure)).then_some(kept)
        };
        read().unwrap_or_default()
    }

    /// Takes the figures of a run in which these parts were on.
    pub fn take(&mut self, diagnosis: &Diagnosis, on: &[SetupPart], date: &str) {
        let on_names: Vec<String> = on.iter().map(|part| part.name().to_owned()).collect();
        for part in SetupPart::ALL {
            for step in steps_of(part).iter().copied().chain(promise_of(part)) {
                let found = diagnosis.findings.iter().find(|finding| finding.name == step);
                let Some((median_ns, n)) = found.and_then(figure) else { continue };
                let figure = KeptFigure {
                    step: step.to_owned(),
                    median_ns,
                    n,
                    date: date.to_owned(),
                    on: on_names.clone(),
                };
                self.before.retain(|old| old.step != step || on.contains(&part));
                let old = self.last.iter().position(|old| old.step == step);
                if let Some(old) = old.map(|at| self.last.remove(at))
                    && on.contains(&part)
                    && !old.on.iter().any(|name| name == part.name())
                {
                    self.before.retain(|known| known.step != step);
                    self.before.push(old);
                }
                self.last.push(figure);
            }
        }
        SCHEMA.clone_into(&mut self.schema);
    }

    /// Keeps them at `path`.
    ///
    /// # Errors
    ///
    /// They are not kept; those of earlier runs are.
    pub fn write(&self, disk: &dyn Disk, path: &Path) -> io::Result<()> {
        disk.check_trusted(path)?;
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        publish(disk, path, &text).map(drop).map_err(io::Error::other)
    }

    fn last_of(&self, step: &str) -> Option<&KeptFigure> {
        self.last.iter().find(|figure| figure.step == step)
    }

    /// Returns the last figures that say something of a part.
    #[must_use]
    pub fn of_part(&self, part: SetupPart) -> Vec<&KeptFigure> {
        let steps = steps_of(part).iter().copied().chain(promise_of(part));
        steps.filter_map(|step| self.last_of(step)).collect()
    }

    /// Returns what is known of a part, a sentence a step; that nothing was measured is one, too.
    #[must_use]
    pub fn lines(&self, part: SetupPart) -> Vec<String> {
        if steps_of(part).is_empty() {
            return vec!["unjank doctor measures no step of it".to_owned()];
        }
        let gains = self.gains(part);
        if !gains.is_empty() {
            return gains;
        }
        let figures = self.of_part(part);
        if figures.is_empty() {
            return vec!["not measured; run unjank doctor".to_owned()];
        }
        let said = figures.iter().map(|figure| format!("{} {}", figure.step, figure.shown()));
        let said: Vec<String> = said.collect();
        let at = figures.first().map_or("", |figure| figure.date.as_str());
        vec![format!("{} (unjank doctor, {at})", said.join("; "))]
    }

    /// Returns what a part that was switched on brought: the same step before and after.
    #[must_use]
    pub fn gains(&self, part: SetupPart) -> Vec<String> {
        let gain = |step: &&str| {
            let before = self.before.iter().find(|figure| figure.step == **step)?;
            let is_after = |figure: &&KeptFigure| figure.on.iter().any(|on| on == part.name());
            let after = self.last_of(step).filter(is_after)?;
            Some(format!(
                "{step}: {} before ({}), {} now ({})",
                before.shown(),
                before.date,
                after.shown(),
                ratio(after.median_ns, before.median_ns)
            ))
        };
        steps_of(part).iter().filter_map(gain).collect()
    }
}

/// Returns the median of a finding and of how many samples.
fn figure(finding: &Finding) -> Option<(f64, usize)> {
    match &finding.outcome {
        MeasurementOutcome::Time(samples) if !samples.is_empty() => {
            Some((samples.median(), samples.len()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use store::sim::SimDisk;

    use super::*;
    use crate::remedy::Shell;

    /// A run in which one write of a setting took so long.
    fn run(kept: &mut KeptFigures, ms: f64, on: &[SetupPart], date: &str) {
        let outcome = MeasurementOutcome::Time(vec![ms * 1e6].into_iter().collect());
        let diagnosis = Diagnosis {
            frame: std::time::Duration::from_millis(16),
            findings: vec![Finding::new("settings", "write a setting, installed", "", outcome)],
            interrupted: false,
            took: std::time::Duration::ZERO,
            shell: Shell::default(),
            gains: Vec::new(),
            hangs: None,
        };
        kept.take(&diagnosis, on, date);
    }

    #[test]
    fn what_a_part_brought_is_the_same_step_before_and_after() {
        let mut kept = KeptFigures::default();
        let part = SetupPart::Settings;
        assert_eq!(kept.lines(part), ["not measured; run unjank doctor"]);
        assert_eq!(kept.lines(SetupPart::Run), ["unjank doctor measures no step of it"]);
        run(&mut kept, 900.0, &[], "Monday");
        assert_eq!(kept.gains(part), [""; 0]);
        run(&mut kept, 800.0, &[], "Tuesday");
        run(&mut kept, 8.0, &[part], "Wednesday");
        let gain = "write a setting, installed: 800 ms before (Tuesday), 8.00 ms now (1/100)";
        assert_eq!(kept.gains(part), [gain]);
        // The figure from before it was switched on stays.
        run(&mut kept, 4.0, &[part, SetupPart::Relax], "Thursday");
        assert!(kept.gains(part)[0].contains("800 ms before (Tuesday), 4.00 ms now (1/200)"));
        let (disk, path) =
            (SimDisk::new().with_dir("/s/unjank"), Path::new("/s/unjank/doctor.json"));
        kept.write(&disk, path).unwrap();
        assert_eq!(KeptFigures::read(&disk, Some(path)), kept);
        // Off again: nothing is claimed.
        run(&mut kept, 900.0, &[], "Friday");
        assert_eq!(kept.gains(part), [""; 0]);
    }

    #[test]
    fn a_part_that_acts_from_the_next_login_on_has_brought_nothing_yet() {
        let mut kept = KeptFigures::default();
        run(&mut kept, 900.0, &[], "Monday");
        let outcome = MeasurementOutcome::Note("/usr/libexec/helper (process 7)".to_owned());
        let mut diagnosis = Diagnosis {
            frame: std::time::Duration::from_millis(16),
            findings: vec![Finding::new("host", "service", "", outcome)],
            interrupted: false,
            took: std::time::Duration::ZERO,
            shell: Shell::default(),
            gains: Vec::new(),
            hangs: None,
        };
        let on = || vec![SetupPart::Settings, SetupPart::Relax, SetupPart::Host];
        let mut machine = Machine { recents: RecentsSyncMode::RelaxedNext, ..Machine::default() };
        assert_eq!(in_effect(on(), &diagnosis, &machine), [SetupPart::Settings]);
        machine.recents = RecentsSyncMode::Relaxed("/l/libunjank-relax.so".into());
        let outcome = MeasurementOutcome::Note("/usr/bin/unjankd (process 7)".to_owned());
        diagnosis.findings = vec![Finding::new("host", "service", "", outcome)];
        assert_eq!(in_effect(on(), &diagnosis, &machine), on());
    }

    #[test]
    fn figures_that_cannot_be_are_none() {
        let path = Path::new("/s/doctor.json");
        let figure = r#"{"step":"a","median_ns":-1,"n":1,"date":"","on":[]}"#;
        let schema = r#"{"schema":"unjank.doctor.figures/1","last":["#;
        for text in ["", "[]", "{}", r#"{"schema":"x/1"}"#, &format!("{schema}{figure}]}}")] {
            let disk = SimDisk::new().with_file(path, text.as_bytes());
            assert_eq!(KeptFigures::read(&disk, Some(path)), KeptFigures::default(), "{text}");
        }
    }
}
