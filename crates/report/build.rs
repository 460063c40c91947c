//! Hands the name of cargo's profile to the program, which says it beside figures.
#![expect(clippy::disallowed_methods, reason = "cargo tells build scripts where they may write")]

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    // Cargo names it nowhere but in this path: target/<profile>/build/...
    let build = out.ancestors().find(|dir| dir.ends_with("build"));
    let profile = build.and_then(|build| build.parent()?.file_name()?.to_str());
    println!("cargo::rustc-env=UNJANK_PROFILE={}", profile.unwrap_or_default());
}
