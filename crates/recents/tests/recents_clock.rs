//! The list of recent documents when the clock is set back, as after a start with a wrong time: documents were used later than now.
#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::time::Duration;

use store::disk;
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
        Private::WithoutEnd.turn_on(&*disk::real(), &home.places(), recents.now()).unwrap();
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
        assert!(Private::turn_off(&*disk::real(), &home.places(), recents.now()).unwrap());
        writer::write(&mut recents).unwrap();
        assert_eq!(names(&mut recents), ["open"]);
        assert!(is_shared(&home, "open") && !is_shared(&home, "secret"));
    }
}
