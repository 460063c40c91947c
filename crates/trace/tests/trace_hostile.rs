//! Files and messages of traced programs that nobody honest made: nothing panics, hangs or grows.
#![expect(clippy::unwrap_used, reason = "a corpus that cannot be read fails the test")]

#[path = "../../../fuzz/src/stacks.rs"]
#[expect(unreachable_pub, reason = "the file belongs to another crate")]
mod fuzz;

use std::path::{Path, PathBuf};

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Changes a few bytes, the same ones in every run.
fn damaged(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..=seed % 4 {
        let at = random.usize(..bytes.len());
        let value = [0, 1, 0x7f, 0x80, 0xff][random.usize(..5)];
        bytes.iter_mut().skip(at).take(1 << random.u32(..4)).for_each(|byte| *byte = value);
    }
    bytes
}

#[test]
fn the_corpus_and_damaged_files_of_it_are_read_without_harm() {
    let files = corpus("trace_elf");
    assert!(files.len() >= 4);
    for file in &files {
        fuzz::elf(file);
        for seed in 0..40 {
            fuzz::elf(&damaged(file, seed));
        }
        // Headers decide what is read at all.
        for at in (0..64).step_by(3) {
            let mut changed = file.clone();
            changed[at] ^= 0xff;
            fuzz::elf(&changed);
        }
        for part in 1..8 {
            fuzz::elf(&file[..file.len() * part / 8]);
        }
    }
}

#[test]
fn messages_cut_or_damaged_anywhere_are_read_without_harm() {
    for message in corpus("trace_dbus") {
        for len in 0..=message.len() {
            fuzz::dbus(&message[..len]);
        }
        for seed in 0..2000 {
            fuzz::dbus(&damaged(&message, seed));
        }
    }
}
