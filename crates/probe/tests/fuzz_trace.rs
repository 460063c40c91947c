//! Replays the bodies of the fuzz targets for traces over the committed corpus, and over small changes to it.
#![expect(clippy::unwrap_used, reason = "a corpus that cannot be read fails the test")]

#[path = "../../../fuzz/src/trace.rs"]
#[expect(unreachable_pub, reason = "the file belongs to another crate")]
mod trace;

use std::path::Path;

/// The files of a target's corpus.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = std::fs::read_dir(directory).unwrap();
    let bytes: Vec<Vec<u8>> =
        files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(!bytes.is_empty());
    bytes
}

/// Cuts, repeats and changes `seed` in `times` ways that are the same in every run.
fn variants(seed: &[u8], times: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ seed.len() as u64;
    let mut random = move |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below.max(1)
    };
    (0..times).map(move |_| {
        let mut bytes = seed.to_vec();
        for _ in 0..=random(3) {
            let at = random(bytes.len());
            match random(4) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at.min(bytes.len()), b"<>\"\\)(=\n 0{}"[random(12)]),
                2 if !bytes.is_empty() => bytes[at] = u8::try_from(random(256)).unwrap(),
                _ => {
                    let end = (at + random(60)).min(bytes.len());
                    let piece = bytes[at.min(end)..end].to_vec();
                    bytes.splice(at.min(bytes.len())..at.min(bytes.len()), piece);
                }
            }
        }
        bytes
    })
}

#[test]
fn any_log_is_read_or_refused() {
    for seed in corpus("trace_log") {
        trace::log(&seed);
        variants(&seed, 120).for_each(|bytes| trace::log(&bytes));
    }
}

#[test]
fn any_report_is_read_or_refused() {
    for seed in corpus("trace_report") {
        trace::report(&seed);
        variants(&seed, 200).for_each(|bytes| trace::report(&bytes));
    }
}
