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

/// Whether a part is on, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartActivation {
    /// It is not on.
    Off,
    /// It was switched on then.
    OnSince(SystemTime),
    /// It is on, and nobody knows since when.
    OnUnknown,
}

impl PartActivation {
    /// Returns when it was switched on, if it is on and that is known.
    #[must_use]
    pub fn moment(self) -> Option<SystemTime> {
        match self {
            PartActivation::OnSince(since) => Some(since),
            PartActivation::Off | PartActivation::OnUnknown => None,
        }
    }

    /// Returns `other` if this is off.
    fn or_else(self, other: impl FnOnce() -> PartActivation) -> PartActivation {
        if self == PartActivation::Off { other() } else { self }
    }
}

/// Returns why it cannot be read what is on for every user, if it cannot.
#[must_use]
pub fn system_manifest_error() -> Option<SetupError> {
    of_system(&*store::disk::real()).err()
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

/// Returns what is on for every user, with the manifest that `/usr` and `/usr/local` have in common.
fn of_system(disk: &dyn Disk) -> Result<Installation<'_>, SetupError> {
    Installation::read(disk, SetupLayout::of_system("/usr/local".as_ref()), 0)
}

impl PartStates {
    /// Returns whether an installation has a part on. The lists of recent documents may have been moved back since, by
    /// `unjank recent volatile off`.
    fn is_on(&self, installation: &Installation<'_>, part: SetupPart) -> bool {
        installation.is_on(part) && (part != SetupPart::Recents || self.are_lists_volatile)
    }

    /// Returns since when a part is on in an installation: as it recorded, or of an earlier version by the oldest of the part's
    /// files, which is too late if an upgrade has changed all of them.
    fn since(&self, installation: &Installation<'_>, part: SetupPart) -> PartActivation {
        if !self.is_on(installation, part) {
            return PartActivation::Off;
        }
        let oldest = || {
            let paths = installation.paths(part);
            let times =
                paths.iter().filter_map(|path| path.symlink_metadata().ok()?.modified().ok());
            times.min()
        };
        let since = installation.since(part).or_else(oldest);
        since.map_or(PartActivation::OnUnknown, PartActivation::OnSince)
    }

    /// Returns what this user has switched on. A manifest that cannot be read counts as none.
    fn of_user<'d>(&self, disk: &'d dyn Disk) -> Option<Installation<'d>> {
        let own = rustix::process::geteuid().as_raw();
        let layout = SetupLayout::of_user(self.directories.as_ref()?);
        Installation::read(disk, layout, own).ok()
    }

    /// Returns since when a part is on for this user, if this user has switched it on.
    #[must_use]
    pub fn on_for_user_since(&self, part: SetupPart) -> PartActivation {
        let disk = store::disk::real();
        let user = self.of_user(&*disk);
        user.map_or(PartActivation::Off, |user| self.since(&user, part))
    }

    /// Returns since when a part is on: the user's own counts before that for every user.
    #[must_use]
    pub fn on_since(&self, part: SetupPart) -> PartActivation {
        let recorded = self.on_for_user_since(part).or_else(|| self.on_for_all_since(part));
        recorded.or_else(|| {
            let layout = self.directories.as_ref().map(SetupLayout::of_user);
            match self.is_there(part, layout.as_ref()) {
                true => PartActivation::OnUnknown,
                false => PartActivation::Off,
            }
        })
    }

    /// Returns since when a part is on for every user.
    #[must_use]
    pub fn on_for_all_since(&self, part: SetupPart) -> PartActivation {
        let disk = store::disk::real();
        of_system(&*disk).map_or(PartActivation::Off, |system| self.since(&system, part))
    }

    /// Returns the state of every part in this session. A manifest that cannot be read counts as none.
    #[must_use]
    pub fn all(&self) -> Vec<(SetupPart, PartState)> {
        let disk = store::disk::real();
        let layout = self.directories.as_ref().map(SetupLayout::of_user);
        let (user, system) = (self.of_user(&*disk), of_system(&*disk).ok());
        let state = |part: SetupPart| {
            if user.as_ref().is_some_and(|user| self.is_on(user, part)) {
                PartState::User
            } else if system.as_ref().is_some_and(|system| self.is_on(system, part)) {
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
