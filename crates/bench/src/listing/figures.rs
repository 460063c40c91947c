//! The figures, in the order in which they are measured. Ours and the peer's take turns within each.

use report::error::chain;
use std::io;
use std::process::Command;

use listing::AttributeSet;

use super::client::{Keeps, client};
use super::{ClientView, Cold, Corpus, Figure, Lab, commands, raw};
use crate::cold::forget;
use crate::lab::{BenchError, BenchSide, Measuring};
use crate::names::Needs;
use crate::row::{FigureRow, FigureTarget};
use report::figure::{Quantity, nanoseconds};
use report::samples::Samples;

/// All figures.
pub const FIGURES: &[Figure] = &[
    Figure {
        id: "attributes",
        about: "default attributes of all entries, in another process",
        seconds: 12,
        needs: Needs::Nothing,
        run: attributes,
    },
    Figure {
        id: "names",
        about: "names and types of all entries, in another process",
        seconds: 5,
        needs: Needs::Nothing,
        run: names,
    },
    Figure {
        id: "sorted",
        about: "the sorted model, complete, by name",
        seconds: 14,
        needs: Needs::Nothing,
        run: sorted,
    },
    Figure {
        id: "first",
        about: "the first screenful in the client",
        seconds: 6,
        needs: Needs::Nothing,
        run: first,
    },
    Figure {
        id: "ls",
        about: "unjank ls -l --sort none beside ls -lU and find -printf",
        seconds: 30,
        needs: Needs::Nothing,
        run: ls,
    },
    Figure {
        id: "small",
        about: "ls of a directory with 20 files",
        seconds: 3,
        needs: Needs::Nothing,
        run: small,
    },
    Figure {
        id: "memory",
        about: "memory of a client with a sorted model",
        seconds: 5,
        needs: Needs::Nothing,
        run: memory,
    },
    Figure {
        id: "growth",
        about: "from a fifth of the entries to all",
        seconds: 8,
        needs: Needs::Nothing,
        run: growth,
    },
    Figure {
        id: "cold",
        about: "default attributes, nothing in caches",
        seconds: 40,
        needs: Needs::Cold,
        run: cold,
    },
    Figure {
        id: "peers",
        about: "the programs of --peer",
        seconds: 20,
        needs: Needs::Peers,
        run: peers,
    },
];

/// The files of a small directory.
const FEW: u32 = 20;
/// What the memory of a client may be.
const MEMORY_BYTES: f64 = 64.0 * 1024.0 * 1024.0;
/// How long the first screenful may take, in nanoseconds.
const SCREENFUL: f64 = 3e6;

fn rounds(lab: &Lab<'_>) -> usize {
    lab.effort.of(9, 2)
}

/// Lists in another process and returns what was seen.
fn list(
    lab: &Lab<'_>,
    corpus: &Corpus,
    fields: AttributeSet,
    keeps: Keeps,
) -> Result<ClientView, BenchError> {
    lab.go_on()?;
    let ours = |cause: String| BenchError::Peer { program: "our listing".to_owned(), cause };
    let listed = client(corpus.path(), &lab.worker, fields, keeps, lab.clock);
    let (seen, listing, model) = listed.map_err(|error| ours(chain(&error)))?;
    let rows = model.as_ref().map_or(seen.entries as usize, listing::model::Model::len);
    if seen.entries != corpus.entries() || rows != corpus.entries() as usize {
        return Err(ours(format!("it found {rows} of {} entries", corpus.entries())));
    }
    drop(listing);
    Ok(seen)
}

/// Runs the bare calls and returns how long they took.
fn bare(
    lab: &Lab<'_>,
    corpus: &Corpus,
    calls: fn(&std::path::Path) -> io::Result<usize>,
) -> Result<f64, BenchError> {
    lab.go_on()?;
    let (time, found) = lab.time(|| calls(corpus.path()));
    let cannot = |cause: String| BenchError::Peer { program: "the bare calls".to_owned(), cause };
    match found {
        Ok(found) if found == corpus.entries() as usize => Ok(time),
        Ok(found) => Err(cannot(format!("they found {found} of {} entries", corpus.entries()))),
        Err(error) => Err(cannot(error.to_string())),
    }
}

fn row(
    id: &'static str,
    title: &str,
    [ours, peer]: [Samples; 2],
    target: Option<FigureTarget>,
) -> FigureRow {
    FigureRow {
        id,
        title: title.to_owned(),
        quantity: Quantity::Time,
        ours,
        peer,
        target,
        note: String::new(),
    }
}

fn attributes(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let seen =
        || Ok(nanoseconds(list(lab, &lab.large, AttributeSet::DEFAULT, Keeps::Arrival)?.done));
    let samples = lab.in_turn_warm(rounds(lab), seen, || bare(lab, &lab.large, raw::attributes))?;
    let target = Some(FigureTarget::AtMost(1.0));
    let mut row = row("attributes", "default attributes", samples, target);
    row.note = "ours from the call to the last attribute in this process, the worker's start included; the peer getdents and statx on one thread, in process".to_owned();
    Ok(vec![row])
}

fn names(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let seen = || Ok(nanoseconds(list(lab, &lab.large, AttributeSet::NONE, Keeps::Arrival)?.done));
    let samples = lab.in_turn_warm(rounds(lab), seen, || bare(lab, &lab.large, raw::names))?;
    let mut row = row("names", "names and types", samples, Some(FigureTarget::AtMost(1.5)));
    row.note = "the peer getdents, in process".to_owned();
    Ok(vec![row])
}

fn sorted(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let seen = || Ok(nanoseconds(list(lab, &lab.large, AttributeSet::DEFAULT, Keeps::Rows)?.done));
    let samples = lab.in_turn_warm(rounds(lab), seen, || bare(lab, &lab.large, raw::attributes))?;
    let mut row = row("sorted", "sorted model complete", samples, Some(FigureTarget::AtMost(1.5)));
    row.note = "names in the order of a language, numbers by value, attributes included; the peer getdents and statx on one thread, unsorted".to_owned();
    Ok(vec![row])
}

fn first(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let mut samples = Samples::default();
    for _ in 0..2 * rounds(lab) {
        let seen = list(lab, &lab.large, AttributeSet::DEFAULT, Keeps::Rows)?;
        samples.push(nanoseconds(seen.first));
    }
    let allowed = [SCREENFUL].into_iter().collect();
    let target = Some(FigureTarget::AtMost(1.0));
    let mut row = row("first", "first screenful", [samples, allowed], target);
    row.note = "in their rows; the peer is what was promised, at any size".to_owned();
    Ok(vec![row])
}

fn ls(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let dir = lab.large.path();
    let program = lab.program.to_string_lossy();
    let ours = [&*program, "ls", "-l", "--sort", "none", "{dir}"];
    let theirs: [(&'static str, &[&str], f64); 2] = [
        ("ls -lU", &["ls", "-lU", "{dir}"], 0.5),
        (
            "find -printf",
            &["find", "{dir}", "-mindepth", "1", "-printf", r"%M %n %u %g %s %Tb %Td %TH:%TM %f\n"],
            1.0,
        ),
    ];
    let mut rows = Vec::new();
    for (name, command, most) in theirs {
        let samples = lab.in_turn_warm(
            rounds(lab),
            || commands::time(lab, &ours, dir),
            || commands::time(lab, command, dir),
        )?;
        let id = if name == "ls -lU" { "ls" } else { "ls-find" };
        let title = format!("unjank ls -l (peer: {name})");
        let mut row = row(id, &title, samples, Some(FigureTarget::AtMost(most)));
        row.note = format!("{}, to /dev/null", command.join(" "));
        rows.push(row);
    }
    Ok(rows)
}

fn small(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let corpus = Corpus::make(lab.small.path(), FEW, lab.stop)?;
    let program = lab.program.to_string_lossy();
    let commands: [(&'static str, &str, &[&str], Option<FigureTarget>); 2] = [
        (
            "small",
            "unjank ls of 20 files (peer: ls)",
            &["ls", "{dir}"],
            Some(FigureTarget::AtMost(1.15)),
        ),
        ("small-long", "unjank ls -l of 20 files (peer: ls -l)", &["ls", "-l", "{dir}"], None),
    ];
    let mut rows = Vec::new();
    for (id, title, theirs, target) in commands {
        let ours = [&[&*program], theirs].concat();
        let mut samples = <[Samples; 2]>::default();
        for round in 0..lab.effort.of(300, 5) {
            for side in BenchSide::in_turn(round) {
                match side {
                    BenchSide::Ours => samples[0].push(commands::time(lab, &ours, corpus.path())?),
                    BenchSide::Peer => samples[1].push(commands::time(lab, theirs, corpus.path())?),
                }
            }
        }
        let mut row = row(id, title, samples, target);
        row.note =
            "from the start of the process to its end, most of which is the start".to_owned();
        rows.push(row);
    }
    Ok(rows)
}

fn memory(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let mut samples = Samples::default();
    for _ in 0..lab.effort.of(3, 1) {
        lab.go_on()?;
        let cannot = |cause: String| BenchError::Peer { program: "our client".to_owned(), cause };
        let (program, arguments) =
            lab.client.split_first().ok_or_else(|| cannot("there is none".to_owned()))?;
        let output = Command::new(program).args(arguments).arg(lab.large.path()).output();
        let output = output.map_err(|error| cannot(error.to_string()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let bytes: f64 = text.trim().parse().map_err(|_| {
            cannot(format!("it said {text:?} {:?}", String::from_utf8_lossy(&output.stderr)))
        })?;
        samples.push(bytes);
    }
    Ok(vec![FigureRow {
        id: "memory",
        title: "memory of the client".to_owned(),
        quantity: Quantity::Size,
        ours: samples,
        peer: [MEMORY_BYTES].into_iter().collect(),
        target: Some(FigureTarget::AtMost(1.0)),
        note: "VmRSS of a process of its own with names, attributes and the sorted model; the peer is what was promised for 500,000".to_owned(),
    }])
}

fn growth(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let done = |corpus: &Corpus| {
        list(lab, corpus, AttributeSet::DEFAULT, Keeps::Rows).map(|seen| nanoseconds(seen.done))
    };
    done(&lab.small)?;
    done(&lab.large)?;
    let times = f64::from(lab.large.entries()) / f64::from(lab.small.entries());
    let mut ours = Samples::default();
    for _ in 0..rounds(lab) {
        // A fifth takes a fifth of the time, so it is repeated for as long as the whole.
        let mut part = Samples::default();
        for _ in 0..3 {
            part.push(done(&lab.small)?);
        }
        ours.push(done(&lab.large)? / (part.median() * times));
    }
    Ok(vec![FigureRow {
        id: "growth",
        title: format!("growth, {} to {}", lab.small.entries(), lab.large.entries()),
        quantity: Quantity::Count,
        ours,
        peer: [1.0].into_iter().collect(),
        target: Some(FigureTarget::AtMost(1.1)),
        note: "the sorted model's time for each entry, of many to that of few; the peer is linear growth".to_owned(),
    }])
}

fn cold(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    if lab.cold == Cold::LeftOut {
        return Err(BenchError::NoPlace("only root may drop the kernel's caches, and on a disk"));
    }
    let mut samples = <[Samples; 2]>::default();
    for round in 0..lab.effort.of(3, 1) {
        for side in BenchSide::in_turn(round) {
            forget(lab.large.path())?;
            match side {
                BenchSide::Ours => {
                    let seen = list(lab, &lab.large, AttributeSet::DEFAULT, Keeps::Arrival)?;
                    samples[0].push(nanoseconds(seen.done));
                }
                BenchSide::Peer => samples[1].push(bare(lab, &lab.large, raw::attributes)?),
            }
        }
    }
    let mut row = row("cold", "default attributes, cold", samples, None);
    row.note = "the kernel's caches are dropped before each; the peer as for attributes".to_owned();
    Ok(vec![row])
}

fn peers(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let mut rows = Vec::new();
    for peer in &lab.peers {
        let command: Vec<&str> = peer.command.iter().map(String::as_str).collect();
        let seen =
            || Ok(nanoseconds(list(lab, &lab.large, AttributeSet::DEFAULT, Keeps::Rows)?.done));
        let samples = lab
            .in_turn_warm(rounds(lab), seen, || commands::time(lab, &command, lab.large.path()))?;
        let mut row = row("peers", &format!("sorted model (peer: {})", peer.name), samples, None);
        row.note = format!("{}, to /dev/null", peer.command.join(" "));
        rows.push(row);
    }
    Ok(rows)
}
