//! What watches programs, on programs that are really there.
//!
//! One program: tests that wait do so beside each other, and there is one to link.

// The bodies of the fuzz targets name the crate so, too.
extern crate sys as unjank_sys;
extern crate unjank_trace as trace;

mod waiting;

#[path = "../../../fuzz/replay.rs"]
#[expect(unreachable_pub, reason = "the file belongs to several tests")]
#[expect(clippy::unwrap_used, reason = "a corpus that cannot be read fails the test")]
mod replay;

#[path = "../../unjank/tests/fixture/fuse.rs"]
#[allow(dead_code, unreachable_pub, reason = "the file belongs to several tests")]
#[allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "what cannot be set up fails the test"
)]
mod fuse;

mod fuzz_kernel;
mod trace_backends;
mod trace_bpf;
mod trace_chains;
mod trace_display;
mod trace_files;
mod trace_foreign;
mod trace_gdb;
mod trace_hostile;
mod trace_marks;
mod trace_names;
mod trace_peek;
mod trace_places;
mod trace_stacks;
mod trace_stuck;
mod trace_time;
mod trace_work;

/// Says that a test is skipped and why, which is a failure where nothing may be skipped.
#[expect(
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test says what it skips, and is told whether it may"
)]
fn skip(why: &str) {
    assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {why}");
    eprintln!("SKIPPED: {why}");
}
