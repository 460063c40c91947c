//! The figures, in the order in which they are measured. Ours and the peer's take turns within each.

use report::error::chain;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Command;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use recents::{RecentTime, Recents, writer};
use sys::thread::spawn_scoped;

use super::home::Home;
use super::watched::{output, syncs, written};
use super::{Figure, Lab, cannot};
use crate::lab::{BenchError, BenchSide, Effort, Measuring};
use crate::names::Needs;
use crate::row::{FigureRow, FigureTarget};
use report::figure::Quantity;
use report::samples::Samples;

/// All figures.
pub const FIGURES: &[Figure] = &[
    Figure {
        id: "add-0",
        about: "one addition to an empty list",
        seconds: 4,
        needs: Needs::Nothing,
        run: add_0,
    },
    Figure {
        id: "add-1000",
        about: "one addition to 1000 entries",
        seconds: 5,
        needs: Needs::Nothing,
        run: add_1000,
    },
    Figure {
        id: "add-5000",
        about: "one addition to 5000 entries",
        seconds: 8,
        needs: Needs::Nothing,
        run: add_5000,
    },
    Figure {
        id: "process",
        about: "unjank recent add beside /bin/true",
        seconds: 3,
        needs: Needs::Nothing,
        run: process,
    },
    Figure {
        id: "syncs",
        about: "syncs while the caller waits",
        seconds: 4,
        needs: Needs::Nothing,
        run: sync_count,
    },
    Figure {
        id: "kept-0",
        about: "4 writers, 50 additions each",
        seconds: 10,
        needs: Needs::Nothing,
        run: kept_0,
    },
    Figure {
        id: "kept-1000",
        about: "the same with 1000 entries",
        seconds: 15,
        needs: Needs::Nothing,
        run: kept_1000,
    },
    Figure {
        id: "mixed",
        about: "4 writers of ours, 2 of KDE, 2 of GTK",
        seconds: 20,
        needs: Needs::Nothing,
        run: mixed,
    },
    Figure {
        id: "seen",
        about: "until a GTK and a KDE program see it",
        seconds: 10,
        needs: Needs::Nothing,
        run: seen,
    },
    Figure {
        id: "bytes",
        about: "bytes for 40 additions to 5000",
        seconds: 8,
        needs: Needs::Nothing,
        run: bytes,
    },
    Figure {
        id: "peers",
        about: "the programs of --peer",
        seconds: 5,
        needs: Needs::Peers,
        run: peers,
    },
];

/// How long an addition may hold a program up, in nanoseconds.
const ADD: f64 = 50e3;
/// How long a writer of the lists may take after the last addition.
const WRITER_PATIENCE: Duration = Duration::from_secs(20);
/// How much longer than `/bin/true` our program may take.
const PROCESS: f64 = 1.5e6;
/// How soon others must see an addition.
const SEEN: f64 = 1e9;
/// What each writer adds, and in a quick run; how many write.
const EACH: [usize; 2] = [50, 10];
const WRITERS: usize = 4;
/// The documents in the longest lists, and in a quick run, in which nothing is judged by the clock.
const LONGEST: [u32; 2] = [5000, 1500];

/// Returns what each writer adds.
fn each(lab: &Lab<'_>) -> usize {
    lab.effort.of(EACH[0], EACH[1])
}

/// Returns how many documents the longest lists have.
fn longest(lab: &Lab<'_>) -> u32 {
    if lab.effort == Effort::Full { LONGEST[0] } else { LONGEST[1] }
}

fn row(id: &'static str, title: &str, quantity: Quantity, [ours, peer]: [Samples; 2]) -> FigureRow {
    let (title, note) = (title.to_owned(), String::new());
    FigureRow { id, title, quantity, ours, peer, target: None, note }
}

fn ours(error: impl std::error::Error) -> BenchError {
    cannot("our list", chain(&error))
}

/// Adds `count` documents of `dir` as a program does by our library, and returns how long each took.
fn add(
    lab: &Lab<'_>,
    home: &Home,
    recents: &mut Recents,
    dir: &str,
    count: usize,
) -> Result<Samples, BenchError> {
    let mut samples = Samples::default();
    for number in 0..count {
        let at = RecentTime::of(lab.clock.now());
        let addition = home.addition(&format!("docs/{dir}/{number}"), at)?;
        let (took, added) = lab.time(|| recents.add(&addition));
        added.map_err(ours)?;
        samples.push(took);
    }
    Ok(samples)
}

/// Reads the times that a program of `crates/bench/peers` prints.
fn times(text: &str, field: &str, scale: f64) -> Option<Samples> {
    let report: serde_json::Value = serde_json::from_str(text).ok()?;
    let times = report.get(field)?.as_array()?;
    Some(times.iter().filter_map(|time| Some(time.as_f64()? * scale)).collect())
}

/// Has KDE's program add documents, and returns how long each call took.
fn kde_adds(lab: &Lab<'_>, home: &Home, dir: &str, count: usize) -> Result<Samples, BenchError> {
    lab.go_on()?;
    let kde = lab.kde()?;
    let mut command = home.command(kde);
    command.arg("add").arg(home.at(&format!("docs/{dir}"))).arg(count.to_string());
    times(&output(command)?, "call_ms", 1e6).ok_or_else(|| cannot(kde, "it prints no times"))
}

/// Takes what a peer gave, or says in the note why it gave nothing.
fn or_noted(peer: Result<Samples, BenchError>, row: &mut FigureRow) {
    match peer {
        Ok(samples) => row.peer = samples,
        Err(error) => row.note = format!("{}the peer was not measured: {error}", row.note),
    }
}

fn adds(lab: &Lab<'_>, id: &'static str, entries: u32) -> Result<Vec<FigureRow>, BenchError> {
    let [mine, theirs] = [lab.home(entries)?, lab.home(entries)?];
    let mut recents = mine.recents();
    // A program's first addition opens the journal; it is one of ours, and KDE's makes its own cache, which is not counted.
    let (mut samples, mut peer) = (Samples::default(), Ok(Samples::default()));
    let warm = kde_adds(lab, &theirs, "warm", 1);
    for round in 0..lab.effort.of(5, 1) {
        samples.extend(&add(lab, &mine, &mut recents, &round.to_string(), 40)?);
        if let (Ok(all), Ok(_)) = (&mut peer, &warm) {
            match kde_adds(lab, &theirs, &round.to_string(), lab.effort.of(10, 3)) {
                Ok(more) => all.extend(&more),
                Err(error) => peer = Err(error),
            }
        }
    }
    let title = format!("one add to {entries} entries");
    let mut row = row(id, &title, Quantity::Time, [samples, Samples::default()]);
    row.target = Some(FigureTarget::Within(ADD));
    row.note = "ours by the library, the peer KRecentDocument::add; ".to_owned();
    or_noted(warm.and(peer), &mut row);
    Ok(vec![row])
}

fn add_0(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    adds(lab, "add-0", 0)
}

fn add_1000(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    adds(lab, "add-1000", 1000)
}

fn add_5000(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    adds(lab, "add-5000", longest(lab))
}

/// Prepares `unjank recent add`.
fn our_add(lab: &Lab<'_>, home: &Home, document: &str) -> Command {
    let mut command = home.command(&lab.program);
    command.args(["recent", "add", "--quiet"]).arg(home.at(document));
    command
}

fn process(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let home = lab.home(1000)?;
    let run = |mut command: Command| -> Result<f64, BenchError> {
        lab.go_on()?;
        let program = command.get_program().to_owned();
        command.stdout(std::process::Stdio::null());
        let (took, status) = lab.time(|| command.status());
        let status = status.map_err(|error| cannot(&program, error))?;
        if status.success() { Ok(took) } else { Err(cannot(&program, status)) }
    };
    let mut samples = Samples::default();
    run(our_add(lab, &home, "docs/first"))?;
    for round in 0..lab.effort.of(200, 10) {
        let document = format!("docs/process/{round}");
        let (add, bare);
        if round.is_multiple_of(2) {
            add = run(our_add(lab, &home, &document))?;
            bare = run(home.command("/bin/true"))?;
        } else {
            bare = run(home.command("/bin/true"))?;
            add = run(our_add(lab, &home, &document))?;
        }
        samples.push(add - bare);
    }
    settle(&home)?;
    let none = Samples::default();
    let mut row =
        row("process", "unjank recent add, less /bin/true", Quantity::Time, [samples, none]);
    row.target = Some(FigureTarget::Within(PROCESS));
    row.note = "each beside the other; the writer that it starts is not waited for".to_owned();
    Ok(vec![row])
}

/// Writes what is not written yet, and waits for the writers that the commands started: they would write to a home that
/// is gone.
fn settle(home: &Home) -> Result<(), BenchError> {
    writer::write_for_user(&mut home.recents()).map(drop).map_err(ours)?;
    for writer in home.writers() {
        if !writer.wait(WRITER_PATIENCE).map_err(|error| cannot("a writer", error))? {
            return Err(cannot("a writer", format!("it has not ended within {WRITER_PATIENCE:?}")));
        }
    }
    Ok(())
}

fn sync_count(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    const ADDS: usize = 3;
    let home = lab.home(10)?;
    // The library in this process is what a program would link: its calls are those of the program below.
    let mine = syncs(lab, &our_add(lab, &home, "docs/syncs"))?;
    settle(&home)?;
    let mut rows = Vec::new();
    let mut of = |id, title: &str, program: Result<&Path, BenchError>| {
        let mut row =
            row(id, title, Quantity::Count, [[mine].into_iter().collect(), Samples::default()]);
        row.target = Some(FigureTarget::Within(0.0));
        row.note = "calls of fsync and the like per addition, by the program itself; ".to_owned();
        let counted = program.and_then(|program| {
            let home = lab.home(10)?;
            let mut command = home.command(program);
            command.arg("add").arg(home.at("docs/warm")).arg("1");
            output(command)?;
            let mut command = home.command(program);
            command.arg("add").arg(home.at("docs/syncs")).arg(ADDS.to_string());
            let count = syncs(lab, &command)?;
            Ok([count / 3.0].into_iter().collect())
        });
        or_noted(counted, &mut row);
        rows.push(row);
    };
    of("syncs", "syncs of one add, beside KDE", lab.kde());
    of("syncs-gtk", "syncs of one add, beside GTK", lab.gtk());
    Ok(rows)
}

/// Has four programs of ours add at once.
fn four(lab: &Lab<'_>, home: &Home) -> Result<(), BenchError> {
    std::thread::scope(|scope| {
        let writer = |writer: usize| {
            spawn_scoped(scope, "writer", move || {
                add(lab, home, &mut home.recents(), &format!("ours-{writer}"), each(lab)).map(drop)
            })
        };
        let writers: Result<Vec<_>, _> = (0..WRITERS).map(writer).collect();
        let writers = writers.map_err(|error| cannot("our list", chain(&error)))?;
        writers.into_iter().try_for_each(|writer| match writer.join() {
            Ok(done) => done,
            Err(_) => Err(cannot("our list", "a writer ended early")),
        })
    })
}

/// Returns how many of the documents `docs/<who>-<writer>/<number>`, so many of each writer, the shared list lacks.
fn lost(home: &Home, who: &str, writers: usize, each: usize) -> Result<f64, BenchError> {
    let path = home.places().xbel;
    let text = std::fs::read_to_string(&path).map_err(|error| cannot(&path, error))?;
    let hrefs: BTreeSet<&str> =
        text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let mut lost = 0u32;
    for writer in 0..writers {
        for number in 0..each {
            let path = home.at(&format!("docs/{who}-{writer}/{number}"));
            let there = hrefs.contains(&*format!("file://{}", path.display()));
            lost += u32::from(!there);
        }
    }
    Ok(f64::from(lost))
}

fn kept(lab: &Lab<'_>, id: &'static str, entries: u32) -> Result<Vec<FigureRow>, BenchError> {
    let home = lab.home(entries)?;
    four(lab, &home)?;
    settle(&home)?;
    let mine = lost(&home, "ours", WRITERS, each(lab))?;
    let title = format!("lost of {} by 4 writers, {entries} entries", WRITERS * each(lab));
    let mut row =
        row(id, &title, Quantity::Count, [[mine].into_iter().collect(), Samples::default()]);
    row.target = Some(FigureTarget::Within(0.0));
    row.note = "in recently-used.xbel afterwards; the peer four programs with KRecentDocument; "
        .to_owned();
    let peer = lab.kde().and_then(|kde| {
        let home = lab.home(entries)?;
        together(lab, &home, kde, "kde", WRITERS, &[])?;
        Ok([lost(&home, "kde", WRITERS, each(lab))?].into_iter().collect())
    });
    or_noted(peer, &mut row);
    Ok(vec![row])
}

/// Starts a program several times at once, and waits for all.
fn together(
    lab: &Lab<'_>,
    home: &Home,
    program: &Path,
    who: &str,
    writers: usize,
    more: &[&str],
) -> Result<(), BenchError> {
    lab.go_on()?;
    let verb = if more.is_empty() { "add" } else { "burst" };
    let start = |writer: usize| {
        let mut command = home.command(program);
        command.arg(verb).arg(home.at(&format!("docs/{who}-{writer}"))).arg(each(lab).to_string());
        command.args(more).stdout(std::process::Stdio::null()).spawn()
    };
    let children: Vec<_> = (0..writers).map(start).collect();
    for child in children {
        let status = child.and_then(|mut child| child.wait()).map_err(|e| cannot(program, e))?;
        if !status.success() {
            return Err(cannot(program, status));
        }
    }
    Ok(())
}

fn kept_0(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    kept(lab, "kept-0", 0)
}

fn kept_1000(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    kept(lab, "kept-1000", 1000)
}

fn mixed(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let home = lab.home(100)?;
    let (kde, gtk) = (lab.kde()?, lab.gtk()?);
    std::thread::scope(|scope| {
        let home = &home;
        let others = [
            spawn_scoped(scope, "kde", move || together(lab, home, kde, "kde", 2, &[])),
            spawn_scoped(scope, "gtk", move || together(lab, home, gtk, "gtk", 2, &["20"])),
        ];
        // Others read what ours write while they write themselves.
        let mut done = four(lab, home).and_then(|()| settle(home));
        for other in others {
            let other = match other.map(ScopedJoinHandle::join) {
                Ok(Ok(other)) => other,
                Ok(Err(_)) => Err(cannot("a peer", "it ended early")),
                Err(error) => Err(cannot("a peer", chain(&error))),
            };
            done = done.and(other);
        }
        done
    })?;
    settle(&home)?;
    let each = each(lab);
    let mine = lost(&home, "ours", WRITERS, each)?;
    let peer = lost(&home, "kde", 2, each)? + lost(&home, "gtk", 2, each)?;
    let samples = [mine, peer].map(|lost| [lost].into_iter().collect());
    let all = WRITERS * each;
    let title = format!("lost of {all}, beside 2 KDE and 2 GTK");
    let mut row = row("mixed", &title, Quantity::Count, samples);
    row.target = Some(FigureTarget::Within(0.0));
    row.note = format!(
        "in recently-used.xbel afterwards; the peer is what KDE's and GTK's lost of theirs, also {all}"
    );
    Ok(vec![row])
}

fn seen(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let mut rows = Vec::new();
    let home = lab.home(100)?;
    let mut samples = [Samples::default(), Samples::default()];
    let (kde, gtk) = (lab.kde()?, lab.gtk()?);
    for round in 0..lab.effort.of(5, 1) {
        let document = format!("docs/seen-{round}");
        let path = home.at(&document);
        // KDE lists no document that is not there.
        let made = OpenOptions::new().create(true).append(true).open(&path);
        made.map_err(|error| cannot(&path, error))?;
        let uri = format!("file://{}", path.display());
        let mut waiting = home.command(gtk);
        let mut waiting =
            waiting.args(["wait", &uri, "30"]).spawn().map_err(|error| cannot(gtk, error))?;
        let mut said = waiting.stdout.take().map(BufReader::new);
        let mut line = String::new();
        if let Some(said) = &mut said {
            said.read_line(&mut line).map_err(|error| cannot(gtk, error))?;
        }
        let start = lab.clock.monotonic();
        let since = || report::figure::nanoseconds(lab.clock.monotonic().saturating_sub(start));
        output(our_add(lab, &home, &document))?;
        // KDE's program is asked again and again; that it takes a while itself is in the figure.
        let seen_by_kde = loop {
            lab.go_on()?;
            let mut list = home.command(kde);
            list.arg("list");
            if output(list)?.lines().any(|line| line == uri) {
                break since();
            }
            if since() > 30.0 * SEEN {
                return Err(cannot(kde, "it never saw what was added"));
            }
        };
        if let Some(said) = &mut said {
            said.read_to_string(&mut line).map_err(|error| cannot(gtk, error))?;
        }
        let status = waiting.wait().map_err(|error| cannot(gtk, error))?;
        let waited = line.lines().find_map(|line| {
            let report: serde_json::Value = serde_json::from_str(line).ok()?;
            report.get("seen_ms")?.as_f64()
        });
        let waited = waited.filter(|_| status.success());
        samples[0].push(waited.ok_or_else(|| cannot(gtk, "it never saw what was added"))? * 1e6);
        samples[1].push(seen_by_kde);
    }
    for (id, title, samples) in [
        ("seen-gtk", "until a running GTK program sees an add", &samples[0]),
        ("seen-kde", "until a KDE program that asks sees it", &samples[1]),
    ] {
        let mut row = row(id, title, Quantity::Time, [samples.clone(), Samples::default()]);
        row.target = Some(FigureTarget::Within(SEEN));
        row.note = "without a daemon: the writer that unjank recent add starts".to_owned();
        rows.push(row);
    }
    settle(&home)?;
    Ok(rows)
}

fn bytes(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    const ADDS: usize = 40;
    let [mine, theirs] = [lab.home(longest(lab))?, lab.home(longest(lab))?];
    let before = own_bytes()?;
    add(lab, &mine, &mut mine.recents(), "bytes", ADDS)?;
    settle(&mine)?;
    let ours = own_bytes()? - before;
    let mut row = row(
        "bytes",
        &format!("bytes for 40 adds to {}", longest(lab)),
        Quantity::Size,
        [[ours].into_iter().collect(), Samples::default()],
    );
    row.target = Some(FigureTarget::AtMost(1.0 / 15.0));
    row.note = "given to write and the like, one add after the other without a pause, what others read included; ".to_owned();
    let peer = lab.kde().and_then(|kde| {
        let mut command = theirs.command(kde);
        command.arg("add").arg(theirs.at("docs/bytes")).arg(ADDS.to_string());
        Ok([written(command)?].into_iter().collect())
    });
    or_noted(peer, &mut row);
    Ok(vec![row])
}

/// Returns how many bytes this process has given to `write` and the like.
fn own_bytes() -> Result<f64, BenchError> {
    let path = "/proc/self/io";
    let text = std::fs::read_to_string(path).map_err(|error| cannot(path, error))?;
    let value = text.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse::<u64>().ok());
    let value = value.ok_or_else(|| cannot(path, "it has no wchar"))?;
    // As a time, because that is how a whole number becomes a figure without losing any.
    Ok(Duration::from_nanos(value).as_secs_f64() * 1e9)
}

fn peers(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let mut rows = Vec::new();
    for peer in &lab.peers {
        let [mine, theirs] = [lab.home(1000)?, lab.home(1000)?];
        let mut samples = <[Samples; 2]>::default();
        for round in 0..lab.effort.of(9, 2) {
            for side in BenchSide::in_turn(round) {
                lab.go_on()?;
                let command = match side {
                    BenchSide::Ours => our_add(lab, &mine, &format!("docs/{round}/0")),
                    BenchSide::Peer => {
                        let words = peer.words(&theirs.at(&format!("docs/{round}")), 1);
                        let mut command = theirs.command(&words[0]);
                        command.args(&words[1..]);
                        command
                    }
                };
                let (took, done) = lab.time(|| output(command));
                done?;
                samples[usize::from(side == BenchSide::Peer)].push(took);
            }
        }
        settle(&mine)?;
        let title = format!("unjank recent add, beside {}", peer.name);
        rows.push(row("peers", &title, Quantity::Time, samples));
    }
    Ok(rows)
}
