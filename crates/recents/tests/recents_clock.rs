//! The list of recent documents when the clock is set back, as after a start with a wrong time: documents were used later than now.
#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]
#![expect(clippy::disallowed_methods, reason = "the tests stand for other programs")]

use std::time::Duration;

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
