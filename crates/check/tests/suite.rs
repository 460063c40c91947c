//! What is judged, on reports of any bytes.

extern crate unjank_check as check;

#[path = "../../../fuzz/replay.rs"]
#[expect(unreachable_pub, reason = "the file belongs to several tests")]
#[expect(clippy::unwrap_used, reason = "a corpus that cannot be read fails the test")]
mod replay;

mod fuzz_check;
