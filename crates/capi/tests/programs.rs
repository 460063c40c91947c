//! Programs in C and C++ that use the library, plainly and under tools that watch them.

#![expect(
    clippy::disallowed_methods,
    reason = "tests make files that need not last, and read the environment of who tests"
)]

use std::fs;
use std::path::Path;

use crate::built::{CRATE, compile, install, is_missing, run, succeed};

#[test]
fn the_header_is_c11_and_cpp17_without_a_warning() {
    let compilers: [&[&str]; 4] = [
        &["gcc", "-std=c11", "-x", "c"],
        &["g++", "-std=c++17", "-x", "c++"],
        &["clang", "-std=c11", "-x", "c"],
        &["clang++", "-std=c++17", "-x", "c++"],
    ];
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("includes.c");
    // Twice, and after nothing: it needs no other header before it.
    fs::write(&source, "#include <unjank.h>\n#include <unjank.h>\nint main(void) { return 0; }\n")
        .unwrap();
    for compiler in compilers {
        // Clang reads the same header; where it is not installed gcc has.
        if compiler[0].starts_with("clang") && which(compiler[0]).is_none() {
            println!("SKIPPED: no {}", compiler[0]);
            continue;
        }
        let mut command = std::process::Command::new(compiler[0]);
        command.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        command.args(["-Wconversion", "-Wshadow", "-fsyntax-only", "-I"]);
        succeed(command.arg(Path::new(CRATE).join("include")).arg(&source));
    }
}

fn which(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file())
}

#[test]
fn a_program_uses_all_of_the_library() {
    let directory = tempfile::tempdir().unwrap();
    install(directory.path());
    let program = compile(directory.path(), &["gcc", "-std=c11", "-g"], "tests/smoke.c");
    let said = succeed(run(directory.path(), &program).arg(directory.path()));
    assert_eq!(said, "good\n");
}

#[test]
fn valgrind_finds_nothing() {
    if is_missing("valgrind") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    install(directory.path());
    let program = compile(directory.path(), &["gcc", "-std=c11", "-g"], "tests/smoke.c");
    let mut command = run(directory.path(), Path::new("valgrind"));
    command.args([
        "-q",
        "--error-exitcode=9",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite,indirect",
    ]);
    let said = succeed(command.arg(&program).arg(directory.path()).arg(rows()));
    assert_eq!(said, "good\n");
}

/// How many rows a program puts in order under a tool that watches its memory: ci/slow has many.
fn rows() -> std::ffi::OsString {
    std::env::var_os("SMOKE_ROWS").unwrap_or_else(|| "few".into())
}

#[test]
fn the_thread_sanitizer_finds_nothing_in_a_program_that_hands_handles_over() {
    let directory = tempfile::tempdir().unwrap();
    install(directory.path());
    let compiler = ["gcc", "-std=c11", "-g", "-fsanitize=thread"];
    let program = compile(directory.path(), &compiler, "tests/smoke.c");
    let mut command = run(directory.path(), &program);
    // The library is not built for it; what it lends to the program is watched.
    command.env("TSAN_OPTIONS", "ignore_noninstrumented_modules=1 exitcode=66");
    let said = succeed(command.arg(directory.path()).arg(rows()));
    assert_eq!(said, "good\n");
}

#[test]
fn the_examples_do_what_they_say() {
    let directory = tempfile::tempdir().unwrap();
    install(directory.path());
    let listed = directory.path().join("listed");
    fs::create_dir(&listed).unwrap();
    for number in 0..100 {
        fs::write(listed.join(format!("file {number}")), vec![0; number]).unwrap();
    }
    let program = compile(directory.path(), &["gcc", "-std=c11"], "examples/list.c");
    let said = succeed(run(directory.path(), &program).arg(&listed));
    assert_eq!(said, "100 entries, 4950 bytes\n");
    let missing = run(directory.path(), &program).arg("/not/there").output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&missing.stderr), "list: No such file or directory\n");
    let program = compile(directory.path(), &["gcc", "-std=c11", "-O2"], "examples/list_bench.c");
    let said = succeed(run(directory.path(), &program).arg(&listed).arg("3"));
    assert!(said.starts_with("100 entries with attributes, 3 rounds"), "{said}");
}
