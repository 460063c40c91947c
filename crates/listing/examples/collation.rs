//! Sorts 100,000 names with the tables for ASCII names and with ICU alone, in turns, and prints both times.
//!
//! `cargo run --profile dist -p unjank-listing --example collation`
#![allow(clippy::print_stdout, reason = "a program to measure with")]

use std::cmp::Ordering;
use std::time::Duration;

use icu_collator::options::{CollatorOptions, Strength};
use icu_collator::preferences::CollationNumericOrdering;
use icu_collator::{Collator, CollatorPreferences};
use icu_locale_core::locale;
use sys::clock::{Clock, SystemClock};
use unjank_listing::collation::{Collation, Digits};

const NAMES: usize = 100_000;
const ROUNDS: usize = 9;

type Coded<'a> = ([u8; 16], &'a [u8]);

fn main() {
    // Steps of the golden ratio: every name is another one, and neighbours are far apart.
    let names: Vec<String> = (0..NAMES)
        .map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .map(|mixed| format!("IMG_{}-holiday {:x}.jpg", mixed % 100_000, mixed >> 40))
        .collect();
    let tables = Collation::new("en_US.UTF-8", Digits::ByValue);
    let mut preferences = CollatorPreferences::from(&locale!("en-US"));
    preferences.numeric_ordering = Some(CollationNumericOrdering::True);
    let with = |strength| {
        let mut options = CollatorOptions::default();
        options.strength = Some(strength);
        Collator::try_new(preferences, options).expect("the data of English is compiled in")
    };
    let (letters, full) = (with(Strength::Primary), with(Strength::Tertiary));

    let (mut by_tables, mut by_icu) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (first, time) = sorted(
            &names,
            |name, code| {
                tables.code(name, code);
            },
            |a, b| tables.compare(a, b),
        );
        by_tables.push(time);
        let (second, time) = sorted(
            &names,
            // Without room for all of the key, its start is written.
            |name, code| drop(letters.write_sort_key_utf8_to(name, &mut code[..])),
            |a, b| full.compare_utf8(a, b).then_with(|| a.cmp(b)),
        );
        by_icu.push(time);
        assert!(first.iter().map(|(_, name)| name).eq(second.iter().map(|(_, name)| name)));
    }
    for (what, times) in [("tables", &mut by_tables), ("ICU alone", &mut by_icu)] {
        times.sort_unstable();
        let (least, median, most) = (times[0], times[ROUNDS / 2], times[ROUNDS - 1]);
        println!("{what}: median {median:.1?}, {least:.1?} to {most:.1?}");
    }
}

fn sorted(
    names: &[String],
    code: impl Fn(&[u8], &mut [u8; 16]),
    compare: impl Fn(&[u8], &[u8]) -> Ordering,
) -> (Vec<Coded<'_>>, Duration) {
    let clock = SystemClock::start();
    let mut coded: Vec<Coded<'_>> = names
        .iter()
        .map(|name| {
            let mut start = [0; 16];
            code(name.as_bytes(), &mut start);
            (start, name.as_bytes())
        })
        .collect();
    coded.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| compare(a.1, b.1)));
    (coded, clock.monotonic())
}
