//! The list of recent documents when the clock is set back, as after a start with a wrong time: documents were used later than now.
#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::time::Duration;

use store::disk;
use sys::clock::Clock;
use unjank_recents::policy::Private;
use unjank_recents::{Recents, writer};

use crate::recents_list::{Home, names};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Whether the list that other programs share names a document.
fn is_shared(home: &Home, name: &str) -> bool {
    std::fs::read_to_string(home.places().xbel).unwrap().contains(&format!("/{name}\""))
}

/// Forgets `gone`.
fn forget_one(home: &Home, recents: &mut Recents) {
    recents.forget(&[home.addition("gone").uri]).unwrap();
}

fn forget_everything(_: &Home, recents: &mut Recents) {
    recents.forget_everything().unwrap();
}

#[test]
fn what_was_used_before_the_clock_was_set_back_can_be_forgotten() {
    for rules in ["", "volatile\n"] {
        for forget in [forget_one, forget_everything] {
            let home = Home::new();
            home.write("config/unjank/recent.rules", rules.as_bytes());
            let mut recents = home.recents();
            recents.add(&home.addition("gone")).unwrap();
            writer::write(&mut recents).unwrap();
            recents.snapshot().unwrap();
            assert!(is_shared(&home, "gone"));
            home.clock.back(HOUR);
            forget(&home, &mut recents);
            assert_eq!(names(&mut recents), [""; 0], "with the rules {rules:?}");
            writer::write(&mut recents).unwrap();
            assert_eq!(names(&mut home.recents()), [""; 0], "with the rules {rules:?}");
            assert!(!is_shared(&home, "gone"), "with the rules {rules:?}");
            // What is opened from now on is remembered.
            for name in ["gone", "other"] {
                recents.add(&home.addition(name)).unwrap();
            }
            writer::write(&mut recents).unwrap();
            assert_eq!(names(&mut home.recents()), ["gone", "other"]);
        }
    }
}

#[test]
fn private_mode_covers_what_others_open_after_the_clock_was_set_back() {
    for is_written_meanwhile in [true, false] {
        let home = Home::new();
        let mut recents = home.recents();
        recents.add(&home.addition("open")).unwrap();
        writer::write(&mut recents).unwrap();
        home.clock.forward(HOUR);
        Private::WithoutEnd.turn_on(&*disk::real(), &home.places(), recents.clock()).unwrap();
        home.clock.back(HOUR / 2);
        // A GTK program opens another one.
        let list = std::fs::read_to_string(home.places().xbel).unwrap();
        let (head, rest) = list.split_once("<bookmark ").unwrap();
        let (bookmark, tail) = rest.split_once("</bookmark>").unwrap();
        let secret = bookmark.replace("/open\"", "/secret\"").replace(":13:2", ":43:2");
        assert_ne!(secret, bookmark.replace("/open\"", "/secret\""), "{bookmark}");
        let both =
            format!("{head}<bookmark {bookmark}</bookmark><bookmark {secret}</bookmark>{tail}");
        home.write("data/recently-used.xbel", both.as_bytes());
        if is_written_meanwhile {
            writer::write(&mut recents).unwrap();
            assert!(!is_shared(&home, "secret"));
        }
        home.clock.forward(HOUR / 60);
        assert!(Private::turn_off(&*disk::real(), &home.places(), recents.clock()).unwrap());
        writer::write(&mut recents).unwrap();
        assert_eq!(names(&mut recents), ["open"]);
        assert!(is_shared(&home, "open") && !is_shared(&home, "secret"));
    }
}

#[test]
fn what_is_opened_again_after_a_small_step_back_is_remembered() {
    for rules in ["", "volatile\n"] {
        for forget in [forget_one, forget_everything] {
            for step in [1, 30, 90].map(Duration::from_secs) {
                let home = Home::new();
                home.write("config/unjank/recent.rules", rules.as_bytes());
                let mut recents = home.recents();
                recents.add(&home.addition("gone")).unwrap();
                home.clock.back(step);
                forget(&home, &mut recents);
                recents.add(&home.addition("gone")).unwrap();
                let case = format!("{step:?} with the rules {rules:?}");
                assert_eq!(names(&mut recents), ["gone"], "{case}");
                assert_eq!(names(&mut home.recents()), ["gone"], "{case}");
                writer::write(&mut recents).unwrap();
                assert_eq!(names(&mut home.recents()), ["gone"], "{case}");
            }
        }
    }
}

/// What the shared list says after a GTK program opened `gone` now, for which another one stands in.
fn open_elsewhere(home: &Home, recents: &mut Recents) {
    recents.add(&home.addition("other")).unwrap();
    writer::write(recents).unwrap();
    let list = std::fs::read_to_string(home.places().xbel).unwrap();
    let (head, rest) = list.split_once("<bookmark ").unwrap();
    let (bookmark, tail) = rest.split_once("</bookmark>").unwrap();
    let gone = bookmark.replace("/other\"", "/gone\"");
    let list = format!("{head}<bookmark {bookmark}</bookmark><bookmark {gone}</bookmark>{tail}");
    home.write("data/recently-used.xbel", list.as_bytes());
}

#[test]
fn a_clock_that_was_years_ahead_hides_nothing_that_is_opened_now() {
    let years = 12 * 365 * 24 * HOUR;
    for is_forgotten_before in [false, true] {
        for forget in [forget_one, forget_everything] {
            let home = Home::new();
            let mut recents = home.recents();
            home.clock.forward(years);
            recents.add(&home.addition("gone")).unwrap();
            writer::write(&mut recents).unwrap();
            let old = std::fs::read(home.places().xbel).unwrap();
            if is_forgotten_before {
                forget(&home, &mut recents);
                writer::write(&mut recents).unwrap();
            }
            home.clock.back(years);
            if !is_forgotten_before {
                forget(&home, &mut recents);
            }
            writer::write(&mut recents).unwrap();
            if !is_forgotten_before {
                // A program that had it in memory writes it again.
                home.write("data/recently-used.xbel", &old);
                writer::write(&mut recents).unwrap();
                assert_eq!(names(&mut recents), [""; 0]);
            }
            home.clock.forward(HOUR);
            open_elsewhere(&home, &mut recents);
            writer::write(&mut recents).unwrap();
            assert_eq!(names(&mut home.recents()), ["other", "gone"]);
            assert!(is_shared(&home, "gone"), "forgotten before: {is_forgotten_before}");
        }
    }
}

#[test]
fn that_a_document_was_forgotten_is_known_for_a_week_whenever_it_was_used() {
    let home = Home::new();
    let mut recents = home.recents();
    recents.add(&home.addition("gone")).unwrap();
    home.clock.back(100 * HOUR);
    forget_one(&home, &mut recents);
    let uri = home.addition("gone").uri;
    for (later, is_known) in [(Duration::ZERO, true), (6 * 24 * HOUR, true), (2 * 24 * HOUR, false)]
    {
        home.clock.forward(later);
        // Another forgetting replaces the journal.
        recents.forget(&[home.addition("other").uri]).unwrap();
        assert_eq!(recents.list().unwrap().forgotten(&uri).is_some(), is_known, "{later:?}");
    }
}

#[test]
fn private_mode_leaves_the_links_from_before_it_was_on_after_the_clock_was_set_back() {
    let home = Home::new();
    let mut recents = home.recents();
    let link = |name: &str| {
        let file = home.places().links.join(format!("{name}.desktop"));
        let text = format!(
            "[Desktop Entry]\nType=Link\nURL[$e]=file:///srv/{name}\nX-KDE-LastOpenedWith=kate\n"
        );
        home.write(&format!("data/RecentDocuments/{name}.desktop"), text.as_bytes());
        let opened = std::fs::File::options().write(true).open(&file).unwrap();
        opened.set_modified(home.clock.now()).unwrap();
        file
    };
    let before = link("before");
    home.clock.forward(HOUR);
    Private::WithoutEnd.turn_on(&*disk::real(), &home.places(), recents.clock()).unwrap();
    home.clock.back(HOUR / 2);
    home.clock.forward(HOUR / 60);
    let secret = link("secret");
    writer::write(&mut recents).unwrap();
    assert!(before.exists() && !secret.exists());
    assert!(Private::turn_off(&*disk::real(), &home.places(), recents.clock()).unwrap());
    writer::write(&mut recents).unwrap();
    assert!(before.exists());
}
