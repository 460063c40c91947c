//! Where the libraries are that `unjank` preloads into programs.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::error::{Error, FailureCategory};

/// Finds the library called `name`: beside this program, where a build leaves it, or in `../lib/unjank`.
pub(super) fn library(name: &str) -> Result<PathBuf, Error> {
    let installed = format!("libunjank-{name}.so");
    // Cargo makes the name of a library from that of its crate.
    let built = format!("libunjank_{name}.so");
    let cannot = || Error::new(FailureCategory::Config, format!("find {installed}"));
    let program = std::env::current_exe().map_err(|error| cannot().because(error))?;
    let dir = program.parent().ok_or_else(cannot)?;
    let places = [
        dir.join(&installed),
        dir.join("deps").join(&built),
        dir.join(&built),
        dir.join("../lib/unjank").join(&installed),
    ];
    let found = places.iter().find(|path| path.is_file()).ok_or_else(|| {
        let near = dir.join("../lib/unjank");
        cannot().hint(format!("install it beside {} or into {}", program.display(), near.display()))
    })?;
    let found = found.canonicalize().map_err(|error| cannot().because(error))?;
    // The linker takes a list, with blanks or colons between, and knows no way to write those inside of a path.
    if found.as_os_str().as_bytes().iter().any(|b| b" :\n$".contains(b)) {
        return Err(Error::new(FailureCategory::Config, format!("preload {}", found.display()))
            .hint("move it to a path without spaces, colons and dollar signs"));
    }
    Ok(found)
}
