//! Replays the body of a fuzz target over its committed corpus, and over small changes to it: a part of the tests of several
//! crates.

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

/// The changes are the same in each run.
const SEED: u64 = 0x2545_f491_4f6c_dd1d;

/// Returns where the inputs of a target are.
pub fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// Runs `body` over the corpus and over changed copies, `rounds` for each input, in which some bytes become one of `special`.
///
/// Returns the number of inputs, or the one on which the body panicked.
pub fn replay(
    target: &str,
    rounds: usize,
    special: &[u8],
    body: impl Fn(&[u8]) + std::panic::RefUnwindSafe,
) -> Result<usize, String> {
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(corpus(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut inputs = 0;
    for path in paths {
        let original = std::fs::read(&path).unwrap();
        for round in 0..rounds {
            let mut data = original.clone();
            (0..round.min(4)).for_each(|_| change(&mut data, special, &mut random));
            inputs += 1;
            catch_unwind(|| body(&data)).map_err(|_| {
                let path = path.display();
                format!("{path} in round {round} of seed {SEED}: {}", data.escape_ascii())
            })?;
        }
    }
    Ok(inputs)
}

/// Cuts, repeats, inserts or changes.
fn change(data: &mut Vec<u8>, special: &[u8], random: &mut fastrand::Rng) {
    let at = random.usize(..=data.len());
    let chosen = special[random.usize(..special.len())];
    match random.u32(..7) {
        0 => data.truncate(at),
        1 => data.insert(at, chosen),
        2 => data.insert(at, random.u8(..)),
        3 => {
            let piece = data[at..(at + random.usize(..60)).min(data.len())].to_vec();
            data.splice(at..at, piece);
        }
        4 if at < data.len() => data[at] = chosen,
        5 if at < data.len() => data[at] ^= 1 << random.u32(..8),
        _ if at < data.len() => data[at] = random.u8(..),
        _ => data.push(0),
    }
}
