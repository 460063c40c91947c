//! `unjank trace show` on a real pseudo-terminal: it takes it over, does what keys say, and gives it back.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test stands for other programs"
)]

use crate::fixture;

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use fixture::{has, in_time, terminal};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

const PROGRAM: &str = env!("CARGO_BIN_EXE_unjank");

/// What a terminal does for `?1049l` and `?25h`: the old screen, with its cursor.
const OLD_SCREEN: &str = "\x1b[?1049l";
const CURSOR: &str = "\x1b[?25h";

/// A pseudo-terminal with `unjank trace show` on it.
struct Terminal {
    keyboard: File,
    /// Kept open, so that the terminal is there after the program, too.
    line: File,
    seen: Arc<(Mutex<Vec<u8>>, Condvar)>,
    /// Lets the terminal go at the next thing that is written.
    deaf: Arc<AtomicBool>,
    reader: JoinHandle<()>,
    child: Child,
}

impl Terminal {
    fn open(arguments: &[&str], environment: &[(&str, &str)]) -> Terminal {
        // setsid makes it the terminal of the program, which so hears of its size and of its end.
        Terminal::open_by(&["setsid", "--ctty", PROGRAM], arguments, environment)
    }

    fn open_by(program: &[&str], arguments: &[&str], environment: &[(&str, &str)]) -> Terminal {
        let (pty, line) = terminal::open();
        resize(&line, 80, 24);
        let end = || Stdio::from(line.try_clone().unwrap());
        let child = Command::new(program[0])
            .args(&program[1..])
            .args(["trace", "show"])
            .args(arguments)
            .env_remove("NO_COLOR")
            .env("TERM", "xterm")
            .envs(environment.iter().copied())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let keyboard = File::from(pty);
        let seen = Arc::<(Mutex<Vec<u8>>, Condvar)>::default();
        let (mut output, into) = (keyboard.try_clone().unwrap(), Arc::clone(&seen));
        let deaf = Arc::<AtomicBool>::default();
        let is_deaf = Arc::clone(&deaf);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = output.read(&mut bytes) {
                into.0.lock().unwrap().extend_from_slice(&bytes[..len]);
                into.1.notify_all();
                if is_deaf.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        Terminal { keyboard, line, seen, deaf, reader, child }
    }

    /// Waits until the program has written `text`, and forgets what came before its end.
    fn expect(&self, text: &str) -> String {
        let (seen, changed) = &*self.seen;
        let find =
            |bytes: &[u8]| bytes.windows(text.len()).position(|part| part == text.as_bytes());
        let (mut bytes, waited) = changed
            .wait_timeout_while(seen.lock().unwrap(), Duration::from_secs(40), |bytes| {
                find(bytes).is_none()
            })
            .unwrap();
        assert!(!waited.timed_out(), "no {text:?} in {:?}", String::from_utf8_lossy(&bytes));
        let end = find(&bytes).unwrap() + text.len();
        String::from_utf8_lossy(&bytes.drain(..end).collect::<Vec<u8>>()).into_owned()
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.line).unwrap().local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Waits for the end and looks that the terminal is as it was.
    fn ends(mut self, status: i32) {
        self.expect(OLD_SCREEN);
        self.expect(CURSOR);
        assert_eq!(self.child.wait().unwrap().code(), Some(status));
        let modes = tcgetattr(&self.line).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
    }
}

fn resize(line: &File, width: u16, height: u16) {
    let size = Winsize { ws_col: width, ws_row: height, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(line, size).unwrap();
}

/// Writes the report of a program that syncs once.
fn report(dir: &Path) -> String {
    let log = dir.join("log");
    let text = "10 1795271282.001 fdatasync(3</home/ana/x>) = 0 <0.150000>\n > /usr/lib/libKF5ConfigCore.so.5(KConfig::sync()+0x33) [0x4711]\n10 1795271282.160 access(\"/y\", R_OK) = 0 <0.000200>\n";
    File::create(&log).unwrap().write_all(text.as_bytes()).unwrap();
    let page = dir.join("report.html");
    let done = Command::new(PROGRAM)
        .args(["trace", "import", "-o"])
        .args([&page, &log])
        .stderr(Stdio::null())
        .status();
    assert!(done.unwrap().success());
    page.to_str().unwrap().to_owned()
}

#[test]
fn keys_open_rows_and_the_terminal_is_put_back() {
    if !has(&["setsid"]) {
        return;
    }
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let mut terminal = Terminal::open(&[&report(dir.path())], &[]);
        terminal.expect("\x1b[?1049h");
        terminal.expect("q leave");
        assert!(terminal.is_raw());
        // Slow calls, their longest one, its stack.
        // Only what has changed is written, so that words which were there before do not come again.
        terminal.press("4");
        terminal.expect("(3</home/ana/x>)");
        terminal.press("\r");
        terminal.expect("KConfig::sync");
        terminal.press("\x7f/ac");
        terminal.expect("c▏");
        terminal.press("\r");
        resize(&terminal.line, 40, 10);
        // With a new size that is everything.
        terminal.expect("1 of 1");
        terminal.press("q");
        terminal.ends(0);
    });
}

#[test]
fn a_signal_puts_the_terminal_back_and_so_does_ctrl_c() {
    if !has(&["setsid"]) {
        return;
    }
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let page = report(dir.path());
        let mut terminal = Terminal::open(&[&page], &[]);
        terminal.expect("q leave");
        terminal.press("\x03");
        terminal.ends(0);
        for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
            let terminal = Terminal::open(&[&page], &[]);
            terminal.expect("q leave");
            kill_process(Pid::from_child(&terminal.child), signal).unwrap();
            terminal.ends(status);
        }
    });
}

#[test]
fn it_ends_when_the_terminal_goes_away() {
    if !has(&["setsid"]) {
        return;
    }
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let page = report(dir.path());
        // A terminal that is not the session's sends no signal.
        for program in [&["setsid", "--ctty", PROGRAM][..], &["setsid", PROGRAM]] {
            let terminal = Terminal::open_by(program, &[&page], &[]);
            terminal.expect("q leave");
            let Terminal { mut keyboard, line, deaf, reader, mut child, .. } = terminal;
            deaf.store(true, Ordering::SeqCst);
            keyboard.write_all(b"2").unwrap();
            reader.join().unwrap();
            // The last one who has the other end of the terminal closes it.
            drop((keyboard, line));
            assert_eq!(child.wait().unwrap().code(), Some(129));
        }
    });
}

#[test]
fn no_colour_is_written_where_it_is_refused_and_no_screen_taken_for_text() {
    if !has(&["setsid"]) {
        return;
    }
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let page = report(dir.path());
        for (environment, coloured) in [(&[][..], true), (&[("NO_COLOR", "1")][..], false)] {
            let mut terminal = Terminal::open(&[&page], environment);
            // The row under the cursor is without colour, so another one is put there.
            terminal.press("2jq");
            let said = terminal.expect(OLD_SCREEN);
            let colours = ["\x1b[31", "\x1b[38;5;", "\x1b[33"];
            assert_eq!(colours.iter().any(|colour| said.contains(colour)), coloured, "{said:?}");
        }
        for (arguments, environment) in
            [(&["--text", &*page][..], &[][..]), (&[&*page], &[("TERM", "dumb")])]
        {
            let mut terminal = Terminal::open(arguments, environment);
            let said = terminal.expect("Calls");
            assert!(!said.contains("\x1b[?1049h"), "{said:?}");
            assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
        }
    });
}
