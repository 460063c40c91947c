//! Text of others on a terminal: whatever is in a name, a value or an argument, no command lets the terminal obey it.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "fixtures need not be durable")]

use crate::fixture;

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fixture::terminal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{Winsize, tcsetwinsize};

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");
const UNJANKD: &str = env!("CARGO_BIN_EXE_unjankd");
const INDEX: &str = env!("CARGO_BIN_EXE_unjank-index");

/// Sets the title, clears the screen, in seven and in eight bits, turns the direction, and forges a line.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}\u{2066}\nFORGED";
/// How long a command may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A command on a terminal of its own.
struct OnTerminal {
    child: Child,
    screen: OwnedFd,
    printed: Vec<u8>,
    words: String,
}

impl OnTerminal {
    fn start(mut command: Command, input: Stdio) -> OnTerminal {
        let (screen, line) = terminal::open();
        // As wide as a table may be.
        let size = Winsize { ws_row: 50, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&screen, size).unwrap();
        let words = format!("{command:?}");
        command.env("NO_COLOR", "1").env("TERM", "dumb").env("LC_ALL", "C.UTF-8");
        command.stdin(input).stdout(line.try_clone().unwrap()).stderr(line);
        let child = command.spawn().unwrap();
        OnTerminal { child, screen, printed: Vec::new(), words }
    }

    /// Reads until the command prints this or, without a text, until it ends.
    fn wait_for(&mut self, text: Option<&str>) {
        let start = Instant::now();
        loop {
            let so_far = String::from_utf8_lossy(&self.printed);
            if text.is_some_and(|text| so_far.contains(text)) {
                return;
            }
            assert!(
                start.elapsed() < LIMIT,
                "{}: waited {LIMIT:?} for {}; printed {so_far:?}",
                self.words,
                text.unwrap_or("its end")
            );
            let mut ready = [PollFd::new(&self.screen, PollFlags::IN)];
            let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
            if poll(&mut ready, Some(&limit)).unwrap() == 0 {
                continue;
            }
            let mut bytes = [0; 4096];
            match rustix::io::read(&self.screen, &mut bytes) {
                Ok(0) | Err(_) => break,
                Ok(len) => self.printed.extend(&bytes[..len]),
            }
        }
        assert!(text.is_none(), "{}: ended without {text:?}", self.words);
    }

    /// Ends the command, and says what of its output a terminal would obey.
    fn finish(mut self) -> (String, Vec<String>) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
        let text = String::from_utf8_lossy(&self.printed).into_owned();
        // The terminal itself puts a return before each line feed.
        let plain = text.replace("\r\n", "\n");
        let mut found = Vec::new();
        let obeyed = |letter: char| {
            (letter.is_control() && letter != '\n' && letter != '\t')
                || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        if let Some(letter) = plain.chars().find(|letter| obeyed(*letter)) {
            found.push(format!("{}: prints {letter:?}: {plain:?}", self.words));
        }
        if plain.lines().any(|line| line.starts_with("FORGED")) {
            found.push(format!("{}: prints a forged line: {plain:?}", self.words));
        }
        (plain, found)
    }
}

/// A session in which names, values and arguments are hostile.
struct Session {
    bus: fixture::Bus,
    _service: fixture::Service,
    problems: Vec<String>,
}

impl Session {
    fn start() -> Option<Session> {
        let bus = fixture::Bus::start()?;
        let service = bus.serve(UNJANKD, &["--names", "dconf,session,flatpak"]);
        Some(Session { bus, _service: service, problems: Vec::new() })
    }

    fn command(&self, words: &[&str]) -> Command {
        let program = match words[0] {
            "unjankd" => UNJANKD,
            "unjank-index" => INDEX,
            _ => UNJANK,
        };
        let mut command = self.bus.command(program);
        let own = usize::from(program != UNJANK);
        command.args(&words[own..]).current_dir(self.bus.dir().join("home"));
        command
    }

    /// Runs a command on a terminal; it must show the text, unless that is empty.
    fn run(&mut self, words: &[&str], shows: &str) {
        let mut running = OnTerminal::start(self.command(words), Stdio::null());
        running.wait_for(None);
        self.judge(running, shows);
    }

    fn judge(&mut self, running: OnTerminal, shows: &str) {
        let words = running.words.clone();
        let (text, found) = running.finish();
        self.problems.extend(found);
        if !text.contains(shows) {
            self.problems.push(format!("{words}: does not show {shows:?}: {text:?}"));
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.bus.dir().join(name)
    }

    fn end(self) {
        assert!(self.problems.is_empty(), "{}", self.problems.join("\n\n"));
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn settings_show_hostile_keys_and_values_as_escapes() {
    let Some(mut session) = Session::start() else { return };
    let key = format!("/{HOSTILE}/key");
    let value = format!("'{HOSTILE}'");
    let mut watch = OnTerminal::start(session.command(&["settings", "watch", "/"]), Stdio::null());
    let start = Instant::now();
    // The watcher prints nothing before the first change, so there are changes until it does.
    while !String::from_utf8_lossy(&watch.printed).contains("owned") {
        assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} for settings watch to print a change");
        session.run(&["settings", "write", &key, &value], "");
        session.run(&["settings", "write", "/a/b", &value], "");
        let mut ready = [PollFd::new(&watch.screen, PollFlags::IN)];
        if poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 })).unwrap() > 0 {
            watch.wait_for(Some("owned"));
        }
    }
    session.judge(watch, "owned");
    // The history is written after the answer.
    let start = Instant::now();
    loop {
        let output = session.command(&["settings", "history", "--json"]).output().unwrap();
        if String::from_utf8_lossy(&output.stdout).contains("owned") {
            break;
        }
        assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} for the history to have the change");
    }
    let commands: [(&[&str], &str); 12] = [
        (&["settings", "read", "/a/b"], "owned"),
        (&["settings", "list", "/"], "owned"),
        (&["settings", "dump", "/"], "owned"),
        (&["settings", "history"], "owned"),
        (&["settings", "history", "--json"], "owned"),
        (&["settings", "blame"], ""),
        (&["settings", "complete", "/", "/"], ""),
        (&["settings", "list-locks", "/"], ""),
        (&["settings", "check"], ""),
        (&["settings", "undo", "--dry-run", "--since", "2h"], ""),
        (&["settings", "reset", "-f", &key], ""),
        (&["settings", "write", "/a/b", HOSTILE], ""),
    ];
    for (words, shows) in commands {
        session.run(words, shows);
    }
    session.end();
}

#[test]
fn documents_applications_and_directories_with_hostile_names_are_shown_as_escapes() {
    let Some(mut session) = Session::start() else { return };
    let home = session.at("home");
    let file = home.join(HOSTILE);
    fs::create_dir_all(home.join("dir")).unwrap();
    fs::write(&file, "text").unwrap();
    fs::write(home.join("dir").join(HOSTILE), "text").unwrap();
    let applications = session.at("data/applications");
    fs::create_dir_all(&applications).unwrap();
    let entry = "[Desktop Entry]\nType=Application\nName=\u{1b}]0;owned\u{7}\u{9b}\u{202e}\nExec=sh\nMimeType=text/x-e;\n";
    fs::write(applications.join(format!("{HOSTILE}.desktop")), entry).unwrap();
    // What is below /tmp is not remembered, and a rule is one line.
    let file = text(&file);
    let document = format!("/srv/{HOSTILE}");
    let line = HOSTILE.replace('\n', "");
    let commands: &[(&[&str], &str)] = &[
        (&["recent", "add", &document, "--app", "owner"], ""),
        (&["recent", "list"], "owned"),
        (&["recent", "list", "--json"], "owned"),
        (&["recent", "policy", "deny", "path", &format!("/srv/{line}")], ""),
        (&["recent", "policy"], "owned"),
        (&["recent", "policy", "--json"], "owned"),
        (&["recent", "policy", "explain", file], "owned"),
        (&["recent", "policy", "remove", HOSTILE], ""),
        (&["recent", "add", "--app", HOSTILE, file], ""),
        (&["recent", "add", "--group", HOSTILE, file], ""),
        (&["recent", "forget", "--dry-run", &document], ""),
        (&["recent", "forget", "--app", HOSTILE], ""),
        (&["recent", "forget", &document], ""),
        (&["recent", "relax", "--", HOSTILE], "owned"),
        (&["recent", "private", "--", HOSTILE], "owned"),
        (&["recent", "sync"], ""),
        (&["ls"], "owned"),
        (&["ls", "-l", "dir"], "owned"),
        (&["ls", "--json", "dir"], "owned"),
        (&["ls", "-R", "."], "owned"),
        (&["ls", "-N", "dir"], "owned"),
        (&["ls", &format!("{HOSTILE}.none")], "owned"),
        (&["apps", "list", "--all"], "owned"),
        (&["apps", "for", "text/x-e"], ""),
        (&["apps", "explain", HOSTILE], "owned"),
        (&["apps", "show", HOSTILE], "owned"),
        (&["plugins", "show", HOSTILE], "owned"),
        (&["plugins", "list", "--where", HOSTILE], ""),
        (&["plugins", "index", "--dir", HOSTILE], ""),
        (&["unjank-index", HOSTILE], ""),
    ];
    for (words, shows) in commands {
        session.run(words, shows);
    }
    session.end();
}

#[test]
fn jobs_runs_and_host_commands_with_hostile_arguments_are_shown_as_escapes() {
    let Some(mut session) = Session::start() else { return };
    let held = session.command(&["run", "--", "sh", "-c", "echo ready; read line", HOSTILE]);
    let mut held = OnTerminal::start(held, Stdio::piped());
    held.wait_for(Some("ready"));
    let script = format!("./{HOSTILE}");
    fixture::copy_program("/bin/true", &session.at("home").join(HOSTILE));
    let commands: &[(&[&str], &str)] = &[
        (&["jobs"], "owned"),
        (&["jobs", "--json"], "owned"),
        (&["jobs", "pause", HOSTILE], "owned"),
        (&["run", "--report", "-", "--", &script], "owned"),
        (&["run", "--report", "/none/of/\u{1b}[31m", "--", "true"], "[31m"),
        (&["run", "--", HOSTILE], "owned"),
        (&["run", "--attach", HOSTILE], "owned"),
        // Short, so that the table of the log has room for the argument's first characters.
        (&["host", "--", "true", HOSTILE], ""),
        (&["host", "--", HOSTILE], "owned"),
    ];
    for (words, shows) in commands {
        session.run(words, shows);
    }
    // The log is written a moment after the answer.
    let start = std::time::Instant::now();
    let logged = |session: &Session| {
        let output = session.command(&["host", "log", "--json"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("owned")
    };
    while !logged(&session) {
        assert!(start.elapsed().as_secs() < 50, "the command is never in the log");
    }
    let commands: &[(&[&str], &str)] = &[
        (&["host", "log"], "owned"),
        (&["host", "log", "--json"], "owned"),
        (&["host", "log", "--app", HOSTILE], ""),
        (&["host", "policy", "allow", "org.example.App", HOSTILE], ""),
        (&["host", "policy", "show"], ""),
        (&["host", "policy", "explain", HOSTILE, HOSTILE], ""),
        (&["host", "policy", "deny", HOSTILE], ""),
        (&["host", "shim", HOSTILE], ""),
    ];
    for (words, shows) in commands {
        session.run(words, shows);
    }
    // The end of its input ends the command.
    drop(held.child.stdin.take());
    held.wait_for(None);
    session.judge(held, "ready");
    session.end();
}

#[test]
fn records_of_a_bus_and_traces_with_hostile_text_are_shown_as_escapes() {
    let Some(mut session) = Session::start() else { return };
    let record = session.at("bus.pcapng");
    let record = text(&record);
    let mut recorder = session.command(&["bus", "record", "-o", record]);
    let mut recorder =
        recorder.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    let value = format!("'{HOSTILE}'");
    while fs::metadata(record).map_or(0, |about| about.len()) < 8192 {
        assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} for {record} to hold some calls");
        session.run(&["settings", "write", "/a/b", &value], "");
    }
    let pid = rustix::process::Pid::from_child(&recorder);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    recorder.wait().unwrap();
    let (page, drawing) = (session.at("home/d.html"), format!("{HOSTILE}.txt"));
    let commands: &[(&[&str], &str)] = &[
        (&["bus", "stats", record], ""),
        (&["bus", "stats", "--json", record], ""),
        (&["bus", "diagram", record], ""),
        (&["bus", "diagram", "-o", text(&page), record], ""),
        (&["bus", "diagram", "-o", &drawing, record], ""),
        (&["bus", "diff", record, record], ""),
        (&["bus", "convert", record], "owned"),
        (&["bus", "stats", "--filter", HOSTILE, record], ""),
        (&["bus", "stats", HOSTILE], "owned"),
        (&["bus", "merge", "-o", HOSTILE, HOSTILE, record], "owned"),
        (&["bus", "expect", record, HOSTILE], ""),
        (&["trace", "--", "sh", "-c", "echo x >\"$1\"; cat \"$1\"", "sh", HOSTILE], ""),
        (&["trace", "--", HOSTILE], "owned"),
        (&["trace", "show", HOSTILE], "owned"),
        (&["trace", "show", "--text", HOSTILE], "owned"),
        (&["trace", "compare", HOSTILE, HOSTILE], "owned"),
        (&["trace", "check", HOSTILE], ""),
        (&["trace", "import", HOSTILE], "owned"),
        (&["slowdisk", "profile", HOSTILE], "owned"),
        (&["slowdisk", "mount", "--model", HOSTILE, "."], "owned"),
        (&["slowdisk", "mount", "--model", "emmc", HOSTILE], "owned"),
        (&["slowdisk", "umount", HOSTILE], "owned"),
        (&["slowdisk", "change", HOSTILE], ""),
        (&["settings", "compile", HOSTILE, HOSTILE], "owned"),
        (&["settings", "salvage", HOSTILE], "owned"),
        (&["settings", "check", HOSTILE], ""),
        (&["settings", "update", HOSTILE], "owned"),
        (&["doctor", "-o", &format!("/none/{HOSTILE}")], "owned"),
        (&["doctor", "--only", HOSTILE], "owned"),
        (&["bench", HOSTILE], "owned"),
        (&["generate", HOSTILE], "owned"),
        (&[HOSTILE], "owned"),
        (&["unjankd", "--names", HOSTILE], "owned"),
    ];
    for (words, shows) in commands {
        session.run(words, shows);
    }
    session.end();
}

#[test]
fn a_program_that_prints_hostile_text_as_it_is_would_be_noticed() {
    let mut echo = Command::new("/bin/echo");
    echo.arg(HOSTILE);
    let mut running = OnTerminal::start(echo, Stdio::null());
    running.wait_for(None);
    assert_eq!(running.finish().1.len(), 2, "an escape and a forged line");
}
