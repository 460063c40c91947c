//! Units that work in the background: those that run in the normal class, and those whose settings have no effect here.

use jobs::cgroup::Cgroup;
use jobs::units::{IDLE_BY_PROGRAM, KNOWN, Manager, UnitSettings, services};
use setup::SetupPart;
use sys::mounts::Mounts;
use sys::sched::{CpuClass, IoClass};

use super::NAME;
use crate::finding::{Finding, MeasurementOutcome};
use crate::machine::Machine;
use crate::remedy::{Remedy, Units};

/// So many names are shown.
const SHOWN: usize = 6;

/// What acts on the disk of this user's files.
#[derive(Clone, Debug)]
pub(super) struct EffectiveControls {
    pub(super) class: bool,
    pub(super) weight: bool,
    pub(super) delegated: bool,
    pub(super) disk: Option<String>,
}

impl EffectiveControls {
    /// Returns whether a weight reaches the units of this manager: a user's only if the controller was delegated to them.
    fn weight_of(&self, manager: Manager) -> bool {
        self.weight && (manager == Manager::System || self.delegated)
    }
}

/// Looks at the units of the system and of the user.
pub(super) fn findings(
    machine: &Machine,
    mounts: &Mounts,
    acts: &EffectiveControls,
) -> Vec<Finding> {
    let configuration = machine.config_home.as_deref();
    let mut findings = Vec::new();
    for manager in [Manager::System, Manager::User] {
        let places = manager.places(configuration);
        let units: Vec<(String, UnitSettings)> = services(&places).into_iter().collect();
        let is_root = machine.uid == 0;
        findings.push(units_in_normal_class(manager, &units, acts, is_root, |unit| {
            is_idle_now(mounts, unit)
        }));
        findings.extend(settings_without_effect(manager, &units, acts));
    }
    findings
}

fn whose(manager: Manager) -> &'static str {
    match manager {
        Manager::System => "system",
        Manager::User => "user",
    }
}

fn measured(manager: Manager) -> &'static str {
    match manager {
        Manager::System => {
            "the files of services in /etc/systemd/system, /usr/lib/systemd/system and the like"
        }
        Manager::User => {
            "the files of services in ~/.config/systemd/user, /usr/lib/systemd/user and the like"
        }
    }
}

/// Names what is known to work in the background and does not step back. An idle class counts where classes act, whether the
/// unit, its program or somebody else asked for it.
fn units_in_normal_class(
    manager: Manager,
    units: &[(String, UnitSettings)],
    acts: &EffectiveControls,
    is_root: bool,
    is_idle_now: impl Fn(&str) -> bool,
) -> Finding {
    let known: Vec<&(String, UnitSettings)> =
        units.iter().filter(|(name, _)| KNOWN.contains(&&**name)).collect();
    let is_idle = |name: &str| acts.class && (IDLE_BY_PROGRAM.contains(&name) || is_idle_now(name));
    let normal: Vec<&str> = known
        .iter()
        .filter(|(_, settings)| !settings.yields(acts.class, acts.weight_of(manager)))
        .map(|(name, _)| &**name)
        .filter(|name| !is_idle(name))
        .collect();
    let name = format!("background units of the {}", whose(manager));
    let note =
        |text: String| Finding::new(NAME, name, measured(manager), MeasurementOutcome::Note(text));
    if known.is_empty() {
        return note("none of those that are known is installed".to_owned());
    }
    if normal.is_empty() {
        return note(match known.len() {
            1 => "the one that is known steps back".to_owned(),
            count => format!("all {count} that are known step back"),
        });
    }
    let finding = note(format!(
        "{} of {} that are known do not step back: {}",
        normal.len(),
        known.len(),
        listed(&normal)
    ))
    .because("they read and write as the program in front of you does");
    // What root adopts are the system's, whoever's home it has.
    match manager {
        Manager::System => finding.remedy(Remedy::AdoptUnits(Units::System)),
        Manager::User if is_root => finding,
        Manager::User => finding.remedy(Remedy::SetUp(SetupPart::Run)),
    }
}

/// Names what asks for something that does nothing here.
fn settings_without_effect(
    manager: Manager,
    units: &[(String, UnitSettings)],
    acts: &EffectiveControls,
) -> Vec<Finding> {
    let with = |wanted: &dyn Fn(&UnitSettings) -> bool| -> Vec<&str> {
        units.iter().filter(|(_, settings)| wanted(settings)).map(|(name, _)| &**name).collect()
    };
    let disk = acts.disk.as_deref().unwrap_or("the disk");
    let mut findings = Vec::new();
    let weighted = with(&|settings| settings.io_weight.is_some());
    if !weighted.is_empty() && !acts.weight_of(manager) {
        let why = if manager == Manager::System || acts.delegated {
            format!("a weight acts under bfq or with a cost model, and {disk} has neither")
        } else {
            "the I/O controller is not delegated to this user".to_owned()
        };
        let name = format!("IOWeight= of the {}'s units", whose(manager));
        let text = format!("does nothing in {}", listed(&weighted));
        findings.push(
            Finding::new(NAME, name, measured(manager), MeasurementOutcome::Note(text))
                .because(why),
        );
    }
    let classed = with(&|settings| settings.io_class.is_some() && !settings.is_adopted);
    if !classed.is_empty() && !acts.class {
        let name = format!("IOSchedulingClass= of the {}'s units", whose(manager));
        let text = format!("does nothing in {}", listed(&classed));
        findings.push(
            Finding::new(NAME, name, measured(manager), MeasurementOutcome::Note(text))
                .because(format!("the scheduler of {disk} knows no classes")),
        );
    }
    findings
}

/// Returns whether all processes of a running unit are in an idle class, whoever put them there.
fn is_idle_now(mounts: &Mounts, unit: &str) -> bool {
    let Some(group) = Cgroup::of_unit(mounts, unit) else { return false };
    let processes = group.processes();
    let idle = |process: &u32| match IoClass::of(*process) {
        Ok(IoClass::Idle) => true,
        // Only who has no class of its own gets that of its policy (ioprio_set(2)).
        Ok(IoClass::Unset) => matches!(CpuClass::of(*process), Ok(CpuClass::Idle)),
        _ => false,
    };
    !processes.is_empty() && processes.iter().all(idle)
}

fn listed(names: &[&str]) -> String {
    let shown: Vec<&str> = names.iter().take(SHOWN).copied().collect();
    let more = names.len().saturating_sub(SHOWN);
    let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{rest}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Help;

    fn unit(name: &str, change: impl FnOnce(&mut UnitSettings)) -> (String, UnitSettings) {
        let mut settings = UnitSettings::default();
        change(&mut settings);
        (name.to_owned(), settings)
    }

    fn text(finding: &Finding) -> &str {
        match &finding.outcome {
            MeasurementOutcome::Note(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn known_units_in_the_normal_class_are_named_and_others_are_not() {
        let units = [
            unit("packagekit.service", |_| ()),
            unit("kde-baloo.service", |_| ()),
            unit("snapd.service", |settings| settings.io_class = Some("idle".into())),
            unit("man-db.service", |settings| settings.is_adopted = true),
            unit("fstrim.service", |_| ()),
            unit("sshd.service", |_| ()),
        ];
        let acts = EffectiveControls { class: true, weight: false, delegated: false, disk: None };
        let fstrim = |unit: &str| unit == "fstrim.service";
        let found = units_in_normal_class(Manager::System, &units, &acts, true, fstrim);
        assert_eq!(text(&found), "1 of 5 that are known do not step back: packagekit.service");
        assert_eq!(found.help, [Help::Remedy(Remedy::AdoptUnits(Units::System))]);
        let no_classes = EffectiveControls { class: false, ..acts.clone() };
        let found = units_in_normal_class(Manager::System, &units, &no_classes, true, fstrim);
        // What `unjank run --attach` holds steps back without a class.
        let all_but_adopted = "4 of 5 that are known do not step back: packagekit.service, kde-baloo.service, snapd.service, fstrim.service";
        assert_eq!(text(&found), all_but_adopted, "a class that does nothing here");
        let found = units_in_normal_class(Manager::User, &units[5..], &acts, false, |_| false);
        assert!(found.help.is_empty(), "{found:?}");
    }

    #[test]
    fn a_weight_yields_where_it_reaches_the_unit_and_is_small() {
        let acts = EffectiveControls { class: false, weight: true, delegated: false, disk: None };
        let weighted = |weight: &str| {
            [unit("snapd.service", |settings| settings.io_weight = Some(weight.into()))]
        };
        let is_named = |manager, acts: &EffectiveControls, weight: &str| {
            let found = units_in_normal_class(manager, &weighted(weight), acts, false, |_| false);
            text(&found).contains("do not step back")
        };
        assert!(
            !is_named(Manager::System, &acts, "20") && is_named(Manager::System, &acts, "1000")
        );
        assert!(is_named(Manager::User, &acts, "20"), "the controller is not theirs");
        let delegated = EffectiveControls { delegated: true, ..acts.clone() };
        assert!(!is_named(Manager::User, &delegated, "20"));
        let no_weights = EffectiveControls { weight: false, ..acts };
        assert!(is_named(Manager::System, &no_weights, "20"));
    }

    #[test]
    fn settings_that_do_nothing_here_are_named_and_those_that_act_are_not() {
        let units = [
            unit("a.service", |settings| settings.io_weight = Some("10".into())),
            unit("b.service", |settings| settings.io_class = Some("idle".into())),
        ];
        let acts = EffectiveControls {
            class: true,
            weight: true,
            delegated: true,
            disk: Some("sda".into()),
        };
        assert_eq!(settings_without_effect(Manager::User, &units, &acts), []);
        let bare = EffectiveControls { delegated: false, ..acts.clone() };
        assert_eq!(settings_without_effect(Manager::User, &units, &bare).len(), 1);
        assert_eq!(
            settings_without_effect(Manager::System, &units, &bare),
            [],
            "root's need no delegation"
        );
        let none = EffectiveControls { class: false, weight: false, ..acts };
        let found = settings_without_effect(Manager::System, &units, &none);
        let texts: Vec<&str> = found.iter().map(text).collect();
        assert_eq!(texts, ["does nothing in a.service", "does nothing in b.service"]);
    }
}
