//! The settings that the benchmarks work on: a database as a desktop's grows, the same in every run.

use session::settings::changeset::Changeset;
use session::settings::database::Table;
use session::settings::effective;
use store::table::gvariant::Variant;
use store::table::gvdb;

use super::random::Random;

/// The changesets of the ordinary database; they leave about 4,500 keys and 270 KB.
pub const CHANGESETS: usize = 1000;
/// The seed of the ordinary database.
pub const SEED: u64 = 1;

/// Changes of 1 to 13 keys each: 75 % new keys, 15 % new values, 10 % resets; 2 % also reset a directory.
#[must_use]
pub fn changesets(seed: u64, count: usize) -> Vec<Changeset> {
    let mut random = Random::new(seed);
    let mut table = Table::default();
    // Kept beside the table: picking the n-th key of a tree is slow.
    let mut known: Vec<String> = Vec::new();
    let mut sets = Vec::with_capacity(count);
    for _ in 0..count {
        let mut set = Changeset::default();
        for _ in 0..=random.below(13) {
            let choice = random.below(100);
            let old = (!known.is_empty()).then(|| random.pick(&known).clone());
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
        if random.chance(2) && !known.is_empty() {
            let key = random.pick(&known).clone();
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
pub fn table(changesets: &[Changeset]) -> Table {
    let mut table = Table::default();
    for set in changesets {
        effective::apply(&mut table, set);
    }
    table
}

/// Returns `count` integers in one directory.
#[must_use]
pub fn flat(count: i32) -> Table {
    let mut table = Table::default();
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
pub fn image(table: &Table) -> Result<Vec<u8>, gvdb::WriteError> {
    let entries = table.iter().map(|(key, value)| (key, value.as_bytes()));
    gvdb::write(entries, &gvdb::Image::default())
}

/// Makes a path like `/org/gnome/shell/extensions/dash-to-dock/icon-size`: two or three directories.
fn path(random: &mut Random) -> String {
    const TOP: [&str; 4] = ["org", "com", "net", "io"];
    const WORDS: [&str; 16] = [
        "app", "desktop", "editor", "files", "terminal", "shell", "sound", "input", "window",
        "view", "panel", "theme", "power", "search", "notify", "session",
    ];
    let mut path = format!("/{}/{}{}", random.pick(&TOP), random.pick(&WORDS), random.below(8));
    if random.chance(30) {
        path.push_str(&format!("/{}", random.pick(&WORDS)));
    }
    path.push_str(&format!("/{}-{}", random.pick(&WORDS), random.below(10_000)));
    path
}

fn value(random: &mut Random) -> Variant {
    match random.below(4) {
        0 => Variant::from(random.chance(50)),
        1 => Variant::from(&*format!("text {}", random.below(1_000_000))),
        _ => Variant::from(i32::try_from(random.below(1_000_000)).unwrap_or(0)),
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
    fn the_flat_database_is_one_directory() {
        let image = image(&flat(100)).unwrap();
        let table = gvdb::Table::open(&image).unwrap();
        assert_eq!(table.list("/flat/").unwrap().len(), 100);
    }
}
