//! Every command line of the documentation runs, in a home of its own with a bus and our services on it: it ends as it
//! should, and prints what the page shows.
//!
//! `DOCUMENTED_LONG=1` runs those too that take long, and lets those that record for ten seconds do so, `DOCUMENTED_ONLY=TEXT` those that hold a text.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test drives other programs")]

#[path = "documented/exceptions.rs"]
mod exceptions;
#[path = "documented/lines.rs"]
mod lines;

use crate::fixture;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use exceptions::{ELSEWHERE, EXCEPTIONS, Exception};
use fixture::{Bus, OURS, has, setting, skip};
use lines::Line;

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");

/// The most lines that share a home: no page of docs/ has more.
const PAGE: usize = 12;
/// How long the log of host commands may take after a command was answered.
const LOG_PATIENCE: Duration = Duration::from_secs(5);

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Compiles the programs that wait on a bus; `None` where that cannot be done.
fn waits(dir: &Path) -> Option<PathBuf> {
    if !has(&["cc", "pkg-config", "git", "make", "update-desktop-database", "tshark", "jq"]) {
        return None;
    }
    let asked = Command::new("pkg-config").args(["--cflags", "--libs", "libsystemd"]).output();
    let flags = String::from_utf8(asked.unwrap().stdout).unwrap();
    if flags.is_empty() {
        skip("no libsystemd-dev");
        return None;
    }
    let program = dir.join("bus_waits");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer/bus_waits.c");
    let built = Command::new("cc")
        .args(["-O1", "-Wall", "-o"])
        .args([&program, &source])
        .args(flags.split_whitespace())
        .status();
    assert!(built.unwrap().success());
    Some(program)
}

/// What all sessions share.
struct Shared {
    /// The programs that wait on a bus.
    waits: PathBuf,
    /// Where the records and reports are that lines read, once the first session has made them.
    records: OnceLock<PathBuf>,
}

/// A home with what the lines name, and a session with our services and programs that wait.
struct Session {
    running: Vec<Program>,
    bus: Bus,
}

impl Session {
    fn start(shared: &Shared) -> Option<Session> {
        let waits = &shared.waits;
        // Not below the directory for temporary files, whose documents nobody remembers.
        let bus = Bus::start_in(fixture::parent_of_homes())?;
        let service = "[D-BUS Service]\nName=org.example.Gone\nExec=/bin/sleep 60\n";
        std::fs::write(bus.dir().join("services/org.example.Gone.service"), service).unwrap();
        let mut session = Session { running: Vec::new(), bus };
        let names = ["dconf", "session", "flatpak"];
        for name in names {
            session.run(OURS, &["--names", name, "--idle-exit", "0"], Stdio::null());
        }
        for name in ["ca.desrt.dconf", "org.unjank.Session1", "org.freedesktop.Flatpak"] {
            session.bus.client().wait_for_owner(name).unwrap();
        }
        let slow = session.bus.dir().join("slow");
        fixture::copy_program(waits.to_str().unwrap(), &slow);
        for names in [&["org.example.Backup"][..], &[], &["org.gnome.Nautilus"]] {
            session.run(&slow, names, Stdio::piped());
            session.ready();
        }
        let bin = session.bus.dir().join("bin");
        std::fs::create_dir(&bin).unwrap();
        for name in ["unjank", "unjankd", "unjank-host", "unjank-index"] {
            let program = Path::new(UNJANK).with_file_name(name);
            std::os::unix::fs::symlink(program, bin.join(name)).unwrap();
        }
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documented/home.sh");
        let mut filled = session.command("sh");
        let filled = filled.arg(home).env("WAITS", waits).output().unwrap();
        assert!(filled.status.success(), "{filled:?}");
        let records = shared.records.get_or_init(|| {
            let records = waits.with_file_name("records");
            session.record();
            session.copy_tree(Path::new("templates"), &records);
            records
        });
        if !session.bus.dir().join("home/templates").exists() {
            session.copy_tree(records, Path::new("templates"));
        }
        Some(session)
    }

    /// A command in the home, with our programs on the path.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.bus.command(program);
        let bin = self.bus.dir().join("bin");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        // The address of the bus of the system, too: there is none on many machines that test.
        command.env("PATH", path).env("DBUS_SYSTEM_BUS_ADDRESS", self.bus.address());
        let home = self.bus.dir().join("home");
        for (variable, dir) in [
            ("XDG_CONFIG_HOME", ".config"),
            ("XDG_CACHE_HOME", ".cache"),
            ("XDG_DATA_HOME", ".local/share"),
            ("XDG_STATE_HOME", ".local/state"),
        ] {
            command.env(variable, home.join(dir));
        }
        command.env("DCONF_BLAME", "1").current_dir(home).stdin(Stdio::null());
        command
    }

    fn run(&mut self, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str], output: Stdio) {
        let mut command = self.command(program);
        command.args(arguments).stdout(output).stderr(Stdio::null());
        self.running.push(Program(command.spawn().unwrap()));
    }

    /// Waits for the first line of what was started last.
    fn ready(&mut self) {
        let output = self.running.last_mut().unwrap().0.stdout.as_mut().unwrap();
        BufReader::new(output).read_line(&mut String::new()).unwrap();
    }

    fn succeed(&self, script: &str) {
        let output = self.command("sh").args(["-euc", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
    }

    fn copy_tree(&self, from: &Path, to: &Path) {
        assert!(self.command("cp").arg("-r").args([from, to]).status().unwrap().success());
    }

    /// Makes the records and reports that lines read: of a program that does what hanging programs do.
    fn record(&self) {
        self.succeed(
            "unjank bus record -o session.pcapng & recorder=$!
             unjank bus record -o before.pcapng --for 1ms
             \"$PWD/app\" --tray
             kill -INT $recorder; wait $recorder
             cp session.pcapng after.pcapng
             unjank bus convert session.pcapng -o session.pcap
             cp session.pcap system.pcap
             unjank trace -o report.html -- sh -c 'echo x >traced' 2>trace.log
             cp report.html before.html; cp report.html after.html
             strace -f -T -tt -k -o strace.log sh -c 'echo x >traced' 2>strace.err || strace -f -T -tt -o strace.log sh -c 'echo x >traced'
             mkdir -p templates; cp *.pcapng *.pcap *.html strace.log templates",
        );
    }

    /// Puts what was made back, but for what the line makes itself.
    fn prepare(&self, text: &str) {
        let home = self.bus.dir().join("home");
        for entry in std::fs::read_dir(home.join("templates")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            std::fs::copy(home.join("templates").join(&name), home.join(&name)).unwrap();
        }
        let mut words = text.split_whitespace();
        while let Some(word) = words.next() {
            if word == "-o" || word == "--junit" {
                let _ = std::fs::remove_file(home.join(words.next().unwrap()));
            }
        }
    }

    /// Runs a line as a shell does; says what is wrong with it.
    fn try_line(&self, line: &Line, exception: Option<Exception>) -> Result<(), String> {
        self.prepare(&line.text);
        let (expected, prefix, more): (&[i32], _, _) = match exception {
            Some(Exception::NotHere(_)) => return Ok(()),
            Some(Exception::Long(..)) if setting("DOCUMENTED_LONG").is_none() => return Ok(()),
            Some(Exception::Long(expected, more)) => (expected, "", more),
            Some(Exception::UntilInterrupted(expected)) => {
                (expected, "timeout --preserve-status -s INT 2 ", "")
            }
            Some(Exception::EndsWith(expected)) => (expected, "", ""),
            None => (&[0], "", ""),
        };
        // The process that lines name.
        let mut named = Program(self.command("./plasmashell").arg("60").spawn().unwrap());
        let mut text = line.text.replace("4711", &named.0.id().to_string());
        if setting("DOCUMENTED_LONG").is_none() {
            text = text.replace("--for 10s", "--for 2s");
        }
        let script = format!("set -o pipefail\n{prefix}{text} {more}");
        // Cold launches are measured one after the other, and wait while other programs are busy.
        let seconds = if matches!(exception, Some(Exception::Long(..))) { "1200" } else { "170" };
        let run =
            || self.command("timeout").args([seconds, "bash", "-c", &script]).output().unwrap();
        let mut output = run();
        // The log is written when a command has been answered, and the history and a snapshot when a change has, a moment later.
        let late = ["host log", "settings history", "settings undo", "settings restore"];
        let reads_late = late.iter().any(|line| text.starts_with(&format!("unjank {line}")));
        let is_expected =
            |output: &Output| output.status.code().is_some_and(|code| expected.contains(&code));
        let began = Instant::now();
        while reads_late
            && (!is_expected(&output)
                || lines::missing(line, &String::from_utf8_lossy(&output.stdout)).is_some())
            && began.elapsed() < LOG_PATIENCE
        {
            output = run();
        }
        let _ = named.0.kill();
        let printed = String::from_utf8_lossy(&output.stdout);
        let said = || {
            format!(
                "{}: {}\n{printed}{}",
                line.page,
                line.text,
                String::from_utf8_lossy(&output.stderr)
            )
        };
        if !is_expected(&output) {
            return Err(format!("{} instead of {expected:?}: {}", output.status, said()));
        }
        match lines::missing(line, &printed) {
            Some(shown) => Err(format!("does not print {shown:?}: {}", said())),
            None => Ok(()),
        }
    }
}

#[test]
fn every_command_line_of_the_documentation_runs_and_prints_what_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let Some(waits) = waits(dir.path()) else { return };
    let shared = Shared { waits, records: OnceLock::new() };
    let mut all = lines::all();
    all.retain(|line| !ELSEWHERE.iter().any(|(page, _)| *page == line.page));
    if let Some(only) = std::env::var_os("DOCUMENTED_ONLY") {
        all.retain(|line| line.text.contains(only.to_str().unwrap()));
    }
    // The lines of a page, one after the other, in a session of their own.
    let pages = all.chunk_by(|one, other| one.page == other.page);
    let pages: Vec<&[Line]> = pages.flat_map(|page| page.chunks(PAGE)).collect();
    let next = AtomicUsize::new(0);
    let play = || {
        let mut problems = Vec::new();
        while let Some(page) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Some(session) = Session::start(&shared) else { return problems };
            for line in *page {
                let exception = exceptions::of(&line.text).map(|(_, exception)| exception);
                problems.extend(session.try_line(line, exception).err());
            }
        }
        problems
    };
    let problems: Vec<String> = std::thread::scope(|scope| {
        let players: Vec<_> = (0..4).map(|_| scope.spawn(play)).collect();
        players.into_iter().flat_map(|player| player.join().unwrap()).collect()
    });
    assert!(problems.is_empty(), "{} lines:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn what_is_said_of_single_lines_is_of_lines_that_are_there_and_most_need_nothing() {
    let all = lines::all();
    assert!(all.len() > 100, "{}", all.len());
    for (beginning, exception) in EXCEPTIONS {
        let counts =
            |line: &&Line| exceptions::of(&line.text).is_some_and(|(b, _)| b == *beginning);
        assert!(all.iter().any(|line| counts(&line)), "no line begins with {beginning:?}");
        if let Exception::NotHere(reason) = exception {
            assert!(reason.len() > 15, "{beginning}");
        }
    }
    let is_left_out =
        |line: &&Line| matches!(exceptions::of(&line.text), Some((_, Exception::NotHere(_))));
    let left_out: Vec<_> = all.iter().filter(is_left_out).map(|line| &line.text).collect();
    assert!(left_out.len() <= 16, "{left_out:#?}");
    for (page, _) in ELSEWHERE {
        assert!(all.iter().any(|line| line.page == *page), "{page}");
    }
}
