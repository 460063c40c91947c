//! The checksum of an index's parts: it finds damage, and keeps out nobody who can compute it.
//!
//! Eight bytes a step, in four chains that do not wait for each other, with no instruction that a processor may lack: asking
//! a processor what it has takes longer in a virtual machine than summing all that one question reads.

/// The length of a sum in the file, in bytes.
pub(super) const LEN: usize = 8;

const CHAINS: usize = 4;
const WORD: usize = 8;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Takes a word into a chain. Every step is a bijection of both, so that damage within one word always changes the sum.
fn step(chain: u64, word: u64) -> u64 {
    let mixed = (chain ^ word).wrapping_mul(FACTOR);
    mixed ^ (mixed >> 29)
}

/// Returns the sum of `bytes`; another `seed` gives another sum.
pub(super) fn sum(seed: u64, bytes: &[u8]) -> u64 {
    let mut chains = [1, 2, 3, 4].map(|number| step(seed, number));
    let (blocks, rest) = bytes.as_chunks::<{ CHAINS * WORD }>();
    for block in blocks {
        let words = block.as_chunks::<WORD>().0;
        for (chain, word) in chains.iter_mut().zip(words) {
            *chain = step(*chain, u64::from_le_bytes(*word));
        }
    }
    let mut all = step(seed, bytes.len() as u64);
    for word in rest.chunks(WORD) {
        let mut whole = [0; WORD];
        whole[..word.len()].copy_from_slice(word);
        all = step(all, u64::from_le_bytes(whole));
    }
    let all = chains.into_iter().fold(all, step);
    all ^ (all >> 32)
}

/// Puts the sum of `bytes` behind them.
pub(super) fn seal(seed: u64, bytes: &mut Vec<u8>) {
    let sum = sum(seed, bytes);
    bytes.extend(sum.to_le_bytes());
}

/// Returns the bytes before the sum, if they are those that were sealed.
pub(super) fn opened(seed: u64, bytes: &[u8]) -> Option<&[u8]> {
    let (bytes, known) = bytes.split_last_chunk::<LEN>()?;
    (sum(seed, bytes) == u64::from_le_bytes(*known)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_bit_and_every_cut_is_found() {
        let bytes: Vec<u8> = (0..=99_u8).map(|number| number.wrapping_mul(37)).collect();
        let mut sealed = bytes.clone();
        seal(7, &mut sealed);
        assert_eq!(opened(7, &sealed), Some(&bytes[..]));
        assert_eq!(opened(8, &sealed), None, "the sum of another part");
        for at in 0..sealed.len() * 8 {
            let mut damaged = sealed.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            assert_eq!(opened(7, &damaged), None, "bit {at}");
            // The same bit of two neighbours, which simple sums do not see.
            for other in [at + 8, at + 64, at + 256].into_iter().filter(|at| at / 8 < sealed.len())
            {
                let mut damaged = damaged.clone();
                damaged[other / 8] ^= 1 << (other % 8);
                assert_eq!(opened(7, &damaged), None, "bits {at} and {other}");
            }
        }
        for len in 0..sealed.len() {
            assert_eq!(opened(7, &sealed[..len]), None, "cut to {len}");
            let zeros: Vec<u8> = sealed
                .iter()
                .enumerate()
                .map(|(at, byte)| if at < len { *byte } else { 0 })
                .collect();
            assert_eq!(opened(7, &zeros).is_some(), zeros == sealed, "zeros from {len} on");
        }
        assert_eq!(opened(7, &[0; 16]), None);
    }
}
