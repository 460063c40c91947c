//! Whoever lists may be hostile: what it sends is an error or harmless, never a crash.
#![expect(clippy::disallowed_methods, reason = "a test may panic without a thread")]
#![expect(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a hostile program")]

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use store::stream::{Chunk, StreamBuilder};
use sys::socket::{Full, pair, send};
use unjank_listing::record::{AttributeRows, FORMAT, NameRows, done, removed, renamed};
use unjank_listing::{
    AttributeSet, Attributes, Connection, Entries, EntryKind, FileTime, Listing, ListingError,
    ListingLimits, ListingMessage, ListingRequest, StreamFault, Update,
};

const NAMES: u32 = 1;
const ATTRIBUTES: u32 = 2;
const STRINGS: u32 = 3;

fn start() -> (Listing, OwnedFd) {
    start_with(ListingRequest::of(Path::new("/dir")))
}

fn start_with(request: ListingRequest) -> (Listing, OwnedFd) {
    let (here, there) = pair().unwrap();
    (Listing::over(here, &request).unwrap(), there)
}

/// What a client says of a message; everything that arrived before can still be read.
fn fault(mut listing: Listing) -> String {
    loop {
        match listing.next(Some(Duration::from_secs(50))) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("nothing was wrong"),
            Err(ListingError::Hostile { fault, .. }) => {
                for id in 0..listing.len() + 2 {
                    let _ = (listing.name(id), listing.kind(id), listing.attributes(id));
                }
                assert!(matches!(listing.next(None), Err(ListingError::Cancelled { .. })));
                return fault.to_string();
            }
            Err(other) => panic!("{other}"),
        }
    }
}

fn names(first: u32, names: &[&std::ffi::CStr]) -> StreamBuilder {
    let mut builder = StreamBuilder::new(FORMAT);
    let mut rows = NameRows::default();
    names.iter().for_each(|name| rows.push(name, EntryKind::File).unwrap());
    rows.write(first, &mut builder).unwrap();
    builder
}

/// A names record as it is, with nothing checked by whoever writes it.
fn raw_names(first: u32, count: u32, kinds: &[u8], ends: &[u32], arena: &[u8]) -> StreamBuilder {
    let mut builder = StreamBuilder::new(FORMAT);
    builder
        .record(NAMES, |bytes| {
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&count.to_le_bytes());
            bytes.extend_from_slice(kinds);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            ends.iter().for_each(|end| bytes.extend_from_slice(&end.to_le_bytes()));
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            bytes.extend_from_slice(arena);
        })
        .unwrap();
    builder
}

fn raw(tag: u32, payload: &[u8]) -> StreamBuilder {
    let mut builder = StreamBuilder::new(FORMAT);
    builder.record(tag, |bytes| bytes.extend_from_slice(payload)).unwrap();
    builder
}

#[test]
fn names_that_lie_are_refused() {
    let cases: Vec<(StreamBuilder, &str)> = vec![
        (raw_names(0, 1, &[8], &[2], b"a\0"), ""),
        (raw_names(1, 1, &[8], &[2], b"a\0"), "a record of names has a wrong id"),
        (raw_names(0, 2, &[8, 8], &[2, 1], b"a\0"), "a record of names has a wrong offset"),
        (raw_names(0, 1, &[8], &[200], b"a\0"), "a record of names has a wrong offset"),
        (raw_names(0, 1, &[8], &[1], b"a\0"), "a record of names has a wrong offset"),
        (raw_names(0, 1, &[8], &[2], b"ab"), "a record of names has a wrong name"),
        (raw_names(0, 1, &[8], &[1], b"\0"), "a record of names has a wrong name"),
        (raw_names(0, 1, &[8], &[0], b""), "a record of names has a wrong name"),
        (raw_names(0, 1, &[8], &[4], b"a/b\0"), "a record of names has a wrong name"),
        (raw_names(0, 1, &[8], &[4], b"a\0b\0"), "a record of names has a wrong name"),
        (raw_names(0, 1, &[8], &[3], b"..\0"), "a record of names has a wrong name"),
        (raw_names(0, 1, &[8], &[2], b".\0"), "a record of names has a wrong name"),
        (raw_names(0, u32::MAX, &[8], &[2], b"a\0"), "a record of names has the wrong length"),
        (raw_names(0, 9, &[8], &[2], b"a\0"), "a record of names has the wrong length"),
        (raw(NAMES, b""), "a record of names has the wrong length"),
    ];
    for (builder, expected) in cases {
        let (mut listing, there) = start();
        send(&there, builder.bytes(), None, Full::Wait).unwrap();
        if expected.is_empty() {
            assert_eq!(listing.next(None).unwrap(), Some(Update::Names(0..1)));
            assert_eq!(listing.name(0), b"a");
            continue;
        }
        assert_eq!(fault(listing), expected);
    }
}

#[test]
fn attributes_that_lie_are_refused() {
    let header = |numbers: &[u32]| -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    };
    let size = AttributeSet::SIZE.bits();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (header(&[0, 1, size, 0, 0, 0, 7, 0]), ""),
        (header(&[0, 2, size, 0, 0, 0, 7, 0, 7, 0]), "there is no entry 1"),
        (header(&[1, 1, size, 0, 0, 0, 7, 0]), "there is no entry 1"),
        (header(&[u32::MAX, 2, size, 0, 0, 0, 7, 0]), "a record of attributes has a wrong count"),
        (header(&[0, 1, 1 << 31, 0, 0, 0]), "a record of attributes has a wrong field"),
        (header(&[0, 1, size, 2, 0, 0, 7, 0]), "a record of attributes has a wrong flag"),
        (header(&[0, 1, size, 0, 0, 0]), "a record of attributes has the wrong length"),
        (header(&[0, 1, size, 0, 0, 0, 7, 0, 0, 0]), "a record of attributes has the wrong length"),
        (header(&[0, 1, size, 0, 9, 0, 7, 0]), "a record of attributes has the wrong length"),
        (
            header(&[0, 1, size, 0, 0, u32::MAX, 7, 0]),
            "a record of attributes has the wrong length",
        ),
        (header(&[0, 1, size, 0, 0, 1, 7, 0, 5, 2]), "a record of attributes has a wrong row"),
        (
            header(&[0, 1, size, 0, 0, 2, 7, 0, 0, 2, 0, 2]),
            "a record of attributes has a wrong row",
        ),
        (header(&[0, u32::MAX, 0, 0, 0, 0]), "there are too many records in a chunk"),
        (header(&[0]), "a record of attributes has the wrong length"),
    ];
    for (payload, expected) in cases {
        let (mut listing, there) = start();
        send(&there, names(0, &[c"a"]).bytes(), None, Full::Wait).unwrap();
        send(&there, raw(ATTRIBUTES, &payload).bytes(), None, Full::Wait).unwrap();
        if expected.is_empty() {
            listing.next(None).unwrap();
            listing.next(None).unwrap();
            assert_eq!(listing.attributes(0).unwrap().size, 7);
            continue;
        }
        assert_eq!(fault(listing), expected);
    }
}

#[test]
fn memory_that_could_change_or_is_cut_off_is_refused() {
    let many: Vec<_> = (0..5000).map(|_| c"a name of some length").collect();
    let whole = names(0, &many);
    let memory = |bytes: &[u8]| {
        let mut file = sys::memfd::create("hostile").unwrap();
        file.write_all(bytes).unwrap();
        file
    };
    let sealed = |bytes: &[u8]| {
        let file = memory(bytes);
        sys::memfd::seal(&file).unwrap();
        file
    };
    let hole = sys::memfd::create("hole").unwrap();
    hole.set_len(200 << 20).unwrap();
    sys::memfd::seal(&hole).unwrap();
    let not_mapped = "cannot map the memory that was passed";
    let cases: Vec<(File, &str)> = vec![
        (sealed(whole.bytes()), ""),
        (memory(whole.bytes()), not_mapped),
        (hole, not_mapped),
        (tempfile::tempfile().unwrap(), not_mapped),
        (File::open("/dev/zero").unwrap(), not_mapped),
        (File::from(pair().unwrap().0), not_mapped),
        (sealed(b""), "cannot read the memory that was passed"),
        (sealed(&whole.bytes()[..100]), "the memory that was passed is torn off at byte 16"),
        (sealed(&[0; 4096]), "cannot read the memory that was passed"),
    ];
    for (file, expected) in cases {
        let (mut listing, there) = start();
        send(&there, &[0], Some(file.as_fd()), Full::Wait).unwrap();
        if expected.is_empty() {
            assert_eq!(listing.next(None).unwrap(), Some(Update::Names(0..5000)));
            continue;
        }
        assert_eq!(fault(listing), expected);
    }
}

#[test]
fn messages_that_are_none_are_refused() {
    let (listing, there) = start();
    send(&there, b"anything", None, Full::Wait).unwrap();
    assert_eq!(fault(listing), "cannot read the memory that was passed");

    let (listing, there) = start();
    send(&there, raw(77, b"").bytes(), None, Full::Wait).unwrap();
    assert_eq!(fault(listing), "a record with tag 77 was not expected");

    let (listing, there) = start();
    let mut builder = StreamBuilder::new(FORMAT);
    done(5, &mut builder).unwrap();
    send(&there, builder.bytes(), None, Full::Wait).unwrap();
    assert_eq!(fault(listing), "a record of the end has a wrong number of entries");

    let (listing, there) = start();
    let mut builder = StreamBuilder::new(FORMAT);
    removed(&[3], &mut builder).unwrap();
    send(&there, builder.bytes(), None, Full::Wait).unwrap();
    assert_eq!(fault(listing), "there is no entry 3");

    let (listing, there) = start();
    let mut builder = StreamBuilder::new(FORMAT);
    renamed(&[(0, c"b")], &mut builder).unwrap();
    send(&there, builder.bytes(), None, Full::Wait).unwrap();
    assert_eq!(fault(listing), "there is no entry 0");

    // Longer than any message, or with several descriptors: the system says so, and it is over.
    let (mut listing, there) = start();
    send(&there, &vec![7; 100_000], None, Full::Wait).unwrap();
    assert!(matches!(listing.next(None), Err(ListingError::Disconnected { .. })));
}

#[test]
fn endless_data_ends_at_the_limit() {
    let mut request = ListingRequest::of(Path::new("/dir"));
    request.limits = ListingLimits { entries: 10_000, bytes: 1 << 30 };
    let (listing, there) = start_with(request.clone());
    let endless = std::thread::spawn(move || {
        let many: Vec<_> = (0..1000).map(|_| c"again").collect();
        (0u32..).all(|part| Connection::send_to(&there, &names(1000 * part, &many)))
    });
    assert_eq!(fault(listing), "there are too many names");
    assert!(!endless.join().unwrap(), "the sender sees that nobody listens");

    // Strings that nobody speaks of.
    request.limits = ListingLimits { entries: 10_000, bytes: 1 << 20 };
    let (listing, there) = start_with(request);
    let endless = std::thread::spawn(move || {
        let string = |number: u32| {
            let mut payload =
                [number.to_le_bytes(), 1u32.to_le_bytes(), 8u32.to_le_bytes()].concat();
            payload.extend_from_slice(&[0; 4]);
            payload.extend_from_slice(b"a string");
            raw(STRINGS, &payload)
        };
        (1..).all(|number| Connection::send_to(&there, &string(number)))
    });
    assert_eq!(fault(listing), "there are too many bytes");
    assert!(!endless.join().unwrap());
}

#[test]
fn attributes_that_come_anew_take_the_place_of_those_before() {
    let mut entries = Entries::new(ListingLimits { entries: 10, bytes: 4096 });
    let take = |entries: &mut Entries, builder: &StreamBuilder| {
        entries.take(ListingMessage::of(builder).unwrap().chunk()).unwrap();
    };
    take(&mut entries, &names(0, &[c"a", c"b", c"c"]));
    for size in 0..10_000 {
        let mut rows = AttributeRows::new(AttributeSet::SIZE);
        let known = Attributes { fields: AttributeSet::SIZE, size, ..Attributes::default() };
        // All of them once, then one, then two, again and again.
        let ids: &[u32] =
            if size == 0 { &[0, 1, 2] } else { [&[1][..], &[2, 0]][(size % 2) as usize] };
        ids.iter().for_each(|id| rows.push(*id, &known));
        let mut builder = StreamBuilder::new(FORMAT);
        rows.write(&mut builder).unwrap();
        take(&mut entries, &builder);
        assert!(ids.iter().all(|id| entries.attributes(*id).unwrap().size == size));
    }
    let sizes: Vec<_> = (0..3).map(|id| entries.attributes(id).unwrap().size).collect();
    assert_eq!(sizes, [9999, 9998, 9999]);
}

#[test]
fn a_chunk_that_makes_work_without_end_is_refused() {
    let (listing, there) = start();
    let many: Vec<_> = (0..10_000).map(|_| c"a").collect();
    assert!(Connection::send_to(&there, &names(0, &many)));
    let mut builder = StreamBuilder::new(FORMAT);
    for _ in 0..1000 {
        // All entries, and nothing of each.
        let header = [0u32, 10_000, 0, 0, 0, 0];
        let payload: Vec<u8> = header.iter().flat_map(|number| number.to_le_bytes()).collect();
        builder.record(ATTRIBUTES, |bytes| bytes.extend_from_slice(&payload)).unwrap();
    }
    assert!(Connection::send_to(&there, &builder));
    assert_eq!(fault(listing), "there are too many records in a chunk");
}

trait SendTo {
    fn send_to(socket: &OwnedFd, builder: &StreamBuilder) -> bool;
}

impl SendTo for Connection {
    fn send_to(socket: &OwnedFd, builder: &StreamBuilder) -> bool {
        Connection::new(socket.try_clone().unwrap()).send(builder).is_ok()
    }
}

fn times() -> impl Strategy<Value = FileTime> {
    let seconds = prop_oneof![any::<i64>(), -4_000_000_000..40_000_000_000i64];
    (seconds, 0..1_000_000_000u32)
        .prop_map(|(seconds, nanoseconds)| FileTime { seconds, nanoseconds })
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let numbers = (any::<u16>(), any::<u64>(), any::<[u32; 2]>(), any::<u64>(), any::<u32>());
    (numbers, prop::array::uniform4(times()), any::<u64>(), any::<[u32; 6]>(), any::<bool>())
        .prop_map(|((mode, size, owner, inode, links), times, blocks, rest, born)| {
            let all = AttributeSet::DEFAULT
                | AttributeSet::LINKS
                | AttributeSet::BLOCKS
                | AttributeSet::DEVICE;
            let all =
                all | AttributeSet::FILE_SYSTEM | AttributeSet::TARGET | AttributeSet::MIME_TYPE;
            Attributes {
                fields: if born { all } else { all.without(AttributeSet::BORN) },
                kind: EntryKind::from_mode(mode),
                mode,
                size,
                user: owner[0],
                group: owner[1],
                modified: times[0],
                accessed: times[1],
                changed: times[2],
                born: if born { times[3] } else { FileTime::default() },
                inode,
                links,
                blocks,
                device: (rest[0], rest[1]),
                file_system: (rest[2], rest[3]),
                target_mode: mode,
                target: rest[4],
                mime_type: rest[5],
            }
        })
}

proptest! {
    #[test]
    fn attributes_come_through_unchanged(
        all in prop::collection::vec(attributes(), 1..40), listed in any::<bool>()
    ) {
        let mut entries = Entries::new(ListingLimits::default());
        let many: Vec<_> = all.iter().map(|_| c"n").collect();
        entries.take(ListingMessage::of(&names(0, &many)).unwrap().chunk()).unwrap();
        let every = all.iter().fold(AttributeSet::NONE, |fields, known| fields | known.fields);
        let mut rows = AttributeRows::new(every | AttributeSet::BORN);
        let ids: Vec<u32> = (0..all.len() as u32).collect();
        let order: Vec<u32> = if listed { ids.into_iter().rev().collect() } else { ids };
        order.iter().for_each(|id| rows.push(*id, &all[*id as usize]));
        let mut builder = StreamBuilder::new(FORMAT);
        rows.write(&mut builder).unwrap();
        entries.take(ListingMessage::of(&builder).unwrap().chunk()).unwrap();
        for (id, known) in (0..).zip(&all) {
            let mut found = entries.attributes(id).unwrap();
            if known.kind == EntryKind::Unknown {
                found.kind = EntryKind::Unknown;
            }
            prop_assert_eq!(&found, known);
        }
    }

    #[test]
    fn a_changed_byte_is_an_error_or_harmless(
        at in any::<prop::sample::Index>(), change in 1u8.., all in attributes()
    ) {
        let mut rows = AttributeRows::new(all.fields);
        (0..3).for_each(|id| rows.push(id, &all));
        rows.push_failure(3, EntryKind::File, 13);
        let mut builder = names(0, &[c"one", c"two", c"three", c"four"]);
        rows.write(&mut builder).unwrap();
        removed(&[2], &mut builder).unwrap();
        renamed(&[(1, c"other")], &mut builder).unwrap();
        done(3, &mut builder).unwrap();
        let mut bytes = builder.bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        if let Ok(chunk) = Chunk::own(bytes.into_boxed_slice(), FORMAT) {
            let mut entries = Entries::new(ListingLimits::default());
            let taken = entries.take(&Arc::new(chunk));
            prop_assert!(!matches!(taken, Err(StreamFault::Memory(_))), "it was looked through");
            for id in 0..entries.len().min(10) {
                let _ = (entries.name(id), entries.attributes(id), entries.failure(id));
            }
        }
    }
}
