//! How a preloaded library is linked, for its build script: every program of a job or a session loads it, also one of another C library.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "cargo tells build scripts what they build for, and where they may write, and they tell it what to do"
)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// Links the library that is being built with the C library and nothing else, where that can be done.
///
/// # Errors
///
/// What leads the linker there cannot be written.
pub fn link() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let is_glibc = env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "gnu");
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else { return Ok(()) };
    if is_glibc && has_what_is_linked(&linker) {
        link_with_the_c_library_alone(&out)?;
    }
    Ok(())
}

/// Says whether there is all that [`link_with_the_c_library_alone`] names.
fn has_what_is_linked(linker: &OsString) -> bool {
    ["libgcc_eh.a", "libc_nonshared.a", "libc.so.6"].into_iter().all(|name| {
        let found = Command::new(linker).arg(format!("-print-file-name={name}")).output();
        // What it does not find it calls by the bare name.
        found.is_ok_and(|found| found.stdout.starts_with(b"/"))
    })
}

/// Has the library depend on the C library and on nothing else: a loader that cannot find the rest ends the program that it was to start (musl's knows no glibc loader and no unwinder by these names).
///
/// Rust's library asks for shared libraries by name; the names in `out` lead elsewhere.
fn link_with_the_c_library_alone(out: &Path) -> io::Result<()> {
    fs::write(out.join("libc.so"), "GROUP(-l:libc.so.6 -l:libc_nonshared.a)")?;
    fs::write(out.join("libgcc_s.so"), "INPUT(-l:libgcc_eh.a)")?;
    println!("cargo::rustc-cdylib-link-arg=-L{}", out.display());
    // The unwinder in the library asks glibc for tables. It is there for a panic of our own, which must not happen and would end the program: it finds none.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--defsym=_dl_find_object=unjank_finds_no_object");
    Ok(())
}
