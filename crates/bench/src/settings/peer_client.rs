//! The dconf client library: small C programs that use it, compiled where the benchmark runs, against the library that is
//! installed there.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::lab::BenchError;

/// Where programs are looked for.
pub(super) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A library that a program uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Library {
    /// What `pkg-config` calls it, and what else it needs.
    modules: &'static [&'static str],
    /// The Debian package.
    package: &'static str,
}

/// The dconf client library.
pub(super) const DCONF: Library =
    Library { modules: &["dconf", "glib-2.0"], package: "libdconf-dev" };
/// The reference implementation of D-Bus.
pub(super) const DBUS: Library = Library { modules: &["dbus-1"], package: "libdbus-1-dev" };

/// What programs of the dconf client library share.
const HEADER: &str = include_str!("../../peers/dconf_peer.h");

/// Compiles the C program `name` in a new directory of that name in `dir`.
pub(super) fn compile(
    name: &str,
    source: &str,
    library: Library,
    dir: &Path,
) -> Result<PathBuf, BenchError> {
    let dir = &dir.join(name);
    DirBuilder::new().mode(0o700).create(dir).map_err(|error| missing(&error))?;
    let source_file = dir.join(name).with_extension("c");
    for (path, text) in [(&source_file, source), (&dir.join("dconf_peer.h"), HEADER)] {
        create(path, text.as_bytes()).map_err(|error| missing(&error))?;
    }
    let flags =
        Command::new("pkg-config").args(["--cflags", "--libs"]).args(library.modules).output();
    let what = format!("pkg-config {} (package {})", library.modules.join(" "), library.package);
    let flags = succeeded(&what, flags.map_err(|error| missing(&error))?)?;
    let program = dir.join(name);
    let output = Command::new("cc")
        .args(["-O2", "-std=c11", "-o"])
        .args([&program, &source_file])
        .args(flags.split_ascii_whitespace())
        .output();
    succeeded("cc", output.map_err(|error| missing(&error))?)?;
    Ok(program)
}

/// Returns what a program printed, if it ended well.
pub(super) fn succeeded(program: &str, output: Output) -> Result<String, BenchError> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let cause = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(BenchError::Peer { program: program.to_owned(), cause })
}

/// Says that the client cannot be used.
pub(super) fn missing(error: &io::Error) -> BenchError {
    BenchError::Peer { program: "the dconf client".to_owned(), cause: error.to_string() }
}

/// Makes a file.
pub(super) fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    (&file).write_all(bytes)
}
