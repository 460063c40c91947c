//! The settings probe: the database, its readers and its service.

mod chatty;
mod database;
mod environment;
mod read;
pub(crate) mod write;

use std::path::PathBuf;

use settings::profile::{Description, SettingsEnvironment, SettingsProfile};

use super::finding::{Finding, MeasurementOutcome};
use super::machine::Machine;
use super::{Probe, ProbeStep};

const NAME: &str = "settings";

/// Looks at the settings database, who serves it, and what a read and a write of it cost.
#[derive(Debug)]
pub struct SettingsProbe;

impl Probe for SettingsProbe {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "the settings database, a read, a write through the installed service and ours"
    }

    fn title(&self) -> &'static str {
        "Settings"
    }

    fn steps<'a>(&self, machine: &'a Machine) -> Vec<ProbeStep<'a>> {
        let Some(environment) = environment(machine) else {
            return vec![ProbeStep::new("find the settings", 1, |_| {
                let why = "there is no home directory and no XDG_CONFIG_HOME".to_owned();
                vec![Finding::new(
                    NAME,
                    "settings",
                    "the environment",
                    MeasurementOutcome::Skipped(why),
                )]
            })];
        };
        let profile = SettingsProfile::choose(&environment, None);
        let database = user_database(&profile, &environment);
        let mut steps = vec![ProbeStep::new("the profile", 5, {
            let (profile, environment) = (profile.clone(), environment.clone());
            move |_| environment::profile(&profile, &environment, machine)
        })];
        steps.push(ProbeStep::new("the database", 50, {
            let database = database.clone();
            move |tools| database::look(&database, machine, tools)
        }));
        steps.push(ProbeStep::new("who serves it", 100, move |_| environment::owner(machine)));
        steps.push(ProbeStep::new("who changes it", 50, move |tools| chatty::look(machine, tools)));
        steps.push(ProbeStep::new("a read", 700, {
            let database = database.clone();
            move |tools| read::measure(&profile, &environment, &database, machine, tools)
        }));
        steps.push(ProbeStep::new("a write on a private bus", 4000, move |tools| {
            write::measure(&database, machine, tools)
        }));
        steps
    }
}

/// The database that a change of the user's goes to.
#[derive(Clone, Debug)]
struct UserDatabase {
    name: String,
    path: PathBuf,
    /// The flag by which its readers are told to open it again.
    flag: PathBuf,
}

/// Describes the session as the settings client needs it; `None` without any directory for settings.
fn environment(machine: &Machine) -> Option<SettingsEnvironment> {
    let config_home = machine.config_home.clone()?;
    let runtime_dir = machine
        .runtime_dir
        .clone()
        .or_else(|| machine.cache_home.clone())
        .unwrap_or_else(|| config_home.clone());
    Some(SettingsEnvironment {
        profile: machine.dconf_profile.clone().map(PathBuf::from),
        config_home,
        runtime_dir,
        data_dirs: machine.data_dirs.clone(),
        sysconf_dir: PathBuf::from("/etc"),
        mandatory_dir: PathBuf::from("/run/dconf/user"),
        uid: machine.uid,
    })
}

fn user_database(profile: &SettingsProfile, environment: &SettingsEnvironment) -> UserDatabase {
    let user = |description: &Description| match description {
        Description::User(name) => Some(name.clone()),
        Description::Service(_) | Description::System(_) | Description::File(_) => None,
    };
    let name = profile.databases.iter().find_map(user).unwrap_or_else(|| "user".to_owned());
    let path = Description::User(name.clone()).file(environment);
    let flag = environment.runtime_dir.join("dconf").join(&name);
    UserDatabase { name, path, flag }
}
