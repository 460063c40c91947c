//! What the library exports, and what the header says that it does.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::built::{CRATE, library, succeed};

fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(CRATE).join(name)).unwrap()
}

#[test]
fn the_symbols_are_those_of_the_list_and_have_their_version() {
    let said = succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let symbols = said.lines().map(|line| line.split_whitespace().nth(2).unwrap().to_owned());
    let symbols: BTreeSet<String> = symbols.collect();
    let list = file("symbols.txt");
    assert!(list.lines().is_sorted(), "symbols.txt is in order");
    let mut expected: BTreeSet<String> =
        list.lines().map(|name| format!("{name}@@UNJANK_0")).collect();
    expected.insert("UNJANK_0".to_owned());
    assert_eq!(symbols, expected);
}

#[test]
fn the_header_declares_the_symbols_and_no_others() {
    let header = file("include/unjank.h");
    let declared = header.split("UNJANK_API ").skip(1).filter_map(|rest| {
        let before = rest.split('(').next()?;
        before.split(|c: char| !c.is_alphanumeric() && c != '_').next_back()
    });
    let declared: BTreeSet<&str> = declared.filter(|name| name.starts_with("unjank_")).collect();
    let list = file("symbols.txt");
    assert_eq!(declared, list.lines().collect());
}

#[test]
fn a_program_asks_for_the_library_by_its_soname_and_the_library_for_little_else() {
    let said = succeed(Command::new("readelf").arg("-dW").arg(library()));
    assert!(said.contains("Library soname: [libunjank.so.0]"), "{said}");
    let needed = said.lines().filter(|line| line.contains("(NEEDED)"));
    for line in needed {
        let known = ["libc.so.6", "libgcc_s.so.1", "ld-linux", "libm.so.6"];
        assert!(known.iter().any(|name| line.contains(name)), "{line}");
    }
    // Its threads and the texts of threads live in its code.
    assert!(said.contains("NODELETE") && said.contains("NOW"), "{said}");
}
