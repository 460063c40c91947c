//! Replays the bodies of the GVariant fuzz targets over the committed corpus, and over small changes to it.
#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

#[path = "../../../fuzz/src/gvariant.rs"]
#[expect(unreachable_pub, reason = "the file belongs to another crate")]
mod gvariant;
#[path = "../../../fuzz/replay.rs"]
#[expect(unreachable_pub, reason = "the file belongs to several tests")]
mod replay;

use replay::replay;

/// Lengths and offsets.
const SMALL: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

#[test]
fn bytes_of_the_corpus_pass() {
    assert!(replay("gvariant_bytes", 60, &SMALL, gvariant::bytes).unwrap() > 1000);
}

#[test]
fn texts_of_the_corpus_pass() {
    assert!(replay("gvariant_text", 60, &SMALL, gvariant::text).unwrap() > 1000);
}

#[test]
fn changes_of_the_corpus_pass() {
    assert!(replay("gvariant_changes", 60, &SMALL, gvariant::changes).unwrap() > 400);
}

#[test]
fn the_replay_says_which_input_a_faulty_body_fails_on() {
    let faulty = |data: &[u8]| assert!(!data.starts_with(b"as\0"), "no strings");
    let failure = replay("gvariant_bytes", 60, &SMALL, faulty).unwrap_err();
    assert!(failure.contains("as\\x00"), "{failure}");
}
