//! The page about the library: its examples are compiled and run, and print what stands there.

#![expect(
    clippy::disallowed_methods,
    reason = "tests make files that need not last, and read the environment of who tests"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::built::{CRATE, compile, flags, install, run, succeed};

/// Returns the blocks of a page that begin with this fence.
fn blocks<'a>(page: &'a str, fence: &str) -> Vec<&'a str> {
    let begin = format!("\n```{fence}\n");
    page.split(&begin).skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
}

#[test]
fn the_examples_of_the_page_run_and_print_what_it_says() {
    let page = fs::read_to_string(Path::new(CRATE).join("../../docs/c-library.md")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path();
    install(prefix);
    let shown = fs::read_to_string(Path::new(CRATE).join("examples/list.c")).unwrap();
    let sources = blocks(&page, "c");
    assert!(sources.len() >= 2, "the page has examples");
    assert!(shown.contains(sources[0]), "the first example is a part of examples/list.c");
    // Each of the others is a program of its own.
    for (number, source) in sources.iter().enumerate().skip(1) {
        let path = prefix.join(format!("page{number}.c"));
        fs::write(&path, format!("{source}\n")).unwrap();
        let program = prefix.join(format!("page{number}"));
        let mut command = Command::new("gcc");
        command.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o"]);
        succeed(command.arg(&program).arg(&path).args(flags(prefix)));
        let listed = prefix.join(format!("Pictures{number}"));
        fs::create_dir(&listed).unwrap();
        for name in ["page 10", "page 9", "Ähre", "zebra", ".hidden"] {
            fs::write(listed.join(name), "five!").unwrap();
        }
        let said = succeed(run(prefix, &program).arg(&listed).env("LC_ALL", "de_DE.UTF-8"));
        let expected = blocks(&page, "text");
        assert_eq!(said.trim_end(), expected[number], "what the page shows");
    }
    let program = compile(prefix, &["gcc", "-std=c11"], "examples/list.c");
    let said = succeed(run(prefix, &program).arg(prefix.join("include")));
    let headers = fs::read_dir(prefix.join("include")).unwrap().count();
    assert!(said.starts_with(&format!("{headers} entries, ")), "{said}");
}
