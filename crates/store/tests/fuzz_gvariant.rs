//! Replays the bodies of the GVariant fuzz targets over the committed corpus, and over small changes to it.
#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

#[path = "../../../fuzz/src/gvariant.rs"]
#[expect(unreachable_pub, reason = "the file belongs to another crate")]
mod gvariant;

use std::panic::catch_unwind;
use std::path::Path;

/// Runs `body` over `corpus/<target>` and over changed copies; returns the number of inputs, or what was wrong.
fn replay(target: &str, body: fn(&[u8])) -> Result<usize, String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs = 0;
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        let original = std::fs::read(&path).unwrap();
        for round in 0..60_usize {
            let mut data = original.clone();
            for _ in 0..round.min(4) {
                // An xorshift generator: the same changes in each run.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let [a, b, kind, ..] = state.to_le_bytes();
                let at = usize::from(a) % (data.len() + 1);
                match kind % 4 {
                    0 => data.truncate(at),
                    1 => data.insert(at, b),
                    2 if at < data.len() => data[at] = b % 16,
                    _ if at < data.len() => data[at] = b,
                    _ => data.push(0),
                }
            }
            inputs += 1;
            catch_unwind(|| body(&data)).map_err(|_| {
                format!("{} in round {round}: {:?}", path.display(), String::from_utf8_lossy(&data))
            })?;
        }
    }
    Ok(inputs)
}

#[test]
fn bytes_of_the_corpus_pass() {
    assert!(replay("gvariant_bytes", gvariant::bytes).unwrap() > 1000);
}

#[test]
fn texts_of_the_corpus_pass() {
    assert!(replay("gvariant_text", gvariant::text).unwrap() > 1000);
}

#[test]
fn changes_of_the_corpus_pass() {
    assert!(replay("gvariant_changes", gvariant::changes).unwrap() > 400);
}

#[test]
fn the_replay_says_which_input_a_faulty_body_fails_on() {
    let faulty = |data: &[u8]| assert!(!data.starts_with(b"as\0"), "no strings");
    let failure = replay("gvariant_bytes", faulty).unwrap_err();
    assert!(failure.contains("as\\0"), "{failure}");
}
