//! The figures, in the order in which they are measured. Both sides take turns within each.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{Figure, HostServiceFixture, Lab};
use crate::lab::{BenchError, Measuring};
use crate::names::Needs;
use crate::row::{FigureRow, FigureTarget};
use report::figure::Quantity;
use report::samples::Samples;

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
        about: "sh -c true on the host through each client and service, in turn, beside sh -c true by itself",
        seconds: 8,
        needs: Needs::Nothing,
        run: client,
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
fn spawned(lab: &Lab<'_>, service: &HostServiceFixture, words: &[&str]) -> Command {
    let mut command = service.command(&lab.spawn);
    command.arg("--host").args(words);
    command
}

/// A program, on the bus of a service.
fn on(service: &HostServiceFixture, program: &Path, words: &[&str]) -> Command {
    let mut command = service.command(program);
    command.args(words).args(TRUE);
    command
}

fn row(
    id: &'static str,
    title: &str,
    [ours, peer]: [Samples; 2],
    target: Option<FigureTarget>,
    note: &str,
) -> Vec<FigureRow> {
    let (title, note) = (title.to_owned(), note.to_owned());
    vec![FigureRow { id, title, quantity: Quantity::Time, ours, peer, target, note }]
}

fn spawn(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let samples = lab.in_turn_warm(
        lab.effort.of(200, 5),
        || run(lab, spawned(lab, &lab.ours, &TRUE), 0),
        || run(lab, spawned(lab, &lab.peer, &TRUE), 0),
    )?;
    let note = "the same unmodified client on both sides, from its start to its end";
    Ok(row("spawn", "flatpak-spawn --host", samples, Some(FigureTarget::AtMost(1.0)), note))
}

/// A way to run a command: its row, and the command line.
struct Way<'a> {
    id: &'static str,
    title: &'static str,
    note: &'static str,
    target: Option<FigureTarget>,
    command: Box<dyn Fn() -> Command + 'a>,
}

fn client(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let ours = &lab.ours;
    let way = |id, title, note, command: Box<dyn Fn() -> Command>| Way {
        id,
        title,
        note,
        target: None,
        command,
    };
    let mut ways = vec![
        Way {
            target: Some(FigureTarget::AtMost(2.2)),
            ..way(
                "client",
                "unjank host (peer: plain)",
                "our client through our service; the peer is sh -c true by itself",
                Box::new(|| on(ours, &lab.program, &["host", "--"])),
            )
        },
        way(
            "client-small",
            "unjank-host (peer: plain)",
            "the small program, which is what a sandbox gets",
            Box::new(|| on(ours, &lab.small, &["--"])),
        ),
        way(
            "plain-ours",
            "flatpak-spawn, ours (peer: plain)",
            "the unmodified client through our service",
            Box::new(|| spawned(lab, ours, &TRUE)),
        ),
        way(
            "plain-peer",
            "flatpak-spawn, other (peer: plain)",
            "the unmodified client through the other service",
            Box::new(|| spawned(lab, &lab.peer, &TRUE)),
        ),
    ];
    if let Some(bare) = &lab.bare {
        ways.push(way(
            "bare",
            "bare C, both (peer: plain)",
            "a client and a service that send the messages and do nothing else (crates/bench/peers/host_command.c): the floor",
            Box::new(|| on(&bare.service, &bare.program, &["run"])),
        ));
        ways.push(way(
            "bare-ours",
            "bare C client, ours (peer: plain)",
            "the same client through our service",
            Box::new(|| on(ours, &bare.program, &["run"])),
        ));
    }
    let plain = || {
        let mut command = ours.command(TRUE[0]);
        command.args(&TRUE[1..]);
        command
    };
    let mut samples = vec![Samples::default(); ways.len()];
    let mut by_itself = Samples::default();
    // Once to have everything in caches, then each in its turn, from another one on in each round.
    let rounds = lab.effort.of(200, 5);
    for round in 0..=rounds {
        for turn in 0..=ways.len() {
            let at = (round + turn) % (ways.len() + 1);
            let command = ways.get(at).map_or_else(plain, |way| (way.command)());
            let time = run(lab, command, 0)?;
            if round > 0 {
                samples.get_mut(at).unwrap_or(&mut by_itself).push(time);
            }
        }
    }
    let rows = ways.iter().zip(samples).flat_map(|(way, samples)| {
        row(way.id, way.title, [samples, by_itself.clone()], way.target, way.note)
    });
    Ok(rows.collect())
}

fn bytes(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let count = (MIB << 20).to_string();
    let words = ["head", "-c", &count, "/dev/zero"];
    let samples = lab.in_turn_warm(
        lab.effort.of(15, 1),
        || run(lab, spawned(lab, &lab.ours, &words), MIB << 20),
        || run(lab, spawned(lab, &lab.peer, &words), MIB << 20),
    )?;
    let note = "read to the end by the program that measures; the command writes into its pipe itself in both";
    // The bytes pass nobody on either side: what differs is the start, and chance.
    Ok(row("bytes", "64 MiB of output", samples, Some(FigureTarget::AtMost(1.0)), note))
}

fn burst(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let burst = |service: &HostServiceFixture| {
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
    let samples =
        lab.in_turn_warm(lab.effort.of(9, 1), || burst(&lab.ours), || burst(&lab.peer))?;
    let note = "from the start of the first client to the end of the last";
    Ok(row("burst", "100 commands at once", samples, Some(FigureTarget::AtMost(1.0)), note))
}
