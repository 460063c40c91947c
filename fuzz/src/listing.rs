//! Listing: what chunks of any bytes must keep to.

use std::sync::Arc;

use listing::record::{FORMAT, request_of};
use listing::{Entries, ListingLimits, StreamFault, Update};
use store::stream::{Chunk, Records, StreamBuilder};

/// A chunk that whoever lists sent: the whole stream, and once more as records behind a header that is right.
pub fn chunk(data: &[u8]) {
    let mut with_header = StreamBuilder::new(FORMAT).into_bytes().into_vec();
    with_header.extend_from_slice(data);
    for bytes in [data.to_vec(), with_header] {
        let Ok(chunk) = Chunk::own(bytes.into_boxed_slice(), FORMAT) else { continue };
        let mut entries = Entries::new(ListingLimits { entries: 100_000, bytes: 1 << 24 });
        take(&mut entries, chunk);
    }
}

fn take(entries: &mut Entries, chunk: Chunk) {
    let length = chunk.bytes().len();
    let chunk = Arc::new(chunk);
    // Twice: what was right the first time meets entries that are there already.
    for _ in 0..2 {
        let taken = entries.take(&chunk);
        assert!(!matches!(taken, Err(StreamFault::Memory(_))), "a chunk was looked through before");
        let count = entries.len() as usize;
        assert!(count <= 2 * length, "{count} entries of {length} bytes");
        assert!(entries.present() <= entries.len());
        for id in (0..entries.len()).take(1000) {
            let name = entries.name(id);
            assert!(!name.is_empty() && !name.contains(&b'/') && !name.contains(&0), "{name:?}");
            let known = entries.attributes(id);
            assert!(known.is_none() || entries.failure(id).is_none(), "known and failed");
            for number in known.map(|known| [known.target, known.mime_type]).into_iter().flatten() {
                let _ = entries.string(number);
            }
        }
        for update in taken.into_iter().flatten() {
            if let Update::Names(range) = update {
                assert!(range.end <= entries.len());
            }
        }
        let _ = (entries.user_name(0), entries.group_name(u32::MAX), entries.string(1));
    }
}

/// A request that whoever asks sent.
pub fn request(data: &[u8]) {
    let _ = request_of(data);
    let Ok(records) = Records::of(data, FORMAT) else { return };
    for record in records {
        if let Ok(request) = request_of(record.payload) {
            assert!(request.path.as_os_str().len() <= data.len());
            assert!(request.mime_directories.len() <= data.len());
        }
    }
}
