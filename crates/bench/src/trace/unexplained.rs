//! How much of the main threads' time the reports of traces do not explain: programs that a desktop has, with and without caches.

use std::io::Read;
use std::process::{Command, Stdio};

use report::figure::Quantity;
use report::samples::Samples;
use trace::report::{TraceReport, data};

use super::Bench;
use crate::cold;
use crate::lab::BenchError;
use crate::row::{FigureRow, FigureTarget};

/// The name by which `--only` chooses it, and what it is.
pub(super) const ABOUT: (&str, &str) =
    ("unexplained", "time that reports do not explain, of programs of the machine");

/// The programs: those that are on the machine are traced. None changes anything, and each ends by itself.
const PROGRAMS: &[&[&str]] = &[
    &["/usr/bin/python3", "-c", "import argparse, json, logging, sqlite3, ssl, subprocess"],
    &["perl", "-e", "use POSIX; use File::Find; find(sub {}, '/usr/share/doc')"],
    &["find", "/usr/share", "-newer", "/etc/hostname"],
    &["ls", "-lR", "/usr/share/icons"],
    &["du", "-s", "/usr/share"],
    &["grep", "-rl", "unjank", "/usr/include"],
    &["tar", "-cf", "/dev/null", "/usr/share/mime"],
    &["gzip", "-c", "/bin/bash"],
    &["sha256sum", "/bin/bash", "/bin/tar", "/usr/bin/python3"],
    &["dpkg-query", "-l"],
    &["apt-cache", "search", "--names-only", "gtk"],
    &["git", "--version"],
    &["gcc", "-x", "c", "-fsyntax-only", "/usr/include/stdlib.h"],
    &["gsettings", "list-recursively"],
    &["gio", "info", "/usr/share/icons"],
    &["fc-list"],
    &["fc-match", "sans"],
    &[
        "dbus-run-session",
        "--",
        "gdbus",
        "call",
        "--session",
        "--dest",
        "org.freedesktop.DBus",
        "--object-path",
        "/",
        "--method",
        "org.freedesktop.DBus.ListNames",
    ],
    &["update-mime-database", "-V"],
    &["xdg-mime", "query", "filetype", "/etc/hostname"],
    &["kreadconfig5", "--group", "General", "--key", "widgetStyle"],
    &["desktop-file-validate", "/usr/share/applications"],
    &["ffmpeg", "-v", "quiet", "-f", "lavfi", "-i", "testsrc=duration=1", "-f", "null", "-"],
    &["soffice", "--version"],
    &["man", "-w", "ls"],
];

/// The most that may be in no class: of all time, and of the time of the program in the middle, in percent.
const OF_ALL: f64 = 5.0;
const OF_MEDIAN: f64 = 1.0;
/// The longest report that is read, in bytes.
const LONGEST: u64 = 256 << 20;

/// One traced program.
struct Share {
    unknown_ns: u64,
    wall_ns: u64,
}

/// Traces the programs.
pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let rounds = bench.effort.of(3, 1);
    let may_forget = bench.effort.of(1, 0) > 0 && rustix::process::geteuid().is_root();
    let (mut shares, mut worst) = (Vec::new(), Vec::new());
    let mut traced = 0;
    for program in PROGRAMS.iter().take(bench.effort.of(usize::MAX, 4)) {
        let mut of_one = Vec::new();
        for round in 0..rounds {
            bench.go_on()?;
            if may_forget && round == 0 {
                cold::forget(&bench.dir)?;
            }
            of_one.extend(trace(bench, program)?);
        }
        if of_one.is_empty() {
            continue;
        }
        traced += 1;
        let most = of_one.iter().map(Share::percent).fold(0.0, f64::max);
        worst.push((most, program[0]));
        shares.extend(of_one);
    }
    worst.sort_by(|one, other| other.0.total_cmp(&one.0));
    let worst = worst.iter().take(3).map(|(most, name)| format!("{name} {most:.1} %"));
    let sum = |part: fn(&Share) -> u64| shares.iter().map(part).fold(0, u64::saturating_add);
    let all = Share { unknown_ns: sum(|one| one.unknown_ns), wall_ns: sum(|one| one.wall_ns) };
    let caches = if may_forget { "the first run of each without caches" } else { "with caches" };
    let row = |id, title: &str, ours: Samples, most, note| FigureRow {
        id,
        title: title.to_owned(),
        quantity: Quantity::Share,
        ours,
        peer: Samples::default(),
        target: Some(FigureTarget::Within(most)),
        note,
    };
    Ok(vec![
        row(
            "unexplained-all",
            "not explained, of all time",
            [all.percent()].into_iter().collect(),
            OF_ALL,
            format!("{} runs of {traced} programs, {caches}", shares.len()),
        ),
        row(
            "unexplained-each",
            "not explained, of each run",
            shares.iter().map(Share::percent).collect(),
            OF_MEDIAN,
            format!("most: {}", worst.collect::<Vec<_>>().join(", ")),
        ),
    ])
}

impl Share {
    fn percent(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
        let percent = 100.0 * self.unknown_ns as f64 / self.wall_ns.max(1) as f64;
        percent
    }
}

/// Traces a program; none if it is not there, or lived too short to be accounted for.
fn trace(bench: &Bench<'_>, program: &[&str]) -> Result<Option<Share>, BenchError> {
    let failed = |cause: String| BenchError::Peer { program: program.join(" "), cause };
    let scratch = sys::scratch::within(&bench.dir).map_err(|error| failed(error.to_string()))?;
    let page = scratch.path().join("report.html");
    let mut command = Command::new(&bench.unjank);
    command.args(["trace", "-o"]).arg(&page).arg("--").args(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let ended = bench.wait(child.id());
    if !matches!(ended, Ok(true)) {
        let _ = child.kill();
    }
    child.wait().map_err(|error| failed(error.to_string()))?;
    bench.go_on()?;
    if !ended.map_err(|error| failed(error.to_string()))? {
        return Err(failed("it takes too long".to_owned()));
    }
    // It is not there: the tracer could not start it and wrote nothing.
    let Ok(file) = std::fs::File::open(&page) else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
    let report = data::read(&bytes).map_err(|error| failed(error.to_string()))?;
    Ok(share(&report))
}

fn share(report: &TraceReport) -> Option<Share> {
    let account = report.main()?.account.as_ref()?;
    Some(Share { unknown_ns: account.parts.unknown_ns, wall_ns: account.wall_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_a_program_is_of_its_own_time_and_there_are_twenty_programs() {
        assert_eq!(Share { unknown_ns: 5, wall_ns: 200 }.percent(), 2.5);
        assert_eq!(Share { unknown_ns: 0, wall_ns: 0 }.percent(), 0.0);
        assert!(PROGRAMS.len() >= 20);
        assert!(PROGRAMS.iter().all(|program| !program.is_empty()));
    }
}
