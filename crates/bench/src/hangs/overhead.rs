//! By how much programs are slower beside the recorder, and beside `perf record` of the scheduler's events.

use std::fs::DirBuilder;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Lab;
use super::files::write_new;
use super::process::OwnedProcess;
use super::recorder::HangRecorder;
use super::scene::HangScene;
use crate::lab::{BenchError, Measuring, cannot};
use crate::row::{FigureRow, FigureTarget};
use report::figure::Quantity;
use report::samples::Samples;

/// Rounds of a quick run.
const QUICK_ROUNDS: usize = 1;
/// How often each program runs in a round.
const TIMES: [usize; 2] = [10, 2];
/// How long the machine rests before each turn, in seconds: the recorder finds the programs at rest meanwhile. It does before turns
/// without one, too, so that nothing else differs between them.
const SETTLING: [usize; 2] = [8, 3];
/// The tree through which `find` goes: directories, and files in each.
const TREE: [usize; 2] = [100, 50];
/// What `make` compiles: files, and functions in each.
const SOURCES: [usize; 2] = [8, 40];

/// What runs beside a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Beside {
    Nothing,
    Recorder,
    Perf,
}

/// A program that is measured.
struct Measured {
    id: &'static str,
    perf_id: &'static str,
    title: &'static str,
    /// How much slower it may be.
    most: f64,
    command: Box<dyn Fn() -> Command>,
}

fn measured(scene: &HangScene, tree: &Path, sources: &Path) -> Vec<Measured> {
    let quiet = |mut command: Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let make = |words: Vec<String>, environment: &HangScene| {
        let mut plain = environment.command(&words[0]);
        plain.args(&words[1..]);
        let pairs: Vec<_> = plain
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        let program = plain.get_program().to_owned();
        let arguments: Vec<_> = plain.get_args().map(ToOwned::to_owned).collect();
        Box::new(move || {
            let mut command = Command::new(&program);
            command.args(&arguments).envs(pairs.iter().cloned()).stdin(Stdio::null());
            quiet(command)
        }) as Box<dyn Fn() -> Command>
    };
    let words = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let [tree, sources] = [tree, sources].map(|dir| dir.display().to_string());
    vec![
        Measured {
            id: "python",
            perf_id: "python-perf",
            title: "Python start",
            most: 1.01,
            command: make(words(&["/usr/bin/python3", "-c", "pass"]), scene),
        },
        Measured {
            id: "find",
            perf_id: "find-perf",
            title: "find, 5,000 files",
            most: 1.01,
            command: make(words(&["find", &tree, "-size", "+1"]), scene),
        },
        Measured {
            id: "pipe",
            perf_id: "pipe-perf",
            title: "sched pipe",
            most: 1.04,
            command: make(words(&["perf", "bench", "sched", "pipe", "-l", "10000"]), scene),
        },
        Measured {
            id: "make",
            perf_id: "make-perf",
            title: "make -j2, 8 files",
            most: 1.01,
            command: make(words(&["make", "-B", "-s", "-j2", "-C", &sources]), scene),
        },
    ]
}

pub(super) fn overhead(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let of = |[full, quick]: [usize; 2]| lab.effort.of(full, quick);
    let [tree, sources] = ["tree", "sources"].map(|name| lab.scene.at(name));
    make_tree(&tree).map_err(|error| cannot(&tree, error))?;
    write_sources(&sources).map_err(|error| cannot(&sources, error))?;
    lab.scene.give(&tree)?;
    lab.scene.give(&sources)?;
    let mut programs = measured(&lab.scene, &tree, &sources);
    let mut notes = Vec::new();
    if let Some(why) = perf_obstacle(lab) {
        notes.push(format!("perf record is not measured: {why}"));
    }
    programs.retain(|one| match run(one) {
        Ok(()) => true,
        Err(error) => {
            notes.push(format!("{} is not measured: {error}", one.title));
            false
        }
    });
    let mut order = vec![Beside::Nothing, Beside::Recorder];
    if !notes.iter().any(|note| note.starts_with("perf record")) {
        order.push(Beside::Perf);
    }
    let resting: Result<Vec<_>, _> =
        lab.scene.toolkits.iter().map(|toolkit| lab.scene.rest(toolkit)).collect();
    let mut resting = resting?;
    let settling = Duration::from_secs(u64::try_from(of(SETTLING)).unwrap_or(1));
    let mut samples = vec![<[Samples; 3]>::default(); programs.len()];
    for round in 0..lab.effort.of(lab.rounds, QUICK_ROUNDS) {
        for turn in 0..order.len() {
            lab.go_on()?;
            let beside = order[(round + turn) % order.len()];
            let other = start(lab, beside, round)?;
            if let Some(program) = resting.first_mut() {
                program.rest(settling)?;
            }
            for (program, samples) in programs.iter().zip(&mut samples) {
                // The first has everything in caches again.
                run(program)?;
                for _ in 0..of(TIMES) {
                    let (time, ended) = lab.time(|| run(program));
                    ended?;
                    samples[beside as usize].push(time);
                }
                samples[beside as usize].end_round();
            }
            other.end()?;
        }
    }
    drop(resting);
    let mut rows = Vec::new();
    for (program, [nothing, recorder, perf]) in programs.into_iter().zip(samples) {
        let row = |id, title: String, peer: Samples, target, note: &str| FigureRow {
            id,
            title,
            quantity: Quantity::Time,
            ours: recorder.clone(),
            peer,
            target,
            note: note.to_owned(),
        };
        let target = Some(FigureTarget::AtMost(program.most));
        let note = "the peer is the program by itself; the ratio is the median of the rounds', with its 95 % interval";
        rows.push(row(program.id, program.title.to_owned(), nothing, target, note));
        if !perf.is_empty() {
            rows.push(row(
                program.perf_id,
                format!("{}, peer perf", program.title),
                perf,
                None,
                "the peer is the program beside perf record -a -g -e 'sched:*'",
            ));
        }
    }
    if let Some(last) = rows.last_mut() {
        for note in notes {
            last.note = format!("{}; {note}", last.note);
        }
    }
    Ok(rows)
}

/// What runs beside the programs.
enum Other<'s> {
    Nothing,
    Recorder(HangRecorder<'s>),
    Perf(OwnedProcess, PathBuf),
}

impl Other<'_> {
    fn end(self) -> Result<(), BenchError> {
        match self {
            Other::Nothing => Ok(()),
            Other::Recorder(recorder) => recorder.end(),
            Other::Perf(process, file) => {
                process.end().map_err(|error| cannot("perf record", error))?;
                // It may have hundreds of megabytes, or be missing if nothing was recorded.
                let _ = std::fs::remove_file(file);
                Ok(())
            }
        }
    }
}

fn start<'s>(lab: &'s Lab<'_>, beside: Beside, round: usize) -> Result<Other<'s>, BenchError> {
    Ok(match beside {
        Beside::Nothing => Other::Nothing,
        Beside::Recorder => Other::Recorder(HangRecorder::start(&lab.scene)?),
        Beside::Perf => {
            let file = lab.scene.at(&format!("perf-{round}"));
            let mut command = perf(lab, &file);
            let process = OwnedProcess::start(command.stdout(Stdio::null()))
                .map_err(|error| cannot("perf record", error))?;
            // It records from when its file is there.
            if !process.ends_or(|| file.exists()) {
                return Err(cannot("perf record", "it does not record"));
            }
            Other::Perf(process, file)
        }
    })
}

fn perf(lab: &Lab<'_>, file: &Path) -> Command {
    // It records what all do.
    let mut command = lab.scene.own_command("perf");
    command.args(["record", "-q", "-a", "-g", "-e", "sched:*", "-o"]).arg(file);
    command
}

/// Returns why `perf record` cannot record here.
fn perf_obstacle(lab: &Lab<'_>) -> Option<String> {
    let file = lab.scene.at("perf-try");
    let output = perf(lab, &file).args(["--", "true"]).stdout(Stdio::null()).output();
    let _ = std::fs::remove_file(&file);
    match output {
        Err(error) => Some(error.to_string()),
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Some(said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it fails").to_owned())
        }
    }
}

fn run(program: &Measured) -> Result<(), BenchError> {
    let mut command = (program.command)();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(cannot(program.title, status)),
        Err(error) => Err(cannot(program.title, error)),
    }
}

fn make_tree(tree: &Path) -> std::io::Result<()> {
    for directory in 0..TREE[0] {
        let directory = tree.join(directory.to_string());
        DirBuilder::new().recursive(true).create(&directory)?;
        for file in 0..TREE[1] {
            std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .open(directory.join(file.to_string()))?;
        }
    }
    Ok(())
}

/// Writes files of C that include what programs include, and the rules to compile them.
fn write_sources(dir: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).create(dir)?;
    let [files, functions] = SOURCES;
    let mut objects = Vec::new();
    for file in 0..files {
        let mut text = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n".to_owned();
        for function in 0..functions {
            text.push_str(&format!(
                "int f{file}_{function}(const char *text, int n) {{\n\
                 \tchar line[64];\n\
                 \tfor (int i = 0; i < n; i++)\n\
                 \t\tn += snprintf(line, sizeof line, \"%s %d\", text, i) + (int)strlen(line);\n\
                 \treturn n * {function};\n}}\n"
            ));
        }
        write_new(&dir.join(format!("f{file}.c")), text.as_bytes())?;
        objects.push(format!("f{file}.o"));
    }
    let rules = format!("CFLAGS = -O1\nall: {}\n", objects.join(" "));
    write_new(&dir.join("Makefile"), rules.as_bytes())
}
