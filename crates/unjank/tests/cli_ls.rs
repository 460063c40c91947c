//! `unjank ls` beside the installed GNU `ls`: the same bytes and exit codes for the same options, on a tree of odd files.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use crate::fixture;
use crate::ls_tree;

use std::path::Path;
use std::process::{Command, Output};

use ls_tree::Tree;

const OURS: &str = env!("CARGO_BIN_EXE_unjank");

/// Runs a program in a tree with nothing of our environment but what is given.
fn run(
    program: &str,
    first: &[&str],
    tree: &Path,
    line: &str,
    environment: &[(&str, &str)],
) -> Output {
    Command::new(program)
        .args(first)
        .args(line.split('|').filter(|word| !word.is_empty()))
        .current_dir(tree)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("TZ", "Europe/Berlin")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

/// What is different for one command line, if anything is.
fn difference(tree: &Path, line: &str, environment: &[(&str, &str)]) -> Option<String> {
    let theirs = run("ls", &[], tree, line, environment);
    let ours = run(OURS, &["ls"], tree, line, environment);
    let same = theirs.stdout == ours.stdout && theirs.status.code() == ours.status.code();
    // Both say why, each in its words, or neither does.
    if same && theirs.stderr.is_empty() == ours.stderr.is_empty() {
        return None;
    }
    let text = |output: &Output| output.stdout.escape_ascii().to_string().replace("\\n", "\n");
    let (a, b) = (text(&theirs), text(&ours));
    let lines = a.lines().zip(b.lines()).find(|(a, b)| a != b);
    Some(format!(
        "{environment:?} ls {line}: exit {:?}, ours {:?}; first lines that differ: {lines:#?}; {}",
        theirs.status.code(),
        ours.status.code(),
        ours.stderr.escape_ascii()
    ))
}

/// Compares all lines, and fails with all that differ.
fn compare(lines: &[String], environment: &[(&str, &str)]) {
    if !is_gnu() {
        return;
    }
    let tree = Tree::make();
    let differences: Vec<String> =
        lines.iter().filter_map(|line| difference(tree.path(), line, environment)).collect();
    assert!(
        differences.is_empty(),
        "{} of {} differ:\n{}",
        differences.len(),
        lines.len(),
        differences[..differences.len().min(5)].join("\n")
    );
}

/// Says whether the installed `ls` is one whose output we know: 9.1 of GNU coreutils.
fn is_gnu() -> bool {
    let output = Command::new("ls").arg("--version").output().unwrap();
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    let first = version.lines().next().unwrap_or_default();
    if first == "ls (GNU coreutils) 9.1" {
        return true;
    }
    fixture::skip(&format!("the installed ls is {first:?}, not GNU 9.1"));
    false
}

fn lines(parts: &[&[&str]]) -> Vec<String> {
    parts.iter().fold(vec![String::new()], |lines, part| {
        lines
            .iter()
            .flat_map(|line| part.iter().map(move |word| format!("{line}|{word}")))
            .collect()
    })
}

const LAYOUTS: &[&str] = &["-C", "-x", "-m", "-1", "-l"];
const LOCALES: [&str; 2] = ["C", "C.UTF-8"];

#[test]
fn every_layout_in_every_order_is_that_of_gnu() {
    let lines = lines(&[LAYOUTS, &["", "-t", "-S", "-U", "-X", "-v", "-r", "-tr"], &["", "-A"]]);
    for locale in LOCALES {
        compare(&lines, &[("LC_ALL", locale)]);
    }
}

#[test]
fn every_quoting_style_is_that_of_gnu() {
    let styles: Vec<String> = [
        "literal",
        "shell",
        "shell-always",
        "shell-escape",
        "shell-escape-always",
        "c",
        "c-maybe",
        "escape",
        "locale",
        "clocale",
    ]
    .iter()
    .map(|style| format!("--quoting-style={style}"))
    .collect();
    let styles: Vec<&str> = styles.iter().map(String::as_str).collect();
    let lines = lines(&[&["-C", "-l", "-m"], &["", "-F", "--file-type", "-q"], &styles]);
    for locale in LOCALES {
        compare(&lines, &[("LC_ALL", locale)]);
    }
}

#[test]
fn attributes_are_shown_as_gnu_shows_them() {
    let options = [
        "-i",
        "-s",
        "-sh",
        "-s|--si",
        "-sk",
        "-s|--block-size=512",
        "-s|--block-size=K",
        "--block-size=KB",
        "-s|--block-size=MiB",
        "-h",
        "--si",
        "-F",
        "-p",
        "-L",
        "-n",
        "-g",
        "-o",
        "-G",
        "--author",
        "--full-time",
        "--time-style=iso",
        "--time-style=long-iso",
        "--time-style=+%Y_%j",
        "-c",
        "-u",
        "-cl",
        "-ct",
        "--time=birth",
        "-Q",
        "-b",
        "-N",
        "-w40",
        "-w0",
        "-T4",
        "-T0",
        "--sort=width",
        "-I|f*",
        "--hide=f*",
        "--hide=f*|-A",
        "-B",
        "--zero",
        "--group-directories-first",
        "-d",
        "-R",
        "-a",
    ];
    compare(&lines(&[LAYOUTS, &options]), &[("LC_ALL", "C.UTF-8")]);
}

#[test]
fn colours_and_hyperlinks_are_those_of_gnu() {
    let options = [
        "--color=always",
        "--color=always|-F",
        "--color=always|-L",
        "--color=always|-R",
        "--hyperlink=always",
        "--hyperlink=always|--quoting-style=shell-escape",
        "--color=always|--hyperlink=always",
    ];
    let colors = [
        "di=01;34:ln=01;36:or=40;31;01:mi=00:ex=01;32:*.zip=01;31:ow=34;42:tw=30;42:st=37;44:su=37;41:sg=30;43",
        "no=33:fi=32:ln=target:*.zip=35:mh=41:or=31:mi=05:ex=00",
        "lc=<:rc=>:ec=!:rs=R:or=31:mi=05",
        "di=1:broken",
    ];
    for colors in colors {
        compare(&lines(&[LAYOUTS, &options]), &[("LC_ALL", "C.UTF-8"), ("LS_COLORS", colors)]);
    }
    compare(&lines(&[LAYOUTS, &options]), &[("LC_ALL", "C.UTF-8"), ("TERM", "xterm")]);
}

#[test]
fn what_is_named_is_followed_or_not_as_gnu_does() {
    let named = [
        "",
        "nowhere",
        "plain|nowhere|dir",
        "dir",
        "dir|empty",
        "plain|dir",
        "link|linkdir",
        "-d|dir",
        "-d",
        "loop",
        "dangling",
        "dir:colon|empty",
        "-R|dir",
        "-R|dir|empty",
        "-t|dir|plain",
        "dir sp|a b",
        "nowhere|dir",
        "dir/",
        "linkdir/",
        ".",
        "-R",
        "-U|plain|dir|empty",
    ];
    let follow = ["", "-l", "-L", "-H", "-lH", "-lL", "-F", "-C", "-is"];
    compare(&lines(&[&follow, &named]), &[("LC_ALL", "C.UTF-8")]);
}

/// Command lines, and the environment in which they are compared.
type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);

#[test]
fn the_environment_means_what_it_means_to_gnu() {
    let cases: [Case<'_>; 11] = [
        (&["-l", "-l|--full-time"], &[("TZ", "America/New_York")]),
        (&["-l", "-l|--full-time"], &[("TZ", "Asia/Kolkata")]),
        (&["-C", "-1"], &[("QUOTING_STYLE", "c")]),
        (&["-l"], &[("TIME_STYLE", "iso")]),
        (&["-l"], &[("TIME_STYLE", "posix-iso")]),
        (&["-l"], &[("TIME_STYLE", "+%c")]),
        (&["-ls", "-s", "-lsk"], &[("BLOCK_SIZE", "1M")]),
        (&["-ls", "-s", "-lsk"], &[("BLOCKSIZE", "512")]),
        (&["-ls", "-s"], &[("POSIXLY_CORRECT", "1")]),
        (&["-C", "-x", "-m"], &[("COLUMNS", "33")]),
        (&["-C"], &[("TABSIZE", "4")]),
    ];
    for (lines, environment) in cases {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        compare(&lines, environment);
    }
}

#[test]
fn a_difference_is_noticed() {
    if !is_gnu() {
        return;
    }
    let tree = Tree::make();
    let theirs = run("ls", &[], tree.path(), "-l", &[("LC_ALL", "C")]);
    let ours = run(OURS, &["ls"], tree.path(), "-l|-h", &[("LC_ALL", "C")]);
    assert_ne!(theirs.stdout, ours.stdout);
    assert!(difference(tree.path(), "--sort=natural", &[("LC_ALL", "C")]).is_some());
}
