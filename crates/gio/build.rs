//! How libgiounjank.so is linked: with GLib's libraries, which need not be installed where it is built.
#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells build scripts what they build for, and where they may write, and they tell it what to do"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// The declarations of what is used of GLib.
const DECLARATIONS: &str = "src/glib.rs";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={DECLARATIONS}");
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else { return Ok(()) };
    for (library, functions) in functions(&fs::read_to_string(DECLARATIONS)?) {
        make_stub(&out, &library, &functions)?;
    }
    println!("cargo::rustc-link-search=native={}", out.display());
    // Types that are registered with GObject stay as long as the program, and so does their code.
    for argument in ["-z,nodelete", "-z,relro", "-z,now", "-z,defs", "--gc-sections"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
    Ok(())
}

/// Returns the functions that are declared, by their library.
fn functions(declarations: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut library = None;
    for line in declarations.lines() {
        let name = |line: &str, end: char| line.split(end).next().unwrap_or_default().to_owned();
        if let Some(rest) = line.strip_prefix("#[link(name = \"") {
            library = Some(name(rest, '"'));
        } else if line.starts_with('}') {
            library = None;
        } else if let (Some(library), Some(rest)) =
            (&library, line.trim_start().strip_prefix("pub(crate) fn "))
        {
            found.entry(library.clone()).or_default().push(name(rest, '('));
        }
    }
    found
}

/// Makes a library of GLib's name that has these functions and does nothing, to link with.
fn make_stub(out: &Path, library: &str, functions: &[String]) -> io::Result<()> {
    let source = out.join(format!("{library}.c"));
    let text: String = functions.iter().map(|name| format!("void {name}(void) {{}}\n")).collect();
    fs::write(&source, text)?;
    let compiler = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let made = Command::new(compiler)
        .args(["-shared", "-fPIC", "-nostdlib", "-o"])
        .arg(out.join(format!("lib{library}.so")))
        .arg(format!("-Wl,-soname,lib{library}.so.0"))
        .arg(&source)
        .status()?;
    if made.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("the C compiler cannot make a library of {}", source.display())))
}
