//! Bytes that are no text, characters that XML does not have, and texts that are too long: every flag that would store
//! them refuses them with the reason, exits with the code for it, and nothing is changed.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "fixtures need not be durable")]

use crate::fixture;
use crate::recent_home;

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

use fixture::{Bus, OURS, in_time};
use recent_home::{Home, UNJANK};

/// What is no UTF-8: a stray byte, a slash and a zero in too many bytes, a lone surrogate, a cut character, too large.
const NOT_UTF8: [&[u8]; 6] =
    [b"\xff", b"\xc0\xaf", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82", b"\xf5\x80\x80\x80"];
/// Characters of Unicode that XML does not have.
const NOT_XML: [&[u8]; 6] =
    [b"\x01", b"\x08", b"\x1b[31m", b"\x1f", b"\xef\xbf\xbe", b"\xef\xbf\xbf"];
/// Longer than any of our fields, and than a part of a path.
const LONG: &[u8] = &[b'x'; 70_000];

/// Where commands are run.
trait Place {
    fn unjank(&self) -> Command;
}

impl Place for Bus {
    fn unjank(&self) -> Command {
        self.command(UNJANK)
    }
}

impl Place for Home {
    fn unjank(&self) -> Command {
        self.command(UNJANK)
    }
}

fn run(place: &impl Place, words: &[&[u8]], stdin: &[u8]) -> Output {
    let words = words.iter().map(|word| OsStr::from_bytes(word));
    let mut command = place.unjank();
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that refuses its arguments does not read.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    child.wait_with_output().unwrap()
}

/// Runs a command that must refuse what it is given, by this exit code and with this text.
fn refuses(place: &impl Place, words: &[&[u8]], stdin: &[u8], code: i32, text: &str) {
    let output = run(place, words, stdin);
    let said = String::from_utf8(output.stderr).unwrap();
    let command: Vec<_> =
        words.iter().map(|word| word[..word.len().min(40)].escape_ascii().to_string()).collect();
    assert_eq!(output.status.code(), Some(code), "{command:?}: {said}");
    assert!(said.contains(text) && !said.contains("panicked"), "{command:?}: {said}");
    assert!(output.stdout.is_empty(), "{command:?}");
    assert!(!said.contains('\x1b'), "{command:?}: {said}");
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn settings_are_changed_by_text_alone() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let _daemon = bus.serve(OURS, &["--names", "dconf"]);
        text(&run(&bus, &[b"settings", b"write", b"/a/b", b"'kept'"], b""));
        let dump = || text(&run(&bus, &[b"settings", b"dump", b"/"], b""));
        let before = dump();
        let no_flag = "invalid UTF-8";
        for bad in NOT_UTF8 {
            let path = |before: &[u8], after: &[u8]| [before, bad, after].concat();
            let key = path(b"/a/", b"");
            let dir = path(b"/a/", b"/");
            let value = path(b"'", b"'");
            for words in [
                &[&b"write"[..], &key, b"1"][..],
                &[b"write", b"/a/b", &value],
                &[b"reset", &key],
                &[b"reset", b"-f", &dir],
                &[b"read", &key],
                &[b"list", &dir],
                &[b"dump", &dir],
                &[b"load", &dir],
                &[b"history", b"--since", bad],
                &[b"undo", b"--since", bad],
                &[b"restore", bad],
            ] {
                refuses(&bus, &[&[&b"settings"[..]], words].concat(), b"", 2, no_flag);
            }
            refuses(&bus, &[b"settings", b"write", b"/a/b", bad], b"", 2, "invalid value");
        }
        for bad in NOT_UTF8.into_iter().chain([&b"\0"[..]]) {
            for (file, line) in [
                ([b"[/]\nk=1\nj='", bad, b"'\n"].concat(), 3),
                ([b"[/]\nk=1\n", bad, b"=1\n"].concat(), 3),
                ([b"[/]\nk=1\n[", bad, b"]\nj=1\n"].concat(), 3),
                ([b"[/]\nk=1\n", bad].concat(), 3),
            ] {
                let why = format!("bytes that are no text, in line {line}");
                refuses(&bus, &[b"settings", b"load", b"/l/"], &file, 1, &why);
                let files = bus.dir().join("files.d");
                std::fs::create_dir_all(&files).unwrap();
                std::fs::write(files.join("a"), &file).unwrap();
                let (to, from) = (bus.dir().join("site"), files.as_os_str().as_bytes());
                let to = to.as_os_str().as_bytes();
                refuses(&bus, &[b"settings", b"compile", to, from], b"", 1, &why);
                assert!(!bus.dir().join("site").exists());
            }
        }
        let long = [b"/a/", LONG].concat();
        refuses(&bus, &[b"settings", b"write", &long, b"1"], b"", 1, "longer than 65535 bytes");
        let file = [b"[/]\nk=1\n", LONG, b"=1\n"].concat();
        refuses(&bus, &[b"settings", b"load", b"/l/"], &file, 1, "longer than 65535 bytes");
        assert_eq!(dump(), before);
    });
}

#[test]
fn documents_are_remembered_with_text_that_their_lists_can_hold() {
    in_time(|| {
        let home = Home::make();
        let document = home.write("docs/document.txt", "x");
        let document = document.as_os_str().as_bytes();
        text(&run(&home, &[b"recent", b"add", b"--app", b"org.example.Kept", document], b""));
        text(&run(&home, &[b"recent", b"sync"], b""));
        let list = || text(&run(&home, &[b"recent", b"list", b"--json"], b""));
        let before = list();
        assert!(before.contains("org.example.Kept"), "{before}");
        let flags = [&b"--app"[..], b"--exec", b"--mime", b"--group"];
        let mixed = |bad: &[u8]| [b"good", bad, b"good"].concat();
        for flag in flags {
            let refused = |value: &[u8], why| {
                refuses(&home, &[b"recent", b"add", flag, value, document], b"", 2, why)
            };
            for bad in NOT_UTF8 {
                refused(bad, "invalid UTF-8");
                refused(&mixed(bad), "invalid UTF-8");
            }
            for bad in NOT_XML {
                refused(bad, "XML has no such character");
                refused(&mixed(bad), "XML has no such character");
            }
            refused(LONG, "are allowed");
        }
        for bad in NOT_UTF8 {
            for flag in [&b"--app"[..], b"--mime", b"--group", b"--since", b"--before"] {
                refuses(&home, &[b"recent", b"list", flag, bad], b"", 2, "invalid UTF-8");
            }
            for flag in [&b"--app"[..], b"--since", b"--before"] {
                refuses(&home, &[b"recent", b"forget", flag, bad], b"", 2, "invalid UTF-8");
            }
        }
        for bad in NOT_UTF8.into_iter().chain(NOT_XML) {
            refuses(&home, &[b"recent", b"private", b"--for", bad], b"", 2, "for example 2h");
        }
        refuses(&home, &[b"recent", b"add", LONG], b"", 2, "cannot name the document");
        assert_eq!(list(), before);
    });
}
