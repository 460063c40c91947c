//! Replays the bodies of the fuzz targets of what the kernel says over the committed corpus, and over small changes to it.
#![expect(clippy::unwrap_used, reason = "a corpus that cannot be read fails the test")]

extern crate sys as unjank_sys;

#[path = "../../../fuzz/src/kernel.rs"]
#[expect(unreachable_pub, reason = "the file belongs to another crate")]
mod kernel;

use std::panic::catch_unwind;
use std::path::Path;

/// Runs `body` over the corpus and over changed copies; returns the number of inputs, or what was wrong.
fn replay(target: &str, body: fn(&[u8])) -> Result<usize, String> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs = 0;
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        let original = std::fs::read(&path).unwrap();
        for round in 0..500_usize {
            let mut data = original.clone();
            for _ in 0..round.min(4) {
                // An xorshift generator: the same changes in each run.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let [a, b, c, kind, ..] = state.to_le_bytes();
                let at = usize::from(u16::from_le_bytes([a, c])) % (data.len() + 1);
                match kind % 4 {
                    0 => data.truncate(at),
                    1 if at < data.len() => data[at] ^= 1 << (b % 8),
                    _ if at < data.len() => data[at] = b,
                    _ => data.push(b),
                }
            }
            inputs += 1;
            catch_unwind(|| body(&data))
                .map_err(|_| format!("{} in round {round}: {data:?}", path.display()))?;
        }
    }
    Ok(inputs)
}

#[test]
fn records_and_types_of_the_corpus_pass() {
    assert!(replay("bpf_record", kernel::record).unwrap() >= 3000);
    assert!(replay("kernel_types", kernel::types).unwrap() >= 500);
}

#[test]
fn a_body_that_panics_is_noticed() {
    assert!(replay("bpf_record", |data| assert!(data.len() > 100)).is_err());
}
