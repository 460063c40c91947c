//! The figures, in the order in which they are measured. Both sides take turns within each.

use std::process::{Command, Stdio};

use super::{Figure, Lab, Service};
use crate::bench::lab::{BenchError, Measuring, Side};
use crate::bench::row::{Row, Target};
use crate::bench::run::Needs;
use crate::report::figure::Quantity;
use crate::report::samples::Samples;

/// All figures.
pub const FIGURES: &[Figure] = &[
    Figure {
        id: "spawn",
        about: "flatpak-spawn --host sh -c true, through either service",
        seconds: 6,
        needs: Needs::Nothing,
        run: spawn,
    },
    Figure {
        id: "client",
        about: "unjank host -- sh -c true, beside sh -c true",
        seconds: 4,
        needs: Needs::Nothing,
        run: client,
    },
    Figure {
        id: "plain",
        about: "flatpak-spawn --host sh -c true, beside sh -c true",
        seconds: 4,
        needs: Needs::Nothing,
        run: plain,
    },
    Figure {
        id: "bytes",
        about: "64 MiB through standard output",
        seconds: 4,
        needs: Needs::Nothing,
        run: bytes,
    },
    Figure {
        id: "burst",
        about: "100 commands at once",
        seconds: 8,
        needs: Needs::Nothing,
        run: burst,
    },
];

/// The command that is run.
const TRUE: [&str; 3] = ["sh", "-c", "true"];
/// What goes through standard output.
const MIB: usize = 64;
/// How many run at once.
const BURST: usize = 100;

/// Runs a command as a program does that wants what it prints, and returns how long it took.
fn run(lab: &Lab<'_>, mut command: Command, bytes: usize) -> Result<f64, BenchError> {
    lab.go_on()?;
    let program = command.get_program().to_string_lossy().into_owned();
    let cannot = |cause: String| BenchError::Peer { program: program.clone(), cause };
    let (time, output) = lab.time(|| command.output());
    let output = output.map_err(|error| cannot(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(cannot(format!("{}: {said}", output.status)));
    }
    if output.stdout.len() != bytes {
        return Err(cannot(format!("{} of {bytes} bytes came", output.stdout.len())));
    }
    Ok(time)
}

/// The unmodified client.
fn spawned(lab: &Lab<'_>, service: &Service, words: &[&str]) -> Command {
    let mut command = service.command(&lab.spawn);
    command.arg("--host").args(words);
    command
}

/// Our client, through our service.
fn hosted(lab: &Lab<'_>) -> Command {
    let mut command = lab.ours.command(&lab.program);
    command.args(["host", "--"]).args(TRUE);
    command
}

/// The command by itself.
fn by_itself(lab: &Lab<'_>) -> Command {
    let mut command = lab.ours.command(TRUE[0]);
    command.args(&TRUE[1..]);
    command
}

fn in_turn(
    rounds: usize,
    ours: impl Fn() -> Result<f64, BenchError>,
    peer: impl Fn() -> Result<f64, BenchError>,
) -> Result<[Samples; 2], BenchError> {
    // Both once, to have everything in caches.
    ours()?;
    peer()?;
    let mut samples = <[Samples; 2]>::default();
    for round in 0..rounds {
        for side in Side::in_turn(round) {
            match side {
                Side::Ours => samples[0].push(ours()?),
                Side::Peer => samples[1].push(peer()?),
            }
        }
    }
    Ok(samples)
}

fn row(
    id: &'static str,
    title: &str,
    [ours, peer]: [Samples; 2],
    target: Option<Target>,
    note: &str,
) -> Vec<Row> {
    let (title, note) = (title.to_owned(), note.to_owned());
    vec![Row { id, title, quantity: Quantity::Time, ours, peer, target, note }]
}

fn spawn(lab: &Lab<'_>) -> Result<Vec<Row>, BenchError> {
    let samples = in_turn(
        lab.effort.of(200, 5),
        || run(lab, spawned(lab, &lab.ours, &TRUE), 0),
        || run(lab, spawned(lab, &lab.peer, &TRUE), 0),
    )?;
    let note = "the same unmodified client on both sides, from its start to its end";
    Ok(row("spawn", "flatpak-spawn --host", samples, Some(Target::AtMost(1.0)), note))
}

fn client(lab: &Lab<'_>) -> Result<Vec<Row>, BenchError> {
    let samples = in_turn(
        lab.effort.of(200, 5),
        || run(lab, hosted(lab), 0),
        || run(lab, by_itself(lab), 0),
    )?;
    let note = "our client through our service; the peer is sh -c true by itself";
    Ok(row("client", "unjank host (peer: plain)", samples, Some(Target::AtMost(2.2)), note))
}

fn plain(lab: &Lab<'_>) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for (id, title, service) in [
        ("plain-ours", "flatpak-spawn, ours (peer: plain)", &lab.ours),
        ("plain-peer", "flatpak-spawn, other (peer: plain)", &lab.peer),
    ] {
        let samples = in_turn(
            lab.effort.of(100, 3),
            || run(lab, spawned(lab, service, &TRUE), 0),
            || run(lab, by_itself(lab), 0),
        )?;
        rows.extend(row(id, title, samples, None, "the peer is sh -c true by itself"));
    }
    Ok(rows)
}

fn bytes(lab: &Lab<'_>) -> Result<Vec<Row>, BenchError> {
    let count = (MIB << 20).to_string();
    let words = ["head", "-c", &count, "/dev/zero"];
    let samples = in_turn(
        lab.effort.of(15, 1),
        || run(lab, spawned(lab, &lab.ours, &words), MIB << 20),
        || run(lab, spawned(lab, &lab.peer, &words), MIB << 20),
    )?;
    let note = "read to the end by the program that measures; the command writes into its pipe itself in both";
    // The bytes pass nobody on either side: what differs is the start, and chance.
    Ok(row("bytes", "64 MiB of output", samples, Some(Target::AtMost(1.0)), note))
}

fn burst(lab: &Lab<'_>) -> Result<Vec<Row>, BenchError> {
    let burst = |service: &Service| {
        lab.go_on()?;
        let cannot =
            |cause: String| BenchError::Peer { program: "flatpak-spawn".to_owned(), cause };
        let (time, ended) = lab.time(|| {
            let start = |_| spawned(lab, service, &TRUE).stdout(Stdio::null()).spawn();
            let clients: Vec<_> = (0..BURST).map(start).collect();
            let wait = |client: std::io::Result<std::process::Child>| client?.wait();
            clients.into_iter().map(wait).collect::<Result<Vec<_>, _>>()
        });
        let ended = ended.map_err(|error| cannot(error.to_string()))?;
        match ended.into_iter().find(|status| !status.success()) {
            Some(status) => Err(cannot(status.to_string())),
            None => Ok(time),
        }
    };
    let samples = in_turn(lab.effort.of(9, 1), || burst(&lab.ours), || burst(&lab.peer))?;
    let note = "from the start of the first client to the end of the last";
    Ok(row("burst", "100 commands at once", samples, Some(Target::AtMost(1.0)), note))
}
