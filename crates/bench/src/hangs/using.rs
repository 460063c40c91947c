//! Programs as they are, used by a script beside an installation: the gaps that a frame counter in each saw, and what was recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use report::figure::Quantity;
use report::samples::Samples;

use super::Lab;
use super::files::write_new;
use super::judge::{RightShare, Span, ToldHang, covered_ns};
use super::process::OwnedProcess;
use super::recorder::{HangRecorder, told, unix_offset_ns};
use super::scene::HangScene;
use super::toolkits;
use crate::lab::{BenchError, Measuring, cannot};
use crate::row::{FigureRow, FigureTarget};
use crate::trace::exercise::now_ns;

/// For how long programs are used, in seconds; each is used once at least, of which a quick run uses the first one.
const SECONDS: [usize; 2] = [1200, 1];
const PROGRAMS: [usize; 2] = [usize::MAX, 1];
/// How long it takes until a recorder records.
const BEGINNING: Duration = Duration::from_secs(3);
/// What is done with a program takes less.
const USING: Duration = Duration::from_secs(120);
/// How long a program may take to end that was told to by a key.
const ENDING: Duration = Duration::from_secs(8);
/// How long one that does not is given then.
const TERMINATING: Duration = Duration::from_secs(5);
/// How often the counter's timer is due, in nanoseconds.
const TICK_NS: u64 = 16_000_000;
/// Gaps that are judged, without the interval of the timer, in nanoseconds.
const SHORTEST_NS: u64 = 150_000_000;

/// What a program opens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Opened {
    Text,
    Page,
    Document,
    Directory,
}

/// A program that is used.
struct UsedProgram {
    /// Its file on the `PATH`.
    name: &'static str,
    arguments: &'static [&'static str],
    opens: Opened,
    /// Whether something is typed and saved in it.
    is_edited: bool,
}

const fn editor(name: &'static str, arguments: &'static [&'static str]) -> UsedProgram {
    UsedProgram { name, arguments, opens: Opened::Text, is_edited: true }
}

const fn viewer(
    name: &'static str,
    arguments: &'static [&'static str],
    opens: Opened,
) -> UsedProgram {
    UsedProgram { name, arguments, opens, is_edited: false }
}

/// Of several toolkits: GTK 3 and 4, Qt and KDE, LibreOffice's own, and browsers'.
const USED: [UsedProgram; 12] = [
    editor("mousepad", &[]),
    editor("soffice", &["--writer", "--norestore"]),
    editor("featherpad", &["--standalone"]),
    editor("gnome-text-editor", &["-s"]),
    editor("kwrite", &[]),
    editor("geany", &["-i"]),
    viewer("okular", &[], Opened::Document),
    viewer("evince", &[], Opened::Document),
    viewer("dolphin", &[], Opened::Directory),
    viewer("pcmanfm", &[], Opened::Directory),
    viewer("firefox-esr", &["--no-remote"], Opened::Page),
    viewer("chromium", &["--no-sandbox", "--no-first-run"], Opened::Page),
];

/// What one process saw itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct CountedFrames {
    /// The program that was used.
    program: &'static str,
    process: u32,
    begin_ns: u64,
    last_ns: u64,
    /// From one turn of its main loop to the next, those of 66 ms and longer.
    gaps: Vec<Span>,
}

/// What came of the gaps of all processes.
#[derive(Debug, Default)]
struct UseJudgement {
    recall: RightShare,
    precision: RightShare,
    missed: Vec<String>,
    untrue: Vec<String>,
}

/// What was used, and what was not.
#[derive(Debug, Default)]
struct UseConditions {
    /// Programs in which a counter ran, and so often none did.
    counted: BTreeSet<&'static str>,
    uncounted: BTreeMap<&'static str, usize>,
    not_installed: Vec<&'static str>,
    /// Files that were installed meanwhile.
    installed: usize,
}

pub(super) fn using(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let scene = &lab.scene;
    let (programs, not_installed): (Vec<&UsedProgram>, Vec<&UsedProgram>) =
        USED.iter().partition(|program| is_installed(scene, program.name));
    let programs = &programs[..programs.len().min(lab.effort.of(PROGRAMS[0], PROGRAMS[1]))];
    for needed in ["xdotool", "openbox"] {
        if !is_installed(scene, needed) {
            return Err(cannot(needed, "it is not installed"));
        }
    }
    if programs.is_empty() {
        return Err(cannot("the programs that are used", "none is installed"));
    }
    let files = UsedFiles::make(scene)?;
    let counter = toolkits::compile_ticks(&scene.at(""))?;
    scene.make_readable(&counter, 0o755)?;
    let mut manager = scene.command("openbox");
    manager.env("DISPLAY", scene.display()).stdout(Stdio::null());
    let manager = OwnedProcess::start(&mut manager).map_err(|error| cannot("openbox", error))?;
    let offset = unix_offset_ns(lab.clock);
    let recorder = HangRecorder::start(scene)?;
    rest(&manager, BEGINNING)?;
    let until_ns = now_ns()
        + 1_000_000_000 * u64::try_from(lab.effort.of(SECONDS[0], SECONDS[1])).unwrap_or(1);
    let is_over = AtomicBool::new(false);
    let mut frames = Vec::new();
    let mut conditions = UseConditions::default();
    conditions.not_installed.extend(not_installed.iter().map(|program| program.name));
    let used = std::thread::scope(|scope| {
        let installs = || install(&scene.at("installed"), &is_over);
        let installation = sys::thread::spawn_scoped(scope, "bench-install", installs);
        let installation = installation.map_err(|error| cannot("a thread", error))?;
        let mut uses = || {
            for number in 0.. {
                for program in programs {
                    lab.go_on()?;
                    let ticks = scene.at(&format!("ticks/{number}-{}", program.name));
                    use_once(scene, program, &files, &counter, &ticks)?;
                    let counted = counted(program.name, &ticks)?;
                    match counted.is_empty() {
                        true => *conditions.uncounted.entry(program.name).or_default() += 1,
                        false => _ = conditions.counted.insert(program.name),
                    }
                    frames.extend(counted);
                }
                if now_ns() >= until_ns {
                    break;
                }
            }
            Ok(())
        };
        let used: Result<(), BenchError> = uses();
        is_over.store(true, Ordering::Relaxed);
        conditions.installed = installation.join().unwrap_or_default();
        used
    });
    recorder.end()?;
    drop(manager);
    used?;
    Ok(rows(&judge(&frames, &told(scene, offset)?), &conditions))
}

/// Says what the figures are of, and what they are not of.
fn of_what(conditions: &UseConditions) -> String {
    let UseConditions { counted, uncounted, not_installed, installed } = conditions;
    let counted: Vec<&str> = counted.iter().copied().collect();
    let mut text = format!("in {}, beside {installed} files installed", counted.join(", "));
    if !uncounted.is_empty() {
        let times = uncounted.iter().map(|(name, times)| format!("{name} x {times}"));
        let times: Vec<String> = times.collect();
        text.push_str(&format!("; used without a counter, and not judged: {}", times.join(", ")));
    }
    if !not_installed.is_empty() {
        text.push_str(&format!("; not installed: {}", not_installed.join(", ")));
    }
    text
}

fn rows(judged: &UseJudgement, conditions: &UseConditions) -> Vec<FigureRow> {
    let about = of_what(conditions);
    let row = |id, title: &str, share: RightShare, others: &[String], what: &str| FigureRow {
        id,
        title: title.to_owned(),
        quantity: Quantity::Share,
        ours: [share.percent()].into_iter().collect(),
        peer: Samples::default(),
        target: Some(FigureTarget::Reaching(100.0)),
        note: format!(
            "{} of {}, {about}{}{}",
            share.right,
            share.all,
            if others.is_empty() { "" } else { what },
            others.join(", ")
        ),
    };
    vec![
        row(
            "use-recall",
            "gaps over 150 ms in use, recorded",
            judged.recall,
            &judged.missed,
            "; not recorded: ",
        ),
        row(
            "use-precision",
            "hangs recorded in use, true",
            judged.precision,
            &judged.untrue,
            "; not true: ",
        ),
    ]
}

/// Holds what was recorded against what the programs saw. Before the first turn of its main loop a program starts, and the gap to the
/// second is a part of that; after the last it ends.
fn judge(counted: &[CountedFrames], told: &[ToldHang]) -> UseJudgement {
    let mut judgement = UseJudgement::default();
    for frames in counted {
        let CountedFrames { program, process, .. } = frames;
        let of_process: Vec<&ToldHang> =
            told.iter().filter(|hang| hang.process == *process).collect();
        let spans: Vec<Span> = of_process.iter().map(|hang| hang.span).collect();
        let is_judged =
            |gap: &&Span| gap.from_ns > frames.begin_ns && gap.length_ns() >= SHORTEST_NS + TICK_NS;
        let seconds = |at_ns: u64| at_ns.saturating_sub(frames.begin_ns) / 1_000_000_000;
        for gap in frames.gaps.iter().filter(is_judged) {
            let is_told = covered_ns(*gap, &spans) * 2 >= gap.length_ns();
            judgement.recall.add(is_told);
            if !is_told {
                let (ms, at_s) = (gap.length_ns() / 1_000_000, seconds(gap.from_ns));
                judgement.missed.push(format!("{ms} ms in {program} after {at_s} s"));
            }
        }
        for hang in of_process {
            let is_inside =
                hang.span.from_ns >= frames.begin_ns && hang.span.from_ns <= frames.last_ns;
            if !is_inside || hang.span.length_ns() < SHORTEST_NS {
                continue;
            }
            let is_true = covered_ns(hang.span, &frames.gaps) * 2 >= hang.span.length_ns();
            judgement.precision.add(is_true);
            if !is_true {
                let (ms, at_s) = (hang.span.length_ns() / 1_000_000, seconds(hang.span.from_ns));
                judgement
                    .untrue
                    .push(format!("{} of {ms} ms in {program} after {at_s} s", hang.cause));
            }
        }
    }
    judgement
}

/// Reads what the counters of a program's processes wrote.
fn counted(program: &'static str, dir: &Path) -> Result<Vec<CountedFrames>, BenchError> {
    let failed = |error: io::Error| cannot(dir, error);
    let mut counted = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let text = fs::read_to_string(&path).map_err(failed)?;
        let process = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        counted.extend(process.and_then(|process| parse(program, process, &text)));
    }
    Ok(counted)
}

/// Reads what one wrote. One that was killed may have written a part of its last line.
fn parse(program: &'static str, process: u32, text: &str) -> Option<CountedFrames> {
    let mut frames = CountedFrames { program, process, ..CountedFrames::default() };
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    for line in whole.lines() {
        let (kind, numbers) = line.split_once(' ')?;
        let numbers: Result<Vec<u64>, _> = numbers.split(' ').map(str::parse).collect();
        match (kind, &*numbers.ok()?) {
            ("begin", [at_ns]) => (frames.begin_ns, frames.last_ns) = (*at_ns, *at_ns),
            ("at", [at_ns]) => frames.last_ns = *at_ns,
            ("gap", [from_ns, to_ns]) => {
                frames.gaps.push(Span { from_ns: *from_ns, to_ns: *to_ns });
                frames.last_ns = *to_ns;
            }
            _ => return None,
        }
    }
    (frames.begin_ns > 0).then_some(frames)
}

/// What programs open.
struct UsedFiles {
    dir: PathBuf,
}

impl UsedFiles {
    fn make(scene: &HangScene) -> Result<UsedFiles, BenchError> {
        let dir = scene.at("opened");
        let failed = |error: io::Error| cannot(&dir, error);
        for name in ["opened", "opened/directory", "ticks", "installed"] {
            DirBuilder::new().create(scene.at(name)).map_err(failed)?;
        }
        let line = "some words of a text that is long enough to be wrapped ".repeat(2);
        let lines = (0..5000).map(|number| format!("line {number} {line}\n"));
        write_new(&dir.join("text.txt"), lines.collect::<String>().as_bytes()).map_err(failed)?;
        let words = "word ".repeat(200);
        let parts = (0..400).map(|number| format!("<h2>{number}</h2><p>{words}</p>\n"));
        let page = format!("<!doctype html><title>page</title>{}", parts.collect::<String>());
        write_new(&dir.join("page.html"), page.as_bytes()).map_err(failed)?;
        write_new(&dir.join("document.pdf"), &pdf(40)).map_err(failed)?;
        for number in 0..3000 {
            write_new(&dir.join(format!("directory/{number}.txt")), b"text\n").map_err(failed)?;
        }
        scene.make_readable(&scene.at("ticks"), 0o755)?;
        scene.give(&dir)?;
        Ok(UsedFiles { dir })
    }

    fn of(&self, opened: Opened) -> PathBuf {
        self.dir.join(match opened {
            Opened::Text => "text.txt",
            Opened::Page => "page.html",
            Opened::Document => "document.pdf",
            Opened::Directory => "directory",
        })
    }
}

/// Returns a document of so many pages of text, as ISO 32000 has it.
fn pdf(pages: usize) -> Vec<u8> {
    let text: String = (0..50)
        .map(|line| {
            format!("BT /F1 11 Tf 50 {} Td (Some words of line {line}) Tj ET\n", 780 - 15 * line)
        })
        .collect();
    let kids: Vec<String> = (0..pages).map(|page| format!("{} 0 R", 5 + page)).collect();
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        format!("<< /Type /Pages /Count {pages} /Kids [{}] >>", kids.join(" ")),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
        format!("<< /Length {} >>\nstream\n{text}endstream", text.len()),
    ];
    let page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R \
                /Resources << /Font << /F1 3 0 R >> >> >>";
    objects.extend((0..pages).map(|_| page.to_owned()));
    let mut bytes = b"%PDF-1.4\n".to_vec();
    let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for (number, object) in (1..).zip(&objects) {
        table.push_str(&format!("{:010} 00000 n \n", bytes.len()));
        bytes.extend(format!("{number} 0 obj\n{object}\nendobj\n").bytes());
    }
    let (start, count) = (bytes.len(), objects.len() + 1);
    let end = format!("trailer\n<< /Size {count} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n");
    bytes.extend(table.bytes().chain(end.bytes()));
    bytes
}

/// Returns what a person does with a program, as orders to `xdotool`: he looks through what he has opened, types, saves, and ends it.
fn orders(program: &UsedProgram) -> Vec<&'static str> {
    let mut orders = vec!["sleep", "5"];
    let scroll = |orders: &mut Vec<&str>, times: usize| {
        (0..times).for_each(|_| orders.extend(["key", "Next", "sleep", "0.08"]));
    };
    scroll(&mut orders, 20);
    (0..30).for_each(|_| orders.extend(["click", "5", "sleep", "0.03"]));
    if program.is_edited {
        orders.extend(["type", "--delay", "40", "hello there", "key", "ctrl+s", "sleep", "1"]);
        // LibreOffice asks in which format.
        if program.name == "soffice" {
            orders.extend(["key", "Return", "sleep", "1"]);
        }
    }
    orders.extend(["key", "ctrl+Home", "sleep", "0.5"]);
    scroll(&mut orders, 10);
    if program.is_edited {
        orders.extend(["type", "--delay", "30", "more", "key", "ctrl+s", "sleep", "1"]);
    }
    orders.extend(["sleep", "1", "key", "ctrl+q"]);
    orders
}

fn use_once(
    scene: &HangScene,
    program: &UsedProgram,
    files: &UsedFiles,
    counter: &Path,
    ticks: &Path,
) -> Result<(), BenchError> {
    let name = program.name;
    DirBuilder::new().create(ticks).map_err(|error| cannot(ticks, error))?;
    scene.give(ticks)?;
    let mut command = scene.command(name);
    command.args(program.arguments).arg(files.of(program.opens)).stdout(Stdio::null());
    command.env("DISPLAY", scene.display()).env("GDK_BACKEND", "x11").env("QT_QPA_PLATFORM", "xcb");
    command.env("LD_PRELOAD", counter).env("UNJANK_TICKS", ticks);
    let running = OwnedProcess::start(&mut command).map_err(|error| cannot(name, error))?;
    let mut hands = scene.command("xdotool");
    hands.args(orders(program)).env("DISPLAY", scene.display()).stdout(Stdio::null());
    let mut hands = OwnedProcess::start(&mut hands).map_err(|error| cannot("xdotool", error))?;
    rest(&hands, USING)?;
    if hands.is_alive() {
        return Err(cannot("xdotool", "it does not end"));
    }
    // Some have started others that are the program.
    rest(&running, ENDING)?;
    for (signal, patience) in [(15, TERMINATING), (9, Duration::ZERO)] {
        let left = alive(ticks);
        for process in &left {
            // One that has ended meanwhile needs no signal.
            let _ = sys::supervise::send(*process, signal);
        }
        for process in left {
            if let Ok(handle) = sys::pidfd::open(process) {
                let _ = sys::socket::wait_readable(&handle, Some(patience));
            }
        }
    }
    drop(running);
    Ok(())
}

/// Returns the processes with a counter that still run; their environment says that they are ours.
fn alive(ticks: &Path) -> Vec<u32> {
    let wanted = format!("UNJANK_TICKS={}", ticks.display());
    let entries = fs::read_dir(ticks).into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes
        .filter(|process: &u32| {
            let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
        })
        .collect()
}

/// Installs as Flatpak does, until it is over: writes files of all sizes, syncs some, gives them their names and links them. Returns how
/// many it has installed.
fn install(dir: &Path, is_over: &AtomicBool) -> usize {
    let mut installed = 0;
    let mut random = fastrand::Rng::with_seed(1);
    let mut bytes = vec![0; 200_000];
    random.fill(&mut bytes);
    for round in (0..4).cycle() {
        let tree = dir.join(round.to_string());
        // What is not there need not be removed; what cannot be written is not counted.
        let _ = fs::remove_dir_all(&tree);
        let _ = DirBuilder::new().create(&tree);
        for number in 0..400 {
            if is_over.load(Ordering::Relaxed) {
                return installed;
            }
            let part = &bytes[..random.usize(500..bytes.len())];
            installed += usize::from(install_one(&tree, number, part).is_ok());
        }
    }
    installed
}

fn install_one(tree: &Path, number: u32, bytes: &[u8]) -> io::Result<()> {
    let temporary = tree.join(".new");
    let mut file = File::options().write(true).create(true).truncate(true).open(&temporary)?;
    file.write_all(bytes)?;
    if number.is_multiple_of(8) {
        file.sync_all()?;
    }
    for name in [number.to_string(), format!("link-{number}")] {
        fs::hard_link(&temporary, tree.join(name))?;
    }
    fs::remove_file(&temporary)
}

/// Waits for so long, or until a process has ended.
fn rest(process: &OwnedProcess, time: Duration) -> Result<(), BenchError> {
    let handle = sys::pidfd::open(process.id()).map_err(|error| cannot("a process", error))?;
    let waited = sys::socket::wait_readable(&handle, Some(time));
    waited.map(drop).map_err(|error| cannot("a process", error))
}

fn is_installed(scene: &HangScene, name: &str) -> bool {
    let mut command = scene.command("sh");
    command.args(["-c", "command -v \"$0\"", name]).stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn span(from_ms: u64, to_ms: u64) -> Span {
        Span { from_ns: from_ms * MS, to_ns: to_ms * MS }
    }

    fn told(from_ms: u64, to_ms: u64) -> ToldHang {
        ToldHang {
            process: 7,
            span: span(from_ms, to_ms),
            cause: "computing".to_owned(),
            function: String::new(),
            objects: Vec::new(),
            chain: Vec::new(),
        }
    }

    #[test]
    fn what_a_counter_wrote_is_read_and_a_line_that_was_cut_is_not() {
        let parse = |text: &str| parse("notes", 7, text);
        let frames = parse("begin 5\nat 5\ngap 10 900\nat 950\ngap 960 12").unwrap();
        assert_eq!((frames.begin_ns, frames.last_ns, frames.gaps.len()), (5, 950, 1));
        assert_eq!(parse("begin 5\nat").unwrap().last_ns, 5);
        for none in ["", "begin 5", "nonsense 1 2\n", "begin 5\nat x\n", "begin 5\ngap 1\n"] {
            assert_eq!(parse(none), None, "{none:?}");
        }
    }

    #[test]
    fn each_gap_is_to_be_told_and_nothing_else() {
        let frames = CountedFrames {
            program: "notes",
            process: 7,
            begin_ns: 100 * MS,
            last_ns: 9000 * MS,
            // The first one is a part of the start, the last one is short.
            gaps: vec![span(100, 700), span(1000, 1400), span(3000, 3300), span(5000, 5160)],
        };
        let judged = judge(std::slice::from_ref(&frames), &[told(1010, 1395), told(3010, 3300)]);
        assert_eq!((judged.recall.right, judged.recall.all), (2, 2), "{judged:?}");
        assert_eq!((judged.precision.right, judged.precision.all), (2, 2));
        let missed = judge(std::slice::from_ref(&frames), &[told(1010, 1100)]);
        assert_eq!((missed.recall.right, missed.recall.all), (0, 2), "{missed:?}");
        assert_eq!(missed.missed[0], "400 ms in notes after 0 s");
        let untrue = judge(std::slice::from_ref(&frames), &[told(6000, 6400)]);
        assert_eq!((untrue.precision.right, untrue.precision.all), (0, 1));
        assert_eq!(untrue.untrue, ["computing of 400 ms in notes after 5 s"]);
        let at_end = judge(std::slice::from_ref(&frames), &[told(50, 90), told(9100, 9900)]);
        assert_eq!(at_end.precision.all, 0, "it has not begun, or has ended");
    }

    #[test]
    fn what_was_not_counted_or_not_there_stands_beside_the_figures() {
        let mut conditions = UseConditions { installed: 9, ..UseConditions::default() };
        conditions.counted.insert("mousepad");
        assert_eq!(of_what(&conditions), "in mousepad, beside 9 files installed");
        conditions.uncounted.insert("chromium", 2);
        conditions.not_installed.push("geany");
        let text = of_what(&conditions);
        assert!(text.ends_with("not judged: chromium x 2; not installed: geany"), "{text}");
    }

    #[test]
    fn a_document_is_one_to_who_reads_it() {
        let bytes = pdf(2);
        let text = String::from_utf8(bytes).unwrap();
        let start: usize =
            text.rsplit("startxref\n").next().unwrap().lines().next().unwrap().parse().unwrap();
        assert!(text[start..].starts_with("xref\n0 7\n"), "{}", &text[start..]);
        let third = text[start..].lines().nth(5).unwrap();
        assert!(text[third[..10].parse::<usize>().unwrap()..].starts_with("3 0 obj"), "{third}");
    }
}
