//! The figures, in the order in which they are measured. Ours and the peer's take turns within each.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Figure, Lab, cannot, kservice};
use crate::lab::{BenchError, BenchSide, Measuring};
use crate::names::Needs;
use crate::row::{FigureRow, FigureTarget};
use report::figure::Quantity;
use report::samples::Samples;

/// All figures.
pub const FIGURES: &[Figure] = &[
    Figure {
        id: "first",
        about: "the first question of a new process, with the check that nothing changed",
        seconds: 4,
        needs: Needs::Nothing,
        run: first,
    },
    Figure {
        id: "plugins",
        about: "the first question for a plugin, beside Qt's search",
        seconds: 4,
        needs: Needs::Nothing,
        run: plugins,
    },
    Figure {
        id: "again",
        about: "questions that are repeated, by identifier and by MIME type",
        seconds: 2,
        needs: Needs::Nothing,
        run: again,
    },
    Figure {
        id: "build",
        about: "the whole index from nothing",
        seconds: 4,
        needs: Needs::Nothing,
        run: build,
    },
    Figure {
        id: "unchanged",
        about: "making it current when nothing changed",
        seconds: 4,
        needs: Needs::Nothing,
        run: unchanged,
    },
    Figure {
        id: "added",
        about: "making it current after a plugin was added",
        seconds: 4,
        needs: Needs::Nothing,
        run: added,
    },
    Figure {
        id: "size",
        about: "how large the index is",
        seconds: 1,
        needs: Needs::Nothing,
        run: size,
    },
    Figure {
        id: "command",
        about: "unjank apps default beside gio mime",
        seconds: 2,
        needs: Needs::Nothing,
        run: command,
    },
    Figure {
        id: "first-cold",
        about: "the first question, nothing in caches",
        seconds: 20,
        needs: Needs::Cold,
        run: first_cold,
    },
    Figure {
        id: "build-cold",
        about: "the whole index, nothing in caches",
        seconds: 20,
        needs: Needs::Cold,
        run: build_cold,
    },
    Figure {
        id: "peers",
        about: "the programs of --peer",
        seconds: 4,
        needs: Needs::Peers,
        run: peers,
    },
];

/// Limits that were promised, in nanoseconds and bytes.
const FIRST: f64 = 150e3;
const AGAIN_BY_ID: f64 = 500.0;
const AGAIN_BY_TYPE: f64 = 3e3;
const UNCHANGED: f64 = 1e6;
const ADDED: f64 = 3e6;
const SIZE: f64 = 500e3;

/// KDE's program that makes its cache.
const SYCOCA: &str = "kbuildsycoca5";
/// Rounds in one process, of which the first is the first question.
const ROUNDS: usize = 30;

fn row(
    id: &'static str,
    title: &str,
    [ours, peer]: [Samples; 2],
    target: Option<FigureTarget>,
) -> FigureRow {
    let (title, note) = (title.to_owned(), String::new());
    FigureRow { id, title, quantity: Quantity::Time, ours, peer, target, note }
}

fn noted(mut row: FigureRow, note: &str) -> FigureRow {
    row.note = note.to_owned();
    row
}

/// Runs a program in our world with its output thrown away, and returns how long it took.
fn run(lab: &Lab<'_>, words: &[&str]) -> Result<f64, BenchError> {
    let (program, arguments) = words.split_first().ok_or_else(|| cannot("", "it is empty"))?;
    let mut command = lab.world.command(Path::new(program));
    timed(lab, command.args(arguments), words)
}

/// Runs a command with its output thrown away, and returns how long it took; `words` is what it is called.
fn timed(lab: &Lab<'_>, command: &mut Command, words: &[&str]) -> Result<f64, BenchError> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (time, status) = lab.time(|| command.status());
    match status {
        Ok(status) if status.success() => Ok(time),
        Ok(status) => Err(cannot(words.join(" "), status)),
        Err(error) => Err(cannot(words.join(" "), error)),
    }
}

/// What a program that asks in a process of its own said: nanoseconds of each question, the first one first.
fn asked(lab: &Lab<'_>, program: &Path, words: &[&str]) -> Result<Vec<f64>, BenchError> {
    let output = lab.world.command(program).args(words).output();
    let name = program.display().to_string();
    let text = kservice::succeeded(&name, output.map_err(|error| cannot(program, error))?)?;
    let lines = text.lines().map(|line| {
        let (time, found) = line.split_once(' ')?;
        let found: u32 = found.parse().ok()?;
        (found > 0).then_some(time.parse().ok()?)
    });
    let times: Option<Vec<f64>> = lines.collect();
    let times = times.filter(|times| !times.is_empty());
    times.ok_or_else(|| cannot(program, format!("it found nothing for {}", words.join(" "))))
}

/// Asks our index in a process of its own.
fn ask_ours(lab: &Lab<'_>, what: &str, value: &str, rounds: usize) -> Result<Vec<f64>, BenchError> {
    let rounds = rounds.to_string();
    // We know an application by the name of its file, KDE without the ending.
    let id = format!("{value}.desktop");
    let value = if what == "app" { &id } else { value };
    asked(lab, &lab.index, &["ask", what, value, &rounds])
}

/// Asks KDE's cache in a process of its own.
fn ask_kde(lab: &Lab<'_>, what: &str, value: &str, rounds: usize) -> Result<Vec<f64>, BenchError> {
    asked(lab, &kservice::program(lab)?, &[what, value, &rounds.to_string()])
}

/// Makes our index current, as a user would.
fn index(lab: &Lab<'_>) -> Result<f64, BenchError> {
    run(lab, &[&lab.index.to_string_lossy()])
}

/// Makes both caches current, so that neither is made while we measure.
fn make_current(lab: &Lab<'_>) -> Result<(), BenchError> {
    index(lab)?;
    run(lab, &[SYCOCA])?;
    // What was changed in the moment in which it was read is read once more.
    index(lab).map(drop)
}

fn first_of(times: Vec<f64>) -> Result<f64, BenchError> {
    times.first().copied().ok_or_else(|| cannot("the client", "it said nothing"))
}

const ON_FIRST: &str = "in the process, from the call to the answer: opening, checking that nothing changed, finding; the peer KService, whose check is of some ten directories";

fn first(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    make_current(lab)?;
    let rounds = lab.effort.of(30, 3);
    let by_id = lab.in_turn(
        rounds,
        |_| first_of(ask_ours(lab, "app", &lab.app, 1)?),
        |_| first_of(ask_kde(lab, "service", &lab.app, 1)?),
    )?;
    let by_type = lab.in_turn(
        rounds,
        |_| first_of(ask_ours(lab, "mime", &lab.mime_type, 1)?),
        |_| first_of(ask_kde(lab, "mime", &lab.mime_type, 1)?),
    )?;
    let target = Some(FigureTarget::Within(FIRST));
    Ok(vec![
        noted(row("first", "first question, by id", by_id, target), ON_FIRST),
        noted(
            row("first-mime", "first question, by MIME type", by_type, target),
            "all applications that open it; ours also looks whether their programs are there",
        ),
    ])
}

/// The directories below Qt 5's plugins, as `findPlugins` takes them: each by itself.
fn namespaces() -> Vec<String> {
    let root = PathBuf::from(format!("/usr/lib/{}-linux-gnu/qt5/plugins", std::env::consts::ARCH));
    let mut found = Vec::new();
    let mut left = vec![root.clone()];
    while let Some(directory) = left.pop() {
        if let Ok(name) = directory.strip_prefix(&root) {
            found.push(name.to_string_lossy().into_owned());
        }
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        left.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    found
}

/// Searches all plugins as KDE does.
fn find_plugins(lab: &Lab<'_>) -> Result<f64, BenchError> {
    let namespaces = namespaces();
    let words = ["plugins", "1"].into_iter().chain(namespaces.iter().map(String::as_str));
    let words: Vec<&str> = words.collect();
    first_of(asked(lab, &kservice::program(lab)?, &words)?)
}

fn plugins(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let bytes = a_plugin()?;
    // An even round adds it.
    lab.world.switch_plugin(0, &bytes)?;
    // An index of files that may change again unseen gives no answers from them.
    sys::file_clock::wait_until_later();
    index(lab)?;
    find_plugins(lab)?;
    index(lab)?;
    let rounds = lab.effort.of(15, 2);
    let by_namespace = lab.in_turn(
        rounds,
        |_| first_of(ask_ours(lab, "plugins", "kf5", 1)?),
        |_| find_plugins(lab),
    )?;
    let [middle, last] = two_plugins(lab)?;
    let by_id = |id: &str| {
        let ours = |_| first_of(ask_ours(lab, "plugin", id, 1)?);
        lab.in_turn(rounds, ours, |_| find_plugins(lab))
    };
    let (by_id, by_last_id) = (by_id(&middle)?, by_id(&last)?);
    lab.world.switch_plugin(1, &bytes)?;
    let target = Some(FigureTarget::Within(FIRST));
    let on_peer = "the peer KPluginMetaData::findPlugins over all of Qt 5's directories, which reads every file";
    Ok(vec![
        noted(
            row("plugins", "first question for plugins", by_namespace, target),
            &format!("ours those of one namespace, whose directories alone are checked; {on_peer}"),
        ),
        noted(
            row("plugin", "first question for a plugin, by id", by_id, target),
            &format!(
                "ours checks the directories that count as much or more, half of them: {middle}; {on_peer}"
            ),
        ),
        noted(
            row(
                "plugin-last",
                "first question for the plugin that counts least",
                by_last_id,
                target,
            ),
            &format!("ours checks every directory of plugins: {last}; {on_peer}"),
        ),
    ])
}

/// Returns the identifiers of the plugin in the middle and of the last one, in the order in which they count.
fn two_plugins(lab: &Lab<'_>) -> Result<[String; 2], BenchError> {
    let output = lab.world.command(&lab.program).args(["plugins", "list", "--json"]).output();
    let output = output.map_err(|error| cannot(&lab.program, error))?;
    let told = kservice::succeeded("plugins list", output)?;
    let told: serde_json::Value =
        serde_json::from_str(&told).map_err(|error| cannot(&lab.program, error))?;
    let listed = told["plugins"].as_array().into_iter().flatten();
    let mut ids: Vec<&str> = Vec::new();
    for id in listed.filter_map(|plugin| plugin["properties"]["Id"].as_str()) {
        // Another one of the same identifier is not the one that is used.
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    match (ids.get(ids.len() / 2), ids.last()) {
        (Some(middle), Some(last)) => Ok([(*middle).to_owned(), (*last).to_owned()]),
        _ => Err(cannot(&lab.program, "it lists no plugins")),
    }
}

/// Returns the bytes of a plugin of this machine.
fn a_plugin() -> Result<Vec<u8>, BenchError> {
    let root = PathBuf::from(format!("/usr/lib/{}-linux-gnu/qt5/plugins", std::env::consts::ARCH));
    let plugin = root.join("imageformats/libqgif.so");
    std::fs::read(&plugin).map_err(|error| cannot(&plugin, error))
}

fn again(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    make_current(lab)?;
    let mut rows = Vec::new();
    for (id, title, [ours, kde], value, most) in [
        ("again", "repeated question, by id", ["app", "service"], &lab.app, AGAIN_BY_ID),
        (
            "again-mime",
            "repeated question, by MIME type",
            ["mime", "mime"],
            &lab.mime_type,
            AGAIN_BY_TYPE,
        ),
    ] {
        let mut samples = <[Samples; 2]>::default();
        for round in 0..lab.effort.of(4, 1) {
            for side in BenchSide::in_turn(round) {
                lab.go_on()?;
                let (times, to) = match side {
                    BenchSide::Ours => (ask_ours(lab, ours, value, ROUNDS)?, &mut samples[0]),
                    BenchSide::Peer => (ask_kde(lab, kde, value, ROUNDS)?, &mut samples[1]),
                };
                // The first is another figure, and the next few warm up.
                times.into_iter().skip(5).for_each(|time| to.push(time));
            }
        }
        rows.push(noted(
            row(id, title, samples, Some(FigureTarget::Within(most))),
            "in one process; a sample of ours is the mean of 64 questions",
        ));
    }
    Ok(rows)
}

const ON_PROCESS: &str = "the whole process from outside: ours unjank-index, the peer kbuildsycoca5, which reads no plugins";

fn build(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    make_current(lab)?;
    let samples = lab.in_turn(
        lab.effort.of(15, 2),
        |_| {
            lab.world.forget_caches()?;
            index(lab)
        },
        |_| {
            lab.world.forget_caches()?;
            run(lab, &[SYCOCA, "--noincremental"])
        },
    )?;
    let target = Some(FigureTarget::AtMost(1.0 / 8.0));
    Ok(vec![noted(row("build", "index from nothing", samples, target), ON_PROCESS)])
}

fn unchanged(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    make_current(lab)?;
    let rounds = lab.effort.of(20, 2);
    let samples = lab.in_turn(rounds, |_| index(lab), |_| run(lab, &[SYCOCA]))?;
    let inside = refreshed(lab, rounds, |_| Ok(()))?;
    let in_process = row(
        "unchanged-inside",
        "nothing changed, in the process",
        [inside, Samples::default()],
        Some(FigureTarget::Within(UNCHANGED)),
    );
    Ok(vec![
        noted(
            row("unchanged", "nothing changed", samples, Some(FigureTarget::Within(UNCHANGED))),
            ON_PROCESS,
        ),
        noted(in_process, ON_REFRESH),
    ])
}

const ON_REFRESH: &str = "the refresh alone, in a new process, from reading the environment to the open index: lock, check, and what has to be read, made and stored; without the start and the end of the process";

/// Makes our index current in a process of its own after each `change`, and returns how long the refresh took inside.
fn refreshed(
    lab: &Lab<'_>,
    rounds: usize,
    mut change: impl FnMut(usize) -> Result<(), BenchError>,
) -> Result<Samples, BenchError> {
    let mut inside = Samples::default();
    for round in 0..rounds {
        lab.go_on()?;
        change(round)?;
        inside.push(first_of(asked(lab, &lab.index, &["ask", "refresh"])?)?);
    }
    Ok(inside)
}

fn added(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    make_current(lab)?;
    let bytes = a_plugin()?;
    // What is added for the peer is not ours to read, too: each side has one change.
    let peer = || {
        let mut command = lab.world.command(Path::new(SYCOCA));
        timed(lab, command.env("XDG_DATA_DIRS", lab.world.data_dirs_of_peer()), &[SYCOCA])
    };
    peer()?;
    // An even number of rounds takes away again what was added.
    let rounds = lab.effort.of(20, 2);
    let samples = lab.in_turn(
        rounds,
        |round| {
            lab.world.switch_plugin(round, &bytes)?;
            index(lab)
        },
        |round| {
            lab.world.switch_application(round)?;
            peer()
        },
    )?;
    let inside = refreshed(lab, rounds, |round| lab.world.switch_plugin(round, &bytes))?;
    let in_process = row(
        "added-inside",
        "one plugin added or removed, in the process",
        [inside, Samples::default()],
        Some(FigureTarget::Within(ADDED)),
    );
    Ok(vec![
        noted(
            row("added", "one plugin added or removed", samples, Some(FigureTarget::Within(ADDED))),
            "the whole process from outside; the peer after a desktop file was added or removed, because plugins are not in its cache",
        ),
        noted(in_process, ON_REFRESH),
    ])
}

fn size(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    make_current(lab)?;
    let ours = lab.world.cached_bytes("unjank", "index-")?;
    let peer = lab.world.cached_bytes("", "ksycoca5_")?;
    let samples = [ours, peer].map(|bytes| [bytes].into_iter().collect());
    let mut row = row("size", "size of the index", samples, Some(FigureTarget::Within(SIZE)));
    row.quantity = Quantity::Size;
    let output = lab.world.command(&lab.program).args(["plugins", "index", "--json"]).output();
    let output = output.map_err(|error| cannot(&lab.program, error))?;
    let told = kservice::succeeded("plugins index", output)?;
    let told: serde_json::Value =
        serde_json::from_str(&told).map_err(|error| cannot(&lab.program, error))?;
    row.note = format!(
        "one locale; ours {} plugins and {} applications, the peer applications and services only",
        told["plugins"], told["applications"]
    );
    Ok(vec![row])
}

/// Asks for the default application as a command.
fn ask_default(lab: &Lab<'_>) -> Result<f64, BenchError> {
    run(lab, &[&lab.program.to_string_lossy(), "apps", "default", &lab.mime_type])
}

fn command(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    make_current(lab)?;
    let samples = lab.in_turn(
        lab.effort.of(20, 2),
        |_| ask_default(lab),
        |_| run(lab, &["gio", "mime", &lab.mime_type]),
    )?;
    let row = row("command", "the default application, as a command", samples, None);
    Ok(vec![noted(row, "the whole process from outside: unjank apps default beside gio mime")])
}

fn first_cold(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    make_current(lab)?;
    kservice::program(lab)?;
    let samples = lab.in_turn(
        lab.effort.of(7, 1),
        |_| {
            lab.forget()?;
            first_of(ask_ours(lab, "app", &lab.app, 1)?)
        },
        |_| {
            lab.forget()?;
            first_of(ask_kde(lab, "service", &lab.app, 1)?)
        },
    )?;
    let target = Some(FigureTarget::AtMost(0.5));
    Ok(vec![noted(
        row("first-cold", "first question, cold", samples, target),
        "the kernel's caches are dropped before each process; its start is not counted",
    )])
}

fn build_cold(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    make_current(lab)?;
    let samples = lab.in_turn(
        lab.effort.of(7, 1),
        |_| {
            lab.world.forget_caches()?;
            lab.forget()?;
            index(lab)
        },
        |_| {
            lab.world.forget_caches()?;
            lab.forget()?;
            run(lab, &[SYCOCA, "--noincremental"])
        },
    )?;
    let target = Some(FigureTarget::AtMost(0.5));
    Ok(vec![noted(row("build-cold", "index from nothing, cold", samples, target), ON_PROCESS)])
}

fn peers(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    make_current(lab)?;
    let mut rows = Vec::new();
    for peer in &lab.peers {
        let words = peer.words(&lab.app, &lab.mime_type);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let samples =
            lab.in_turn(lab.effort.of(15, 2), |_| ask_default(lab), |_| run(lab, &words))?;
        let title = format!("the default application (peer: {})", peer.name);
        rows.push(noted(row("peers", &title, samples, None), &words.join(" ")));
    }
    Ok(rows)
}
