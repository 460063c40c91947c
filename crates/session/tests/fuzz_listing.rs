//! Replays the bodies of the listing's fuzz targets over the committed corpus, and over small changes to it.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may fail where it stands"
)]

#[path = "../../../fuzz/src/listing.rs"]
#[expect(unreachable_pub, reason = "the file belongs to another crate")]
mod listing;

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use store::stream::Builder;
use unjank_session::listing::record::{
    AttributeRows, FORMAT, NameRows, done, failure, removed, renamed,
};
use unjank_session::listing::{Attributes, Failure, Fields, Kind, Step, Timestamp};

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// Runs `body` over the corpus and over changed copies; returns the number of inputs, or what was wrong.
fn replay(target: &str, body: fn(&[u8])) -> Result<usize, String> {
    let mut inputs = 0;
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for entry in std::fs::read_dir(corpus(target)).unwrap() {
        let path = entry.unwrap().path();
        let original = std::fs::read(&path).unwrap();
        for round in 0..200_usize {
            let mut data = original.clone();
            for _ in 0..round.min(4) {
                // An xorshift generator: the same changes in each run.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let [a, b, c, kind, ..] = state.to_le_bytes();
                let at = usize::from(u16::from_le_bytes([a, c])) % (data.len() + 1);
                match kind % 5 {
                    0 => data.truncate(at),
                    1 => data.insert(at, b),
                    2 if at < data.len() => data[at] = b % 4,
                    3 if at < data.len() => data[at] ^= 1 << (b % 8),
                    _ if at < data.len() => data[at] = b,
                    _ => data.push(0),
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
fn chunks_of_the_corpus_pass() {
    assert!(replay("listing_chunk", listing::chunk).unwrap() >= 1000);
}

#[test]
fn requests_of_the_corpus_pass() {
    assert!(replay("listing_request", listing::request).unwrap() >= 200);
}

#[test]
fn a_body_that_panics_is_noticed() {
    let wrong = |data: &[u8]| assert!(data.len() < 100, "planted");
    assert!(replay("listing_chunk", wrong).is_err());
}

/// What a listing sends: names, attributes of a range and of a list, failures, changes, the end.
fn seeds() -> Vec<(&'static str, Builder)> {
    let names = |names: &[&std::ffi::CStr]| {
        let mut builder = Builder::new(FORMAT);
        let mut rows = NameRows::default();
        names.iter().for_each(|name| rows.push(name, Kind::File).unwrap());
        rows.write(0, &mut builder).unwrap();
        builder
    };
    let known = |seconds| Attributes {
        fields: Fields::DEFAULT,
        mode: 0o100_644,
        modified: Timestamp { seconds, nanoseconds: 5 },
        ..Attributes::default()
    };
    let mut range = names(&[c"a", c"bb", c"\xff\xfe", c"d"]);
    let mut rows = AttributeRows::new(Fields::DEFAULT);
    (0..4).for_each(|id| rows.push(id, &known(i64::from(id))));
    rows.write(&mut range).unwrap();
    let mut list = names(&[c"a", c"bb", c"c"]);
    let mut rows = AttributeRows::new(Fields::DEFAULT | Fields::TARGET | Fields::MIME_TYPE);
    [2, 0].iter().for_each(|id| rows.push(*id, &known(i64::MAX)));
    rows.push_failure(1, Kind::File, 2);
    rows.write(&mut list).unwrap();
    let mut changes = names(&[c"a", c"bb", c"c"]);
    removed(&[0], &mut changes).unwrap();
    renamed(&[(1, c"other")], &mut changes).unwrap();
    done(2, &mut changes).unwrap();
    let mut failed = Builder::new(FORMAT);
    let path = PathBuf::from("/a/b");
    failure(&Failure { path, step: Step::Read, number: 5 }, &mut failed).unwrap();
    done(0, &mut failed).unwrap();
    let mut kinds = names(&[c"a", c"bb"]);
    let mut rows = AttributeRows::new(Fields::from_bits(1 << 15).unwrap());
    rows.push(1, &Attributes { kind: Kind::Directory, ..Attributes::default() });
    rows.write(&mut kinds).unwrap();
    vec![
        ("names", names(&[c"one", c"two three"])),
        ("range", range),
        ("list", list),
        ("changes", changes),
        ("failed", failed),
        ("kinds", kinds),
    ]
}

#[test]
fn the_seeds_of_the_corpus_are_what_is_sent_today() {
    for (name, builder) in seeds() {
        let path = corpus("listing_chunk").join(name);
        if std::env::var_os("WRITE_CORPUS").is_some() {
            std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .open(&path)
                .and_then(|mut file| std::io::Write::write_all(&mut file, builder.bytes()))
                .unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), builder.bytes(), "{name}: the format changed");
    }
}
