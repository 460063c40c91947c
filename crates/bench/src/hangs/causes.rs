//! The causes that are planted, and what a right record of each says.

/// A cause of hangs that is planted.
#[derive(Debug)]
pub struct HangSource {
    /// The name by which `--cause` chooses it.
    pub id: &'static str,
    /// The name of its row where programs are traced.
    pub(super) traced_id: &'static str,
    /// What happens, for a person.
    pub about: &'static str,
    /// The causes that are right in a record, as its JSON has them.
    pub(super) classes: &'static [&'static str],
    /// The functions of the program that the hang is in, one of which the record has to blame; the first one is called by the loop.
    pub(super) functions: &'static [&'static str],
    /// The file that it waits for, by the end of its path.
    pub(super) file: Option<&'static str>,
    /// The program that it waits for.
    pub(super) peer: Option<&'static str>,
    /// Who plants it.
    pub(super) planter: Planter,
}

/// Who plants a hang.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Planter {
    /// The program itself, when it is told to.
    Program,
    /// The program itself, beside others that compute on the same processor.
    Neighbours,
    /// The program itself, in a cgroup with less memory than it touches.
    SmallMemory,
    /// The program itself, after it has moved memory to the swap.
    Swap,
    /// We stop it with a signal.
    Signal,
    /// We freeze its cgroup.
    Freezer,
}

/// The service on the bus and the neighbours are this program.
pub(super) const SERVICE: &str = "hangs_service";
/// The file system in user space is this program.
pub(super) const LATE: &str = "hangs_late";

const fn of(
    [id, traced_id]: [&'static str; 2],
    about: &'static str,
    classes: &'static [&'static str],
    functions: &'static [&'static str],
) -> HangSource {
    HangSource {
        id,
        traced_id,
        about,
        classes,
        functions,
        file: None,
        peer: None,
        planter: Planter::Program,
    }
}

/// All causes.
pub const CAUSES: &[HangSource] = &[
    HangSource {
        file: Some(".saved"),
        ..of(["sync", "traced-sync"], "fsync of a written file", &["sync"], &["plant_sync"])
    },
    HangSource {
        file: Some(".cold"),
        ..of(
            ["cold-read", "traced-cold-read"],
            "read of a file that is not cached",
            &["file-data"],
            &["plant_cold_read"],
        )
    },
    HangSource {
        file: Some(".cold"),
        ..of(
            ["mapped", "traced-mapped"],
            "a mapped file that is not cached",
            &["page-fault"],
            &["plant_mapped"],
        )
    },
    HangSource {
        file: Some(".cold"),
        ..of(
            ["io-uring", "traced-io-uring"],
            "read through io_uring",
            &["file-data"],
            &["plant_io_uring"],
        )
    },
    of(["lock", "traced-lock"], "a lock that a sleeping thread holds", &["lock"], &["plant_lock"]),
    of(["computing", "traced-computing"], "computing", &["computing"], &["plant_computing"]),
    HangSource {
        peer: Some(SERVICE),
        ..of(
            ["dbus-call", "traced-dbus-call"],
            "a D-Bus call of a slow service",
            &["other-program"],
            &["plant_dbus_call", "toolkit_call"],
        )
    },
    HangSource {
        peer: Some(SERVICE),
        ..of(
            ["dbus-start", "traced-dbus-start"],
            "a D-Bus call of a service that starts slowly",
            &["other-program"],
            &["plant_dbus_start", "toolkit_call"],
        )
    },
    of(
        ["resolver", "traced-resolver"],
        "a look-up of a host name",
        &["other-program"],
        &["plant_resolver"],
    ),
    HangSource {
        peer: Some("sleep"),
        ..of(["child", "traced-child"], "waiting for a child process", &["child"], &["plant_child"])
    },
    HangSource {
        file: Some("late-"),
        ..of(
            ["late-file", "traced-late-file"],
            "a file of a late FUSE server",
            &["file-data"],
            &["plant_late_file"],
        )
    },
    HangSource {
        planter: Planter::Signal,
        ..of(["stopped", "traced-stopped"], "stopped by a signal", &["stopped"], &[])
    },
    HangSource {
        planter: Planter::Freezer,
        ..of(["frozen", "traced-frozen"], "a frozen cgroup", &["stopped"], &[])
    },
    HangSource {
        planter: Planter::Neighbours,
        ..of(
            ["neighbours", "traced-neighbours"],
            "a busy processor",
            &["processor-queue"],
            &["plant_neighbours"],
        )
    },
    HangSource {
        file: Some(".cold"),
        planter: Planter::SmallMemory,
        ..of(
            ["reclaim", "traced-reclaim"],
            "a cgroup with too little memory",
            &["page-fault"],
            &["plant_reclaim"],
        )
    },
    HangSource {
        planter: Planter::Swap,
        ..of(["swap", "traced-swap"], "memory in the swap", &["page-fault"], &["plant_swap"])
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_function_in_the_programs_or_is_planted_from_outside() {
        let source = include_str!("../../peers/hangs_plants.h");
        for cause in CAUSES {
            match cause.functions.first() {
                Some(function) => {
                    assert!(source.contains(&format!("\n{function} (int ms)")), "{function}");
                    assert!(source.contains(&format!("{{ \"{}\", {function} }}", cause.id)));
                }
                None => assert!(matches!(cause.planter, Planter::Signal | Planter::Freezer)),
            }
        }
    }
}
