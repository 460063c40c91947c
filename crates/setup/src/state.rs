//! Which parts are on here, and by whom.

use std::path::PathBuf;
use std::time::SystemTime;

use host::activation;
use jobs::adoption;
use store::disk::Disk;

use super::gsettings::GSETTINGS_FILE;
use super::plan::RELAX_FILE;
use super::{Installation, SessionDirectories, SetupError, SetupLayout, SetupPart};

/// Whether a part is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartState {
    /// Nothing of it is there.
    Off,
    /// This user has switched it on.
    User,
    /// It is on for every user.
    System,
    /// It is on, and `unjank setup` did not do it.
    Elsewhere,
}

impl PartState {
    /// Returns whether it is on, by whomever.
    #[must_use]
    pub fn is_on(self) -> bool {
        self != PartState::Off
    }

    /// Returns the word for programs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            PartState::Off => "off",
            PartState::User => "on",
            PartState::System => "on-for-all",
            PartState::Elsewhere => "on-otherwise",
        }
    }
}

/// Returns why it cannot be read what is on for every user, if it cannot.
#[must_use]
pub fn unread() -> Option<SetupError> {
    let layout = SetupLayout::of_system("/usr/local".as_ref());
    Installation::read(&*store::disk::real(), layout, 0).err()
}

/// The session in which it is asked which parts are on.
#[derive(Clone, Debug, Default)]
pub struct PartStates {
    /// The directories of this user, if there is a home.
    pub directories: Option<SessionDirectories>,
    /// Where the bus looks for services, the first that has one counts.
    pub service_directories: Vec<PathBuf>,
    /// Whether the user's rules have the lists of recent documents in memory.
    pub are_lists_volatile: bool,
}

/// Returns what is on for every user.
fn of_systems(disk: &dyn Disk) -> Vec<Installation<'_>> {
    let layouts = ["/usr/local", "/usr"].map(|prefix| SetupLayout::of_system(prefix.as_ref()));
    layouts.into_iter().filter_map(|layout| Installation::read(disk, layout, 0).ok()).collect()
}

/// Returns since when a part is on in an installation, if it is on there: as it recorded, or of an earlier version by the oldest of the
/// part's files, which is too late if an upgrade has changed all of them.
fn since(installation: &Installation<'_>, part: SetupPart) -> Option<Option<SystemTime>> {
    let oldest = || {
        let paths = installation.paths(part);
        let times = paths.iter().filter_map(|path| path.symlink_metadata().ok()?.modified().ok());
        times.min()
    };
    installation.is_on(part).then(|| installation.since(part).or_else(oldest))
}

impl PartStates {
    /// Returns what this user has switched on. A manifest that cannot be read counts as none.
    fn of_user<'d>(&self, disk: &'d dyn Disk) -> Option<Installation<'d>> {
        let own = rustix::process::geteuid().as_raw();
        let layout = SetupLayout::of_user(self.directories.as_ref()?);
        Installation::read(disk, layout, own).ok()
    }

    /// Returns since when a part is on for this user, if this user has switched it on. `None` inside if nobody knows.
    #[must_use]
    pub fn on_for_user_since(&self, part: SetupPart) -> Option<Option<SystemTime>> {
        let disk = store::disk::real();
        self.of_user(&*disk).and_then(|user| since(&user, part))
    }

    /// Returns since when a part is on, if it is: the user's own counts before that for every user.
    #[must_use]
    pub fn on_since(&self, part: SetupPart) -> Option<Option<SystemTime>> {
        let recorded = self.on_for_user_since(part).or_else(|| self.on_for_all_since(part));
        recorded.or_else(|| {
            let layout = self.directories.as_ref().map(SetupLayout::of_user);
            self.is_there(part, layout.as_ref()).then_some(None)
        })
    }

    /// Returns since when a part is on for every user, if it is.
    #[must_use]
    pub fn on_for_all_since(&self, part: SetupPart) -> Option<Option<SystemTime>> {
        let disk = store::disk::real();
        of_systems(&*disk).iter().find_map(|system| since(system, part))
    }

    /// Returns the state of every part in this session. A manifest that cannot be read counts as none.
    #[must_use]
    pub fn all(&self) -> Vec<(SetupPart, PartState)> {
        let disk = store::disk::real();
        let layout = self.directories.as_ref().map(SetupLayout::of_user);
        let (user, systems) = (self.of_user(&*disk), of_systems(&*disk));
        let state = |part: SetupPart| {
            if user.as_ref().is_some_and(|user| user.is_on(part)) {
                PartState::User
            } else if systems.iter().any(|system| system.is_on(part)) {
                PartState::System
            } else if self.is_there(part, layout.as_ref()) {
                PartState::Elsewhere
            } else {
                PartState::Off
            }
        };
        SetupPart::ALL.into_iter().map(|part| (part, state(part))).collect()
    }

    /// Says whether a part is in effect, whoever put it there.
    fn is_there(&self, part: SetupPart, layout: Option<&SetupLayout>) -> bool {
        let systems = ["/usr/local", "/usr"].map(|prefix| SetupLayout::of_system(prefix.as_ref()));
        let layouts = || layout.into_iter().chain(&systems);
        let any =
            |path: &dyn Fn(&SetupLayout) -> PathBuf| layouts().any(|layout| path(layout).exists());
        match part {
            SetupPart::Settings | SetupPart::Host | SetupPart::Listing => {
                let name = part.bus_name().unwrap_or_default();
                let found = activation::find(&self.service_directories, name);
                found.is_some_and(|(_, line)| activation::starts_ours(&line))
            }
            SetupPart::Relax => any(&|layout| layout.environment.join(RELAX_FILE)),
            SetupPart::Gsettings => any(&|layout| layout.environment.join(GSETTINGS_FILE)),
            SetupPart::Index => any(&|layout| layout.units.join("unjank-index.path")),
            SetupPart::Hangs => any(&|layout| layout.units.join("unjank-hangs.service")),
            SetupPart::HangNotifications => {
                any(&|layout| layout.units.join("unjank-hang-notifications.service"))
            }
            // A package brings the units, and the link switches them on.
            SetupPart::Trace => any(&|layout| {
                layout.adopted_units.join("sockets.target.wants/unjank-recorder.socket")
            }),
            SetupPart::Run => any(&|layout| layout.adopted_units.join(adoption::TEMPLATE)),
            SetupPart::Recents => self.are_lists_volatile,
            SetupPart::Programs => false,
        }
    }
}
