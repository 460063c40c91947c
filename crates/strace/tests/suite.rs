//! Logs and reports as strangers may write them.

#[path = "../../../fuzz/replay.rs"]
#[expect(unreachable_pub, reason = "the file belongs to several tests")]
#[expect(clippy::unwrap_used, reason = "a corpus that cannot be read fails the test")]
mod replay;

mod fuzz_trace;

// The body of the fuzz target names the crate so, too.
extern crate unjank_strace as strace;
