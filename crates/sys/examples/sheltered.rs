//! Panics of sheltered readers in a program that is built without unwinding, which no test can be: `ci/slow` runs it so, with the profile `small`.

use std::process::ExitCode;

use unjank_sys::sheltered::{MOST_LOST, ShelteredReader};

fn half(_: &mut (), number: u32) -> u32 {
    assert!(number < 1000, "planted");
    number / 2
}

fn main() -> ExitCode {
    let start = || ShelteredReader::start("halves", || Some(()), half);
    let (Some(other), Some(reader)) = (start(), start()) else { return ExitCode::FAILURE };
    let mut is_right = cfg!(panic = "abort") && reader.ask(8) == Some(4);
    is_right &= reader.ask(1000).is_none() && reader.ask(8).is_none();
    // One is lost; then as many as may be are.
    for _ in 1..MOST_LOST {
        is_right &= ShelteredReader::<u32, u32>::start(
            "planted",
            || -> Option<()> { panic!("planted") },
            half,
        )
        .is_none();
    }
    is_right &= start().is_none() && other.ask(6) == Some(3);
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
