//! The parts that can be switched on.

/// A part of unjank that a session can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetupPart {
    /// `unjankd` answers `ca.desrt.dconf`.
    Settings,
    /// GSettings programs read settings in themselves, by the module of GIO.
    Gsettings,
    /// `unjankd` answers `org.freedesktop.Flatpak`.
    Host,
    /// The lists of recent documents are in memory.
    Recents,
    /// Programs do not wait for syncs of their lists of recent documents.
    Relax,
    /// The index of plugins and applications is kept current.
    Index,
    /// Known background units are started in the idle class and held while others wait.
    Run,
    /// The daemon of the session can be started: listings, recent documents.
    Listing,
    /// Hangs of interactive programs are recorded.
    Hangs,
    /// Long hangs are shown as notifications on the desktop.
    HangNotifications,
    /// The recorder service has programs in the kernel for `unjank trace` and `unjank hangs` of users who are not root; for every
    /// user only.
    Trace,
    /// The programs and libraries themselves, where they were copied from a build. It goes with the last other part.
    Programs,
}

/// Says how exactly hangs of a user who is not root are recorded, where the recorder service listens or not.
#[must_use]
pub fn hang_exactness(is_served: bool) -> &'static str {
    match is_served {
        true => "with their exact length, by the recorder service, where it serves this user.",
        false => {
            "with a length that is right within about 30 ms, until an administrator has the recorder service record it exactly: sudo unjank setup --system trace"
        }
    }
}

impl SetupPart {
    /// The parts that a person chooses from.
    pub const ALL: [SetupPart; 11] = [
        SetupPart::Settings,
        SetupPart::Gsettings,
        SetupPart::Host,
        SetupPart::Recents,
        SetupPart::Relax,
        SetupPart::Index,
        SetupPart::Run,
        SetupPart::Listing,
        SetupPart::Hangs,
        SetupPart::HangNotifications,
        SetupPart::Trace,
    ];

    /// Returns the name by which it is chosen.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SetupPart::Settings => "settings",
            SetupPart::Gsettings => "gsettings",
            SetupPart::Host => "host",
            SetupPart::Recents => "recents",
            SetupPart::Relax => "relax",
            SetupPart::Index => "index",
            SetupPart::Run => "run",
            SetupPart::Listing => "listing",
            SetupPart::Hangs => "hangs",
            SetupPart::HangNotifications => "hang-notifications",
            SetupPart::Trace => "trace",
            SetupPart::Programs => "programs",
        }
    }

    /// Returns the part of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<SetupPart> {
        let all = SetupPart::ALL.into_iter().chain([SetupPart::Programs]);
        all.into_iter().find(|part| part.name() == name)
    }

    /// Returns what it does, in a few words.
    #[must_use]
    pub fn summary(self) -> &'static str {
        match self {
            SetupPart::Settings => "unjankd stores the settings of dconf and GSettings programs",
            SetupPart::Gsettings => {
                "GSettings programs read settings in themselves, and write without waiting"
            }
            SetupPart::Host => "unjankd runs host commands of sandboxed programs",
            SetupPart::Recents => {
                "lists of recent documents are in memory, copied to the disk every 15 minutes"
            }
            SetupPart::Relax => "programs do not wait for syncs of their recent-document lists",
            SetupPart::Index => {
                "the index of plugins and applications is made again when they change"
            }
            SetupPart::Run => {
                "known background units run in the idle class, held while others wait"
            }
            SetupPart::Listing => {
                "the session's daemon starts when it is called: listings, recents"
            }
            SetupPart::Hangs => "when programs hang, for how long and on what is recorded",
            SetupPart::HangNotifications => {
                "hangs that are recorded and last 2 s or longer are notifications on the desktop"
            }
            SetupPart::Trace => {
                "`unjank trace` and `unjank hangs` of ordinary users have programs in the kernel, for their own processes"
            }
            SetupPart::Programs => "the programs and libraries of unjank",
        }
    }

    /// Returns the name on the session bus that it takes over.
    #[must_use]
    pub fn bus_name(self) -> Option<&'static str> {
        match self {
            SetupPart::Settings => Some("ca.desrt.dconf"),
            SetupPart::Host => Some("org.freedesktop.Flatpak"),
            SetupPart::Listing => Some("org.unjank.Session1"),
            _ => None,
        }
    }

    /// Returns the units of the user's systemd that run for it.
    #[must_use]
    pub fn units(self) -> &'static [&'static str] {
        match self {
            SetupPart::Settings => &["unjank-dconf.service"],
            SetupPart::Host => &["unjank-host.service"],
            SetupPart::Listing => &["unjank-session.service"],
            SetupPart::Index => &["unjank-index.path"],
            SetupPart::Hangs => &["unjank-hangs.service"],
            SetupPart::HangNotifications => &["unjank-hang-notifications.service"],
            _ => &[],
        }
    }
}
