//! The real GLib, in a process of its own.

#![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// The answers of one run; the process has ended.
pub(crate) struct Peer {
    directory: tempfile::TempDir,
}

/// One question.
pub(crate) struct Question {
    pub(crate) operation: &'static str,
    pub(crate) ty: String,
    pub(crate) bytes: Vec<u8>,
}

/// One answer: the flag in front and the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) flag: bool,
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes.clone()).unwrap()
    }
}

/// What GLib says about each code point.
pub(crate) struct Characters(Vec<u8>);

impl Characters {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_printable(&self, c: char) -> bool {
        self.of(c) == b'1'
    }

    /// Says whether the character came after the GLib of this machine, or is none.
    pub(crate) fn is_unassigned(&self, c: char) -> bool {
        self.of(c) == b'2'
    }

    /// Returns `text` as this GLib would print it, which does not know the newest characters.
    pub(crate) fn escape_newer(&self, text: &str) -> String {
        let mut out = String::new();
        for c in text.chars() {
            match u32::from(c) {
                _ if !self.is_unassigned(c) => out.push(c),
                number @ 0x1_0000.. => out.push_str(&format!("\\U{number:08x}")),
                number => out.push_str(&format!("\\u{number:04x}")),
            }
        }
        out
    }

    fn of(&self, c: char) -> u8 {
        self.0[usize::try_from(u32::from(c)).unwrap()]
    }
}

impl Peer {
    /// Compiles the peer; `None`, and a line that says so, if this machine cannot.
    pub(crate) fn new() -> Option<Peer> {
        let directory = tempfile::tempdir().unwrap();
        match compile(directory.path()) {
            Ok(()) => Some(Peer { directory }),
            Err(why) => {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the gate asks that nothing is skipped"
                )]
                let required = std::env::var_os("REQUIRE_ALL").is_some_and(|value| value == "1");
                assert!(!required, "REQUIRE_ALL=1, but {why}");
                println!("SKIPPED: {why}");
                None
            }
        }
    }

    /// Asks all `questions` and returns the answers in the same order.
    pub(crate) fn ask(&self, questions: &[Question]) -> Vec<Answer> {
        self.lines(questions).iter().map(|line| parse_answer(line)).collect()
    }

    /// Returns which characters GLib prints and which it does not know.
    pub(crate) fn characters(&self) -> Characters {
        let question = Question { operation: "printable", ty: "-".to_owned(), bytes: Vec::new() };
        Characters(self.lines(&[question]).concat().into_bytes())
    }

    fn lines(&self, questions: &[Question]) -> Vec<String> {
        let mut process = Command::new(self.directory.path().join("glib_peer"))
            .env("LC_ALL", "C")
            .env_remove("G_DEBUG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = process.stdin.take().unwrap();
        let stdout = process.stdout.take().unwrap();
        let lines: Vec<String> = std::thread::scope(|scope| {
            scope.spawn(move || {
                for question in questions {
                    let hex: String = question.bytes.iter().map(|b| format!("{b:02x}")).collect();
                    // If the peer dies the answers are too few, which is noticed below.
                    let _ = writeln!(stdin, "{} {} {hex}", question.operation, question.ty);
                }
            });
            BufReader::new(stdout).lines().map(Result::unwrap).collect()
        });
        let status = process.wait().unwrap();
        if lines.len() != questions.len() {
            let last = &questions[lines.len()];
            panic!("peer ended ({status}) at {} {} {:02x?}", last.operation, last.ty, last.bytes);
        }
        lines
    }
}

fn compile(directory: &Path) -> Result<(), String> {
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "glib-2.0"])
        .output()
        .map_err(|error| format!("cannot run pkg-config: {error}"))?;
    if !flags.status.success() {
        return Err("there is no glib-2.0 to compile with".to_owned());
    }
    let flags = String::from_utf8_lossy(&flags.stdout).into_owned();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/glib/glib_peer.c");
    let status = Command::new("gcc")
        .args(["-O1", "-o"])
        .arg(directory.join("glib_peer"))
        .arg(source)
        .args(flags.split_whitespace())
        .status()
        .map_err(|error| format!("cannot run gcc: {error}"))?;
    if status.success() { Ok(()) } else { Err("gcc cannot compile the peer".to_owned()) }
}

fn parse_answer(line: &str) -> Answer {
    let (flag, hex) = line.split_once(' ').unwrap();
    let bytes = (0..hex.len() / 2)
        .map(|index| u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).unwrap())
        .collect();
    Answer { flag: flag == "1", bytes }
}
