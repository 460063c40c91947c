//! The settings that the benchmarks work on: a database as a desktop's grows, the same in every run.

use gvdb::gvariant::Variant;
use settings::changeset::Changeset;
use settings::database::KeyTable;
use settings::effective;

use fastrand::Rng;

/// The changesets of the ordinary database; they leave about 4,500 keys and 270 KB.
pub const CHANGESETS: usize = 1000;
/// The seed of the ordinary database.
pub const SEED: u64 = 1;

/// Changes of 1 to 13 keys each: 75 % new keys, 15 % new values, 10 % resets; 2 % also reset a directory.
#[must_use]
pub fn changesets(seed: u64, count: usize) -> Vec<Changeset> {
    let mut random = Rng::with_seed(seed);
    let mut table = KeyTable::default();
    // Kept beside the table: picking the n-th key of a tree is slow.
    let mut known: Vec<String> = Vec::new();
    let mut sets = Vec::with_capacity(count);
    for _ in 0..count {
        let mut set = Changeset::default();
        for _ in 0..=random.usize(..13) {
            let choice = random.usize(..100);
            let old = (!known.is_empty()).then(|| known[random.usize(..known.len())].clone());
            match (choice, old) {
                (75..90, Some(old)) => set.change(&old, Some(value(&mut random))),
                (90.., Some(old)) => set.change(&old, None),
                _ => {
                    let key = path(&mut random);
                    set.change(&key, Some(value(&mut random)));
                    known.push(key);
                }
            }
        }
        if random.usize(..100) < 2 && !known.is_empty() {
            let key = known[random.usize(..known.len())].clone();
            let end = key.rfind('/').map_or(0, |at| at + 1);
            set.change(&key[..end], None);
        }
        effective::apply(&mut table, &set);
        known.retain(|key| table.get(key).is_some());
        sets.push(set);
    }
    sets
}

/// Returns the database that `changesets` leave.
#[must_use]
pub fn table(changesets: &[Changeset]) -> KeyTable {
    let mut table = KeyTable::default();
    for set in changesets {
        effective::apply(&mut table, set);
    }
    table
}

/// What a single write does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// The key has no value yet.
    Insert,
    /// The key gets another value.
    Change,
    /// The key loses its value.
    Reset,
}

impl WriteKind {
    /// Returns the word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            WriteKind::Insert => "insert",
            WriteKind::Change => "change",
            WriteKind::Reset => "reset",
        }
    }
}

/// One write of one key; without a value it resets the key.
#[derive(Clone, Debug, PartialEq)]
pub struct SingleWrite {
    /// What it does to the key.
    pub kind: WriteKind,
    /// The key.
    pub key: String,
    /// The key's new value.
    pub value: Option<Variant>,
}

/// Makes `count` writes of one key each, a third of each kind, so that the number of keys stays about what it is.
///
/// Each of them changes `table`, which then holds what they leave.
#[must_use]
pub fn single_writes(random: &mut Rng, table: &mut KeyTable, count: usize) -> Vec<SingleWrite> {
    let mut known: Vec<String> = table.iter().map(|(key, _)| key.to_owned()).collect();
    let mut writes = Vec::with_capacity(count);
    while writes.len() < count {
        let at = random.usize(..known.len());
        let old = known.get(at).cloned();
        let (kind, key, new) = match (writes.len() % 3, old) {
            (1, Some(old)) => (WriteKind::Change, old, Some(value(random))),
            (2, Some(old)) => (WriteKind::Reset, old, None),
            _ => (WriteKind::Insert, path(random), Some(value(random))),
        };
        let is_effective = match kind {
            WriteKind::Insert => table.get(&key).is_none(),
            WriteKind::Change | WriteKind::Reset => table.get(&key) != new.as_ref(),
        };
        if !is_effective {
            continue;
        }
        table.put(&key, new.clone());
        match kind {
            WriteKind::Insert => known.push(key.clone()),
            WriteKind::Change => {}
            WriteKind::Reset => {
                known.swap_remove(at);
            }
        }
        writes.push(SingleWrite { kind, key, value: new });
    }
    writes
}

/// Returns `count` integers in one directory.
#[must_use]
pub fn flat(count: i32) -> KeyTable {
    let mut table = KeyTable::default();
    for number in 0..count {
        table.put(&format!("/flat/key{number:06}"), Some(Variant::from(number)));
    }
    table
}

/// Returns the bytes of a database file, without a stamp, as dconf itself writes it.
///
/// # Errors
///
/// A key that the format cannot hold; the generators make none.
pub fn image(table: &KeyTable) -> Result<Vec<u8>, gvdb::TableWriteError> {
    let entries = table.iter().map(|(key, value)| (key, value.as_bytes()));
    gvdb::write(entries, &gvdb::Image::default())
}

/// Makes a path like `/org/gnome/shell/extensions/dash-to-dock/icon-size`: two or three directories.
fn path(random: &mut Rng) -> String {
    const TOP: [&str; 4] = ["org", "com", "net", "io"];
    const WORDS: [&str; 16] = [
        "app", "desktop", "editor", "files", "terminal", "shell", "sound", "input", "window",
        "view", "panel", "theme", "power", "search", "notify", "session",
    ];
    let mut path = format!(
        "/{}/{}{}",
        TOP[random.usize(..TOP.len())],
        WORDS[random.usize(..WORDS.len())],
        random.usize(..8)
    );
    if random.usize(..100) < 30 {
        path.push_str(&format!("/{}", WORDS[random.usize(..WORDS.len())]));
    }
    path.push_str(&format!("/{}-{}", WORDS[random.usize(..WORDS.len())], random.usize(..10_000)));
    path
}

fn value(random: &mut Rng) -> Variant {
    match random.usize(..4) {
        0 => Variant::from(random.bool()),
        1 => Variant::from(&*format!("text {}", random.usize(..1_000_000))),
        _ => Variant::from(i32::try_from(random.usize(..1_000_000)).unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ordinary_database_has_the_size_that_the_figures_speak_of() {
        let table = table(&changesets(SEED, CHANGESETS));
        assert!((4300..4700).contains(&table.len()), "{} keys", table.len());
        let size = image(&table).unwrap().len();
        assert!((240_000..310_000).contains(&size), "{size} bytes");
    }

    #[test]
    fn every_run_works_on_the_same_database() {
        assert_eq!(changesets(7, 50), changesets(7, 50));
        assert_ne!(changesets(7, 50), changesets(8, 50));
    }

    #[test]
    fn single_writes_do_what_they_are_called_and_leave_the_number_of_keys() {
        let mut before = table(&changesets(SEED, CHANGESETS));
        let mut after = before.clone();
        let writes = single_writes(&mut Rng::with_seed(1), &mut after, 300);
        assert_eq!(after.len(), before.len());
        for SingleWrite { kind, key, value } in writes {
            let old = before.put(&key, value.clone());
            let is_so = match kind {
                WriteKind::Insert => old.is_none() && value.is_some(),
                WriteKind::Change => old.is_some() && value.is_some() && old != value,
                WriteKind::Reset => old.is_some() && value.is_none(),
            };
            assert!(is_so, "{kind:?} of {key}");
        }
        assert_eq!(before, after);
    }

    #[test]
    fn the_flat_database_is_one_directory() {
        let image = image(&flat(100)).unwrap();
        let table = gvdb::GvdbTable::open(&image).unwrap();
        assert_eq!(table.list("/flat/").unwrap().len(), 100);
    }
}
