//! KDE's cache of applications and services: whether the next program that uses it rebuilds it.
//!
//! Format: `ksycoca.cpp` of KService 5.103, version 305. Numbers and texts as `QDataStream` writes them: big-endian, UTF-16.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::NAME;
use crate::finding::{Finding, MeasurementOutcome};
use crate::machine::Machine;
use crate::remedy::Remedy;

/// The most of a cache that is read: what it was made of stands at its beginning.
const HEAD_MAX: u64 = 1 << 20;
/// Directories that are looked at, and how deep.
const DIRECTORIES: usize = 2000;
const DEPTH: usize = 8;
/// The program that makes the cache.
const MAKER: &str = "kbuildsycoca5";

/// Looks at the caches of this user.
pub(super) fn look(machine: &Machine) -> Vec<Finding> {
    let Some(cache) = &machine.cache_home else { return Vec::new() };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(cache)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("ksycoca5_") && !name.ends_with(".lock")
        })
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    if paths.is_empty() && Path::new("/usr/bin").join(MAKER).exists() {
        let note = "not there: the first program of KDE that asks makes it, and waits for that";
        let name = machine.short(&cache.join("ksycoca5_…"));
        return vec![Finding::new(NAME, name, "", MeasurementOutcome::Note(note.to_owned()))];
    }
    paths.iter().map(|path| of_cache(machine, path)).collect()
}

fn of_cache(machine: &Machine, path: &Path) -> Finding {
    let measured = "the times of the directories that it was made of were held against those in it";
    let finding = |outcome| Finding::new(NAME, machine.short(path), measured, outcome);
    let head = File::open(path).and_then(|file| {
        let mut head = Vec::new();
        file.take(HEAD_MAX).read_to_end(&mut head).map(|_| head)
    });
    let head = match head {
        Ok(head) => head,
        Err(error) => return finding(MeasurementOutcome::Skipped(error.to_string())),
    };
    let Some(made_of) = made_of(&head) else {
        return finding(MeasurementOutcome::Note("not of a version that is known".to_owned()));
    };
    let changed = made_of.iter().find(|(path, made_ms)| newest_ms(path) > *made_ms);
    match changed {
        None => finding(MeasurementOutcome::Note(format!("current: made of {} places", made_of.len()))),
        Some((changed, _)) => finding(MeasurementOutcome::Note(format!(
            "out of date: {} changed, and the next program of KDE that asks makes it anew and waits for that",
            changed.display()
        )))
        .remedy(Remedy::UpdateSycoca),
    }
}

/// Returns the directories and files that a cache was made of, with the newest time of each in milliseconds.
fn made_of(head: &[u8]) -> Option<Vec<(PathBuf, i64)>> {
    let mut rest = head;
    // Versions 303 to 305 are told apart by what comes later.
    if !(303..=307).contains(&i32_of(&mut rest)?) {
        return None;
    }
    // The factories and where they are, until one has no number.
    while i32_of(&mut rest)? != 0 {
        i32_of(&mut rest)?;
    }
    text_of(&mut rest)?;
    i64_of(&mut rest)?;
    text_of(&mut rest)?;
    i32_of(&mut rest)?;
    let mut all = Vec::new();
    for _ in 0..2 {
        let count = usize::try_from(i32_of(&mut rest)?).ok()?;
        let paths: Option<Vec<String>> = (0..count).map(|_| text_of(&mut rest)).collect();
        for path in paths? {
            all.push((PathBuf::from(path), i64_of(&mut rest)?));
        }
    }
    Some(all)
}

fn i32_of(rest: &mut &[u8]) -> Option<i32> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(i32::from_be_bytes(*number))
}

fn i64_of(rest: &mut &[u8]) -> Option<i64> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(i64::from_be_bytes(*number))
}

fn text_of(rest: &mut &[u8]) -> Option<String> {
    let len = match u32::from_be_bytes(i32_of(rest)?.to_be_bytes()) {
        // A text that is not there, which is not an empty one.
        u32::MAX => 0,
        len => usize::try_from(len).ok()?,
    };
    let (text, after) = rest.split_at_checked(len)?;
    *rest = after;
    let units = text.as_chunks::<2>().0.iter().map(|unit| u16::from_be_bytes(*unit));
    Some(char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
}

/// Returns the newest time of a file, or of a directory and all directories below it; 0 if there is none.
fn newest_ms(path: &Path) -> i64 {
    let mut left = vec![(path.to_owned(), DEPTH)];
    let (mut newest, mut seen) = (0, 0);
    while let Some((path, depth)) = left.pop() {
        seen += 1;
        let Ok(found) = std::fs::metadata(&path) else { continue };
        newest = newest.max(found.mtime() * 1000 + found.mtime_nsec() / 1_000_000);
        if found.is_dir() && depth > 0 && seen < DIRECTORIES {
            let below = std::fs::read_dir(&path).into_iter().flatten().flatten();
            let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            left.extend(below.map(|entry| (entry.path(), depth - 1)));
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &mut Vec<u8>, text: &str) {
        let units: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        bytes.extend(u32::try_from(units.len()).unwrap().to_be_bytes());
        bytes.extend(units);
    }

    fn cache(directory: &Path, made_ms: i64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [305_i32, 1, 4096, 0] {
            bytes.extend(number.to_be_bytes());
        }
        text(&mut bytes, "/usr/share");
        bytes.extend(made_ms.to_be_bytes());
        text(&mut bytes, "en");
        bytes.extend(7_i32.to_be_bytes());
        bytes.extend(1_i32.to_be_bytes());
        text(&mut bytes, &directory.to_string_lossy());
        bytes.extend(made_ms.to_be_bytes());
        bytes.extend(0_i32.to_be_bytes());
        bytes
    }

    #[test]
    fn a_directory_that_is_newer_makes_the_cache_stale() {
        let root = tempfile::tempdir().unwrap();
        let applications = root.path().join("applications");
        std::fs::create_dir(&applications).unwrap();
        let machine = Machine { cache_home: Some(root.path().to_owned()), ..Machine::default() };
        let written = |made_ms: i64| {
            let path = root.path().join("ksycoca5_en_x");
            let file =
                std::fs::OpenOptions::new().create(true).truncate(true).write(true).open(path);
            std::io::Write::write_all(&mut file.unwrap(), &cache(&applications, made_ms)).unwrap();
            let found = look(&machine);
            let MeasurementOutcome::Note(note) = &found[0].outcome else { panic!("{found:?}") };
            note.clone()
        };
        let now = newest_ms(&applications);
        assert_eq!(written(now), "current: made of 1 places");
        assert!(written(now - 1).contains("applications changed"));
    }

    #[test]
    fn a_damaged_cache_is_not_believed() {
        let whole = cache(Path::new("/nowhere"), 5);
        assert_eq!(made_of(&whole), Some(vec![("/nowhere".into(), 5)]));
        for cut in 0..whole.len() {
            assert_eq!(made_of(&whole[..cut]), None);
        }
        let mut wrong = whole;
        wrong[3] = 1;
        assert_eq!(made_of(&wrong), None);
    }
}
