//! How libunjank.so is linked: its soname, the version of its symbols, and that it is never unloaded.
#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells build scripts what they build for, and where they may write, and they tell it what to do"
)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// The symbols that the library exports, one a line.
const SYMBOLS: &str = "symbols.txt";
/// The version of all of them. A later one gets a list of its own that names this one as the one before.
const VERSION: &str = "UNJANK_0";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SYMBOLS}");
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else { return Ok(()) };
    let symbols = fs::read_to_string(SYMBOLS)?;
    let names: String = symbols.lines().map(|name| format!("        {name};\n")).collect();
    let script = out.join("libunjank.map");
    fs::write(&script, format!("{VERSION} {{\n    global:\n{names}    local:\n        *;\n}};\n"))?;
    let linker = out.join("linker");
    fs::create_dir_all(&linker)?;
    wrap_linker(&linker, &script)?;
    // Threads of listings and texts of threads live in its code as long as the program.
    for argument in ["-soname,libunjank.so.0", "-z,nodelete", "-z,relro", "-z,now", "--gc-sections"]
    {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo::rustc-cdylib-link-arg=-fuse-ld=bfd");
    println!("cargo::rustc-cdylib-link-arg=-B{}", linker.display());
    Ok(())
}

/// Puts a linker into `directory` that takes our version script in place of rustc's, which has the same symbols without a version: a linker refuses both at once.
fn wrap_linker(directory: &Path, script: &Path) -> io::Result<()> {
    let cc = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let found = Command::new(cc).arg("-print-prog-name=ld.bfd").output()?;
    let real = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    let real = if real.is_empty() { "ld.bfd".to_owned() } else { real };
    let text = format!(
        r#"#!/bin/sh
# Replaces the version script of rustc by that of libunjank.
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    count=$((count - 1))
    case $argument in
    --version-script=*) set -- "$@" "--version-script={script}" ;;
    --version-script) shift; count=$((count - 1)); set -- "$@" "--version-script={script}" ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec {real} "$@"
"#,
        script = script.display()
    );
    let path = directory.join("ld.bfd");
    fs::write(&path, text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
}
