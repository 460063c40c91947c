//! The command lines of the documentation and of the help, with the output that stands below them.

use std::path::{Path, PathBuf};

/// A command line as it is written.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) page: String,
    pub(crate) text: String,
    /// What the page shows that it prints; empty where it shows nothing.
    pub(crate) shown: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether a line calls our command, or a program whose effect the next line shows, rather than being text or a file that names it.
fn is_call(text: &str) -> bool {
    let mut words = text
        .split_whitespace()
        .skip_while(|word| word.contains('=') || ["sudo", "dbus-run-session"].contains(word));
    ["unjank", "gsettings"].map(Some).contains(&words.next())
}

/// Returns the lines of the blocks of README.md and of docs/.
fn in_blocks(lines: &mut Vec<Line>) {
    let found = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> =
        found.filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect();
    pages.push(root().join("README.md"));
    pages.sort();
    for path in pages {
        let page = path.file_name().unwrap().display().to_string();
        let (mut is_fenced, mut is_block, mut has_prompts) = (false, false, false);
        for text in std::fs::read_to_string(&path).unwrap().lines() {
            if text.starts_with("```") {
                is_fenced = !is_fenced;
                is_block = is_fenced && matches!(text.trim(), "```" | "```sh");
                has_prompts = false;
            } else if !is_block {
            } else if let Some(command) = text.strip_prefix("$ ") {
                has_prompts = true;
                let (page, text) = (page.clone(), command.to_owned());
                lines.push(Line { page, text, shown: Vec::new() });
            } else if has_prompts {
                lines.last_mut().unwrap().shown.push(text.to_owned());
            } else if is_call(text) {
                lines.push(Line { page: page.clone(), text: text.to_owned(), shown: Vec::new() });
            }
        }
    }
}

/// Returns the examples of the help, which stand in the sources of the commands.
fn in_help(dir: &Path, texts: &mut Vec<String>) {
    for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            in_help(&path, texts);
            continue;
        }
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let Some((before, example)) = line.split_once("Example: ") else { continue };
            if before.trim() == "///" {
                texts.push(example.to_owned());
            } else if let Some((text, _)) = example.replace("\\\"", "\0").split_once('"') {
                texts.push(text.replace('\0', "\"").replace("\\\\", "\\"));
            }
        }
    }
}

/// Returns all of them, in the order of the pages.
pub(crate) fn all() -> Vec<Line> {
    let (mut lines, mut texts) = (Vec::new(), Vec::new());
    in_blocks(&mut lines);
    in_help(&root().join("crates/unjank/src/cli"), &mut texts);
    texts.sort();
    texts.dedup();
    for text in texts {
        if !lines.iter().any(|line| line.text == text) {
            lines.push(Line { page: "help".to_owned(), text, shown: Vec::new() });
        }
    }
    lines.retain(|line| is_call(&line.text));
    lines
}

/// What a line looks like when numbers, units, connections and places are left out.
fn shape(text: &str) -> String {
    let word = |word: &str| {
        let name = word.rsplit('/').next().unwrap();
        let is_unit = |word: &&str| ["ns", "µs", "ms", "s", "min"].contains(word);
        if is_unit(&word) {
            return "U".to_owned();
        }
        let (mut shape, mut was_digit) = (String::new(), false);
        for letter in name.chars() {
            let is_digit = letter.is_ascii_digit() || (was_digit && letter == '.');
            if !is_digit {
                shape.push(letter);
            } else if !was_digit {
                shape.push('N');
            }
            was_digit = is_digit;
        }
        shape
    };
    text.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// Says what of the shown output has no line of that shape, in that order.
pub(crate) fn missing<'line>(line: &'line Line, printed: &str) -> Option<&'line str> {
    let mut printed = printed.lines().map(shape);
    line.shown.iter().find(|shown| !printed.any(|found| found == shape(shown))).map(String::as_str)
}

#[test]
fn output_of_another_shape_is_noticed() {
    let shown =
        vec!["    6.00 s  no answer: a.B to c".to_owned(), "  from /usr/bin/app".to_owned()];
    let line = Line { page: String::new(), text: String::new(), shown };
    assert_eq!(missing(&line, "7 ms no answer: a.B to c\nfrom /tmp/1/app\n"), None);
    assert!(missing(&line, "7 ms no answer: a.B to d\nfrom /tmp/app\n").is_some());
    assert!(missing(&line, "from /tmp/app\n7 ms no answer: a.B to c\n").is_some());
}
