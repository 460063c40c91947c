//! What is not simply run and ends with 0, and why.

/// What a line of the documentation does other than end with 0.
#[derive(Clone, Copy)]
pub(crate) enum Exception {
    /// It ends with one of these: the reason is in the page.
    EndsWith(&'static [i32]),
    /// It runs until Ctrl-C, so it gets one after a second.
    UntilInterrupted(&'static [i32]),
    /// It takes long: `ci/slow` runs it, with `DOCUMENTED_LONG=1`, and so much behind it that it takes less.
    Long(&'static [i32], &'static str),
    /// It cannot run in any test of its own, for this reason.
    NotHere(&'static str),
}

use Exception::{EndsWith, Long, NotHere, UntilInterrupted};

const NO_APP: &str = "opens an application with a window";
const ROOT_DISK: &str =
    "mounts a disk as root; cli_slowdisk runs the same commands where that is allowed";

/// Beginnings of lines; the longest that fits counts. A test sees to it that each is still in the documentation.
pub(crate) const EXCEPTIONS: &[(&str, Exception)] = &[
    ("sudo unjank slowdisk", NotHere(ROOT_DISK)),
    ("unjank slowdisk", NotHere(ROOT_DISK)),
    ("unjank slowdisk profile emmc", EndsWith(&[0])),
    ("unjank ls --follow", UntilInterrupted(&[0, 130])),
    ("unjank run --attach", UntilInterrupted(&[0, 130])),
    ("unjank trace ab", EndsWith(&[0, 1])),
    ("unjank run -- flatpak update -y", NotHere("needs the network and installed Flatpaks")),
    ("unjank recent relax -- okular", NotHere(NO_APP)),
    ("unjank recent private -- gwenview", NotHere(NO_APP)),
    ("unjank trace -o report.html -- kde-open5", NotHere("opens a browser; trace_kde runs it")),
    (
        "unjank bench launch",
        NotHere("starts desktop programs for minutes; bench_launch runs a part"),
    ),
    ("unjank bench listing --dir ~ --peer 'eza", NotHere("eza is no package of Debian 12")),
    ("unjank bench bus", NotHere("minutes of a full bus; ci/slow runs it")),
    ("unjank bench", Long(&[0, 1], "--quick")),
    ("unjank bench settings --list", EndsWith(&[0])),
    ("unjank bench impact", Long(&[0, 1], "")),
    ("unjank doctor", Long(&[0, 1], "")),
    ("unjank doctor --only storage", EndsWith(&[0, 1])),
    ("unjank doctor --only settings", EndsWith(&[0, 1])),
    ("unjank bus live", NotHere("is a program for terminals; bus_view runs it in one")),
    ("unjank bus record -o session.pcapng", UntilInterrupted(&[0])),
    ("unjank bus record -o session.pcapng --for 10s", EndsWith(&[0])),
    ("unjank bus record --match", UntilInterrupted(&[0])),
    ("unjank bus tail", UntilInterrupted(&[0])),
    ("unjank bus expect", EndsWith(&[1])),
    ("unjank bus diff", EndsWith(&[0, 1])),
    ("unjank settings undo 17", EndsWith(&[0, 1])),
    ("unjank settings watch", UntilInterrupted(&[0, 130])),
    // No program hung in the home of the test.
    ("unjank hangs show", EndsWith(&[1])),
    ("unjank trace watch", UntilInterrupted(&[0])),
    ("unjank trace check", EndsWith(&[0, 1])),
];

/// Pages whose blocks another test runs.
pub(crate) const ELSEWHERE: &[(&str, &str)] = &[("settings.md", "cli_settings")];

/// Returns what is said of a line.
pub(crate) fn of(line: &str) -> Option<(&'static str, Exception)> {
    EXCEPTIONS
        .iter()
        .filter(|(beginning, _)| line.starts_with(beginning))
        .max_by_key(|(beginning, _)| beginning.len())
        .copied()
}
