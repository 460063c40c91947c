//! Thumbnails: PNG files that name their document in a text chunk, and whose names are hashes of its URI.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use flate2::read::ZlibDecoder;
use md5::{Digest, Md5};

use super::name::DocumentName;

/// A thumbnail that is larger is none.
const MOST_BYTES: usize = 16 << 20;
/// The longest URI that is unpacked.
const MOST_URI: u64 = 64 << 10;
/// The key of the text.
const KEY: &[u8] = b"Thumb::URI\0";

/// Returns the URI that a thumbnail is of: the text `Thumb::URI` of its PNG file, packed or not, as GTK and Qt write it.
pub(super) fn uri_of(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut rest = bytes.strip_prefix(b"\x89PNG\r\n\x1a\n")?;
    if bytes.len() > MOST_BYTES {
        return None;
    }
    loop {
        let len = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?);
        let len = usize::try_from(len).ok()?;
        let (kind, data) = (rest.get(4..8)?, rest.get(8..)?.get(..len)?);
        if let Some(text) = data.strip_prefix(KEY)
            && let Some(uri) = text_of(kind, text)
        {
            return Some(uri);
        }
        rest = rest.get(12usize.checked_add(len)?..)?;
    }
}

/// Reads what is behind the key of a chunk of text; `None` if it is none.
fn text_of(kind: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    match kind {
        b"tEXt" => Some(data.to_vec()),
        // The method of packing, of which there is one.
        b"zTXt" => unpacked(data.strip_prefix(b"\0")?),
        // Whether it is packed, the method, a language, the key in that, each ended by a zero.
        b"iTXt" => {
            let (is_packed, rest) = (*data.first()? == 1, data.get(2..)?);
            let mut parts = rest.splitn(3, |byte| *byte == 0);
            let text = parts.nth(2)?;
            if is_packed { unpacked(text) } else { Some(text.to_vec()) }
        }
        _ => None,
    }
}

fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    ZlibDecoder::new(packed).take(MOST_URI).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Returns the names of the files in which thumbnails of these documents are, by GLib's and by Qt's way of writing them.
pub(super) fn file_names(documents: &BTreeSet<DocumentName>) -> BTreeSet<String> {
    let uris = documents.iter().filter_map(DocumentName::to_uri).flat_map(|uri| {
        let other = uri.other_spelling();
        std::iter::once(uri).chain(other)
    });
    uris.map(|uri| file_name(uri.as_str().as_bytes())).collect()
}

fn file_name(uri: &[u8]) -> String {
    let hash = Md5::digest(uri);
    let mut name: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    name.push_str(".png");
    name
}

/// Whether a file has a name of these.
pub(super) fn is_named(file: &Path, names: &BTreeSet<String>) -> bool {
    names.contains(&super::files::file_name(file))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const URI: &[u8] = b"file:///home/u/a%20long%20name%20that%20Qt%20packs.png";

    fn chunk(kind: &[u8], data: &[u8]) -> Vec<u8> {
        let len = u32::try_from(data.len()).unwrap().to_be_bytes();
        [&len[..], kind, data, &[0; 4]].concat()
    }

    fn image(chunks: &[Vec<u8>]) -> Vec<u8> {
        [&b"\x89PNG\r\n\x1a\n"[..], &chunk(b"IHDR", &[0; 13]), &chunks.concat()].concat()
    }

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_thumbnail_names_its_document_however_it_is_written() {
        let key = |text: &[u8]| [KEY, text].concat();
        for (kind, data) in [
            (&b"tEXt"[..], key(URI)),
            (b"zTXt", key(&[&b"\0"[..], &packed(URI)].concat())),
            (b"iTXt", key(&[&b"\0\0\0\0"[..], URI].concat())),
            (b"iTXt", key(&[&b"\x01\0en\0x\0"[..], &packed(URI)].concat())),
        ] {
            let whole = image(&[chunk(b"tEXt", b"Software\0x"), chunk(kind, &data)]);
            assert_eq!(uri_of(&whole).as_deref(), Some(URI), "{}", String::from_utf8_lossy(kind));
            for len in 0..whole.len() - 4 {
                assert_eq!(uri_of(&whole[..len]), None, "{len}");
            }
        }
        assert_eq!(uri_of(&[&image(&[])[..8], &[0xff; 30]].concat()), None);
        assert_eq!(uri_of(&image(&[chunk(b"zTXt", &key(b"\0damaged"))])), None);
    }

    #[test]
    fn a_thumbnail_is_known_by_its_name() {
        // What `gio info` and KDE's file manager call it.
        assert_eq!(
            file_name(b"file:///home/jens/photos/me.png"),
            "c6ee772d9e49320e97ec29a7eb5b1697.png"
        );
        let names = file_names(&[DocumentName::of_path(Path::new("/a;b"))].into());
        assert_eq!(names.len(), 2);
        assert!(names.contains(&file_name(b"file:///a;b")));
        assert!(names.contains(&file_name(b"file:///a%3Bb")));
    }
}
