//! The layout of a user on a simulated disk.

use std::path::Path;

use unjank_setup::{SessionDirectories, SetupLayout};

pub(crate) fn layout_of_user() -> SetupLayout {
    let layout = SetupLayout::of_user(&SessionDirectories {
        home: "/h".into(),
        config: "/h/c".into(),
        data: "/h/d".into(),
        state: "/h/s".into(),
    });
    // The root of a package: the simulated disk has no owners that matter.
    layout.staged_below(Path::new("/"))
}
