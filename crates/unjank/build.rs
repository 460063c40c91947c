//! The unwinder is linked in: one shared library less to find, map and relocate is a tenth of a millisecond of each start.
#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells build scripts what they build for in the environment"
)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // GCC's own, which is wherever its shared library can be linked against.
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "gnu") {
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}
