//! How the programs are linked: for most of them, starting is most of what they do.
#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells build scripts what they build for, and where they may write"
)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(packaged)");
    if is_for_packages() {
        println!("cargo::rustc-cfg=packaged");
    }
    if env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "gnu") {
        // The unwinder, GCC's own, is linked in: one shared library less to find, map and relocate is a tenth of a millisecond of each start.
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
        let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
        let out = env::var_os("OUT_DIR").map(PathBuf::from);
        let is_static = out.clone().filter(|_| has_static_libc(&linker));
        if let Some(out) = &is_static {
            make_names(out)?;
        }
        let folds = is_optimised() && out.as_deref().is_some_and(can_fold);
        for program in ["unjank", "unjank-bench", "unjankd"] {
            // 15,000 relocations are 350 KB to be read at each start, and 4 KB where they are packed. A linker that cannot pack them leaves them as they are.
            println!("cargo::rustc-link-arg-bin={program}=-Wl,-z,pack-relative-relocs");
            if folds {
                // Functions that are the same code are there once: 4 % of the program.
                println!("cargo::rustc-link-arg-bin={program}={FOLD}");
            }
        }
        if env::var("CARGO_CFG_PANIC").is_ok_and(|panic| panic == "abort") {
            // The program does not look up how its own stack is unwound. 140 KB.
            println!("cargo::rustc-link-arg-bin=unjank=-Wl,--no-eh-frame-hdr");
        }
        let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
        for program in ["unjank-index", "unjank-host"] {
            if let Some(out) = &is_static {
                link_statically(program, out);
            }
            if is_release {
                // A cold program is read with megabytes of what lies around it in its file, and its own first reads wait behind them.
                println!("cargo::rustc-link-arg-bin={program}=-Wl,--strip-debug");
            }
        }
    }
    Ok(())
}

/// Says whether packages are made of what is built, the profile `dist`: unjankd and unjank-bench are programs of their own there, so that
/// `unjank` need not be able to serve and to measure.
///
/// Cargo calls every profile `release` that inherits from it; its name is that of the directory.
fn is_for_packages() -> bool {
    let out = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    // PROFILE/build/unjank-HASH/out
    out.ancestors().nth(3).is_some_and(|profile| profile.ends_with("dist"))
}

/// Says whether there is all that a static program is made of: some distributions have it in a package of its own.
fn has_static_libc(linker: &OsString) -> bool {
    ["rcrt1.o", "libc.a", "libm.a"].into_iter().all(|name| {
        let found = Command::new(linker).arg(format!("-print-file-name={name}")).output();
        // What it does not find it calls by the bare name.
        found.is_ok_and(|found| found.stdout.starts_with(b"/"))
    })
}

/// The linker folds functions that are the same code.
const FOLD: &str = "-Wl,--icf=all";

/// Says whether the programs are optimised: a debugger and a profiler name functions that are not folded better.
fn is_optimised() -> bool {
    env::var("OPT_LEVEL").is_ok_and(|level| level != "0" && level != "1")
}

/// Says whether the linker that Rust uses knows [`FOLD`]: lld does, and the linker of GNU does not.
fn can_fold(out: &Path) -> bool {
    let source = out.join("fold.rs");
    if fs::write(&source, "fn main() {}\n").is_err() {
        return false;
    }
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    if let Some(target) = env::var_os("TARGET") {
        rustc.arg("--target").arg(target);
    }
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={}", linker.display()));
    }
    // What the person who builds asks for, such as another linker.
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    rustc.args(["--crate-type", "bin", &format!("-Clink-arg={FOLD}"), "-o"]);
    rustc.arg(out.join("fold")).arg(&source);
    rustc.output().is_ok_and(|output| output.status.success())
}

/// Writes names of shared libraries, for which Rust's library asks, that lead to the static ones.
fn make_names(out: &Path) -> io::Result<()> {
    for (shared, archives) in [
        ("c", "GROUP(-l:libc.a -l:libgcc_eh.a -l:libgcc.a)"),
        ("gcc_s", "INPUT(-l:libgcc_eh.a)"),
        ("m", "INPUT(-l:libm.a)"),
    ] {
        fs::write(out.join(format!("lib{shared}.so")), archives)?;
    }
    Ok(())
}

/// Links one program without shared libraries: to start with them takes a third of a millisecond more, and those of a sandbox may be older than what it was built with.
///
/// `crt-static` does the same for everything that cargo builds, and what is preloaded has to be shared.
fn link_statically(program: &str, out: &Path) {
    for argument in ["-static-pie", &format!("-L{}", out.display())] {
        println!("cargo::rustc-link-arg-bin={program}={argument}");
    }
}
