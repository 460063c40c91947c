//! Replays the bodies of the listing's fuzz targets over the committed corpus, and over small changes to it.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may fail where it stands"
)]

#[path = "../../../fuzz/src/listing.rs"]
#[expect(unreachable_pub, reason = "the file belongs to another crate")]
mod bodies;
#[path = "../../../fuzz/replay.rs"]
#[expect(unreachable_pub, reason = "the file belongs to several tests")]
mod replay;

use std::path::PathBuf;

use replay::{corpus, replay};
use store::stream::StreamBuilder;
use unjank_listing::record::{AttributeRows, FORMAT, NameRows, done, failure, removed, renamed};
use unjank_listing::{AttributeSet, Attributes, EntryKind, Failure, FileTime, ListingStep};

/// Numbers of records.
const SMALL: [u8; 4] = [0, 1, 2, 3];

#[test]
fn chunks_of_the_corpus_pass() {
    assert!(replay("listing_chunk", 200, &SMALL, bodies::chunk).unwrap() >= 1000);
}

#[test]
fn requests_of_the_corpus_pass() {
    assert!(replay("listing_request", 200, &SMALL, bodies::request).unwrap() >= 200);
}

#[test]
fn a_body_that_panics_is_noticed() {
    let wrong = |data: &[u8]| assert!(data.len() < 100, "planted");
    assert!(replay("listing_chunk", 200, &SMALL, wrong).is_err());
}

/// What a listing sends: names, attributes of a range and of a list, failures, changes, the end.
fn seeds() -> Vec<(&'static str, StreamBuilder)> {
    let names = |names: &[&std::ffi::CStr]| {
        let mut builder = StreamBuilder::new(FORMAT);
        let mut rows = NameRows::default();
        names.iter().for_each(|name| rows.push(name, EntryKind::File).unwrap());
        rows.write(0, &mut builder).unwrap();
        builder
    };
    let known = |seconds| Attributes {
        fields: AttributeSet::DEFAULT,
        mode: 0o100_644,
        modified: FileTime { seconds, nanoseconds: 5 },
        ..Attributes::default()
    };
    let mut range = names(&[c"a", c"bb", c"\xff\xfe", c"d"]);
    let mut rows = AttributeRows::new(AttributeSet::DEFAULT);
    (0..4).for_each(|id| rows.push(id, &known(i64::from(id))));
    rows.write(&mut range).unwrap();
    let mut list = names(&[c"a", c"bb", c"c"]);
    let mut rows =
        AttributeRows::new(AttributeSet::DEFAULT | AttributeSet::TARGET | AttributeSet::MIME_TYPE);
    [2, 0].iter().for_each(|id| rows.push(*id, &known(i64::MAX)));
    rows.push_failure(1, EntryKind::File, 2);
    rows.write(&mut list).unwrap();
    let mut changes = names(&[c"a", c"bb", c"c"]);
    removed(&[0], &mut changes).unwrap();
    renamed(&[(1, c"other")], &mut changes).unwrap();
    done(2, &mut changes).unwrap();
    let mut failed = StreamBuilder::new(FORMAT);
    let path = PathBuf::from("/a/b");
    failure(&Failure { path, step: ListingStep::Read, number: 5 }, &mut failed).unwrap();
    done(0, &mut failed).unwrap();
    let mut kinds = names(&[c"a", c"bb"]);
    let mut rows = AttributeRows::new(AttributeSet::from_bits(1 << 15).unwrap());
    rows.push(1, &Attributes { kind: EntryKind::Directory, ..Attributes::default() });
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
