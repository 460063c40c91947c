//! Streams are read back, and damaged ones are not misread.

use super::*;
use proptest::prelude::*;

const FORMAT: StreamFormat = StreamFormat { kind: *b"test", version: 3 };

fn written(records: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut writer = StreamWriter::start(Vec::new(), FORMAT).unwrap();
    for (tag, payload) in records {
        writer.append(*tag, payload).unwrap();
    }
    writer.into_inner()
}

fn built(records: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut builder = StreamBuilder::new(FORMAT);
    for (tag, payload) in records {
        builder.record(*tag, |bytes| bytes.extend_from_slice(payload)).unwrap();
    }
    builder.bytes().to_vec()
}

fn read(bytes: &[u8]) -> (Vec<(u32, Vec<u8>)>, Records<'_>) {
    let mut records = Records::of(bytes, FORMAT).unwrap();
    let found = records.by_ref().map(|record| (record.tag, record.payload.to_vec())).collect();
    (found, records)
}

fn some() -> impl Strategy<Value = Vec<(u32, Vec<u8>)>> {
    prop::collection::vec((any::<u32>(), prop::collection::vec(any::<u8>(), 0..40)), 0..8)
}

proptest! {
    #[test]
    fn what_was_written_is_read_back(records in some()) {
        for bytes in [written(&records), built(&records)] {
            let (found, end) = read(&bytes);
            prop_assert_eq!(&found, &records);
            prop_assert!(!end.is_torn() && end.position() == bytes.len());
        }
    }

    #[test]
    fn a_torn_tail_is_cut_and_the_rest_is_read(records in some(), keep in any::<prop::sample::Index>()) {
        let whole = written(&records);
        let length = HEADER + keep.index(whole.len() - HEADER + 1);
        let (found, end) = read(&whole[..length]);
        prop_assert_eq!(&found[..], &records[..found.len()]);
        prop_assert!(end.position() <= length);
        // A writer goes on behind the last whole record.
        let mut bytes = whole[..end.position()].to_vec();
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        let mut writer = StreamWriter::resume(bytes);
        writer.append(77, b"after").unwrap();
        let bytes = writer.into_inner();
        let (again, end) = read(&bytes);
        prop_assert_eq!(again.len(), found.len() + 1);
        prop_assert!(!end.is_torn());
    }

    #[test]
    fn a_changed_byte_of_a_file_is_never_read_as_something_else(
        records in some(), at in any::<prop::sample::Index>(), change in 1u8..
    ) {
        let mut bytes = written(&records);
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        if at >= HEADER {
            let (found, _) = read(&bytes);
            prop_assert_eq!(&found[..], &records[..found.len()]);
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut stream = built(&[]);
        stream.extend_from_slice(&bytes);
        let (found, end) = read(&stream);
        prop_assert!(found.len() <= bytes.len() / HEADER && end.position() <= stream.len());
        let _ = Records::of(&bytes, FORMAT);
    }
}

#[test]
fn other_streams_are_told_apart() {
    let bytes = built(&[]);
    assert_eq!(Records::of(b"short", FORMAT).err(), Some(StreamError::NotAStream));
    let other = Records::of(&bytes, StreamFormat { kind: *b"else", ..FORMAT }).unwrap_err();
    assert_eq!(other.to_string(), "it is a stream of \"test\", not of \"else\"");
    let later = Records::of(&bytes, StreamFormat { version: 4, ..FORMAT }).unwrap_err();
    assert_eq!(later, StreamError::UnknownVersion { version: 3 });
}

#[test]
fn a_chunk_crosses_in_sealed_memory_and_a_torn_one_is_refused() {
    let mut builder = StreamBuilder::new(FORMAT);
    builder.record(5, |bytes| bytes.extend_from_slice(b"inside")).unwrap();
    let file = builder.seal("test").unwrap();
    let chunk = Chunk::sealed(&file, FORMAT, 1 << 20).unwrap();
    let record = chunk.records().unwrap().next().unwrap();
    assert_eq!((record.tag, record.payload), (5, &b"inside"[..]));

    let torn = builder.bytes()[..builder.bytes().len() - 4].to_vec().into_boxed_slice();
    assert!(matches!(Chunk::own(torn, FORMAT), Err(ChunkError::Torn { at: 16 })));
    let open = sys::memfd::create("open").unwrap();
    assert!(matches!(Chunk::sealed(&open, FORMAT, 9), Err(ChunkError::NotMapped(_))));
}
