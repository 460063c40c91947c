//! What the shared file held when we last knew it: the base of the three-way merge. It names no document.
//!
//! ```text
//! "unjankRB" | version u32 | 16 bytes of SHA-256 over the rest | CBOR
//! CBOR: [salt, linked, [[mark, published, our first, modified, visited, [[tag, count, modified]…]]…]], in the file's order
//! ```

use std::collections::HashMap;

use minicbor::data::Type;
use minicbor::decode::{Decoder, Error};
use minicbor::encode::Encoder;
use sha2::{Digest, Sha256};

use crate::recents::{Entry, Mark, Salt, Timestamp};

const MAGIC: &[u8; 8] = b"unjankRB";
const VERSION: u32 = 1;
const HEAD: usize = 8 + 4 + 16;

/// The entries of the shared file, by the marks of their URIs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) salt: Salt,
    /// What was opened until then has its links.
    pub(super) linked: Timestamp,
    pub(super) entries: HashMap<Mark, Known>,
}

/// What is known of an entry of the shared file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// Its place in the file.
    pub(super) order: usize,
    /// Since when the file has had it like this.
    pub(super) published: Timestamp,
    /// Who wrote it like this.
    pub(super) author: Author,
    modified: Timestamp,
    visited: Timestamp,
    applications: Vec<KnownApplication>,
}

/// Who wrote an entry like this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    /// We, and first at this time: a program that has it must have read the file since.
    We(Timestamp),
    /// Another program, which may have it without reading.
    Another,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownApplication {
    tag: u32,
    count: u32,
    modified: Timestamp,
}

/// How an entry of the file compares to what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// It is the one that is known.
    Same,
    /// It has all that is known, and more.
    Later,
    /// It lacks something: whoever wrote it had not read what is known.
    Earlier,
    /// Both: its writer used the document without having read what is known.
    Apart,
}

impl Version {
    /// Tells whether it has something that is not known.
    pub(super) fn is_news(self) -> bool {
        matches!(self, Version::Later | Version::Apart)
    }
}

impl Known {
    /// Takes down an entry of the file.
    pub(super) fn of(entry: &Entry, order: usize, published: Timestamp, author: Author) -> Known {
        let applications = entry.applications.iter().map(|application| KnownApplication {
            tag: tag(&application.name),
            count: application.count,
            modified: application.modified,
        });
        Known {
            order,
            published,
            author,
            modified: entry.modified,
            visited: entry.visited,
            applications: applications.collect(),
        }
    }

    /// Returns the same in another place of the file.
    pub(super) fn moved_to(&self, order: usize) -> Known {
        Known { order, ..self.clone() }
    }

    /// Returns when the entry was used last.
    pub(super) fn used(&self) -> Timestamp {
        self.modified.max(self.visited)
    }

    /// Compares an entry of the file to this.
    pub(super) fn compare(&self, entry: &Entry) -> Version {
        let mut lacks = entry.modified < self.modified || entry.visited < self.visited;
        let mut has_more = entry.modified > self.modified || entry.visited > self.visited;
        let mut found = 0;
        for application in &entry.applications {
            let tag = tag(&application.name);
            let Some(known) = self.applications.iter().find(|known| known.tag == tag) else {
                has_more = true;
                continue;
            };
            found += 1;
            has_more |= application.modified > known.modified || application.count > known.count;
            // Who had read what is known would have counted on from there.
            lacks |= application.modified < known.modified
                || application.count < known.count
                || (application.count == known.count && application.modified > known.modified);
        }
        lacks |= found < self.applications.len();
        match (lacks, has_more) {
            (false, false) => Version::Same,
            (false, true) => Version::Later,
            (true, false) => Version::Earlier,
            (true, true) => Version::Apart,
        }
    }

    /// Returns how often an application had opened the document; `None` if it had not.
    pub(super) fn count(&self, application: &str) -> Option<u32> {
        let tag = tag(application);
        self.applications.iter().find(|known| known.tag == tag).map(|known| known.count)
    }
}

impl Base {
    /// Returns the bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + 80 * self.entries.len() + 64);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 16]);
        let mut to = Encoder::new(bytes);
        // Writing into a vector does not fail.
        let _ = self.write(&mut to);
        let mut bytes = to.into_writer();
        let sum = checksum(&bytes[HEAD..]);
        bytes[12..HEAD].copy_from_slice(&sum);
        bytes
    }

    fn write(
        &self,
        to: &mut Encoder<Vec<u8>>,
    ) -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_unstable_by_key(|(_, known)| known.order);
        to.array(3)?.bytes(&self.salt.0)?.i64(self.linked.0)?.array(entries.len() as u64)?;
        for (mark, known) in entries {
            to.array(6)?.bytes(&mark.0)?.i64(known.published.0)?;
            match known.author {
                Author::We(since) => to.i64(since.0)?,
                Author::Another => to.null()?,
            };
            to.i64(known.modified.0)?.i64(known.visited.0)?;
            to.array(known.applications.len() as u64)?;
            for application in &known.applications {
                to.array(3)?.u32(application.tag)?.u32(application.count)?;
                to.i64(application.modified.0)?;
            }
        }
        Ok(())
    }

    /// Reads the bytes; `None` if they are damaged or of another version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Base> {
        let rest = bytes.strip_prefix(MAGIC)?.strip_prefix(&VERSION.to_le_bytes())?;
        let (sum, body) = rest.split_at_checked(16)?;
        if sum != checksum(body) {
            return None;
        }
        read(&mut Decoder::new(body)).ok()
    }
}

fn read(from: &mut Decoder<'_>) -> Result<Base, Error> {
    let sixteen =
        |bytes: &[u8]| <[u8; 16]>::try_from(bytes).map_err(|_| Error::message("16 bytes"));
    let count = |from: &mut Decoder<'_>| from.array()?.ok_or_else(|| Error::message("no length"));
    count(from)?;
    let salt = Salt(sixteen(from.bytes()?)?);
    let linked = Timestamp(from.i64()?);
    let mut entries = HashMap::new();
    for order in 0..count(from)? {
        count(from)?;
        let mark = Mark(sixteen(from.bytes()?)?);
        let published = Timestamp(from.i64()?);
        let author = if from.datatype()? == Type::Null {
            from.null()?;
            Author::Another
        } else {
            Author::We(Timestamp(from.i64()?))
        };
        let (modified, visited) = (Timestamp(from.i64()?), Timestamp(from.i64()?));
        let mut applications = Vec::new();
        for _ in 0..count(from)? {
            count(from)?;
            applications.push(KnownApplication {
                tag: from.u32()?,
                count: from.u32()?,
                modified: Timestamp(from.i64()?),
            });
        }
        let order = usize::try_from(order).unwrap_or(usize::MAX);
        let known = Known { order, published, author, modified, visited, applications };
        entries.insert(mark, known);
    }
    Ok(Base { salt, linked, entries })
}

fn checksum(body: &[u8]) -> [u8; 16] {
    let mut sum = [0; 16];
    sum.copy_from_slice(&Sha256::digest(body)[..16]);
    sum
}

/// Returns 32 bits that tell the applications of one document from one another (FNV-1a).
fn tag(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recents::{Application, Privacy, Uri};

    fn entry() -> Entry {
        let application = |name: &str| Application {
            name: name.into(),
            exec: "x".into(),
            count: 2,
            modified: Timestamp(5),
        };
        Entry {
            uri: Uri::exact("a:b").unwrap(),
            mime: None,
            groups: Vec::new(),
            title: None,
            description: None,
            privacy: Privacy::Public,
            added: Timestamp(1),
            modified: Timestamp(5),
            visited: Timestamp(6),
            applications: vec![application("kate"), application("vi")],
        }
    }

    #[test]
    fn a_base_is_read_as_it_was_written_or_not_at_all() {
        let salt = Salt([4; 16]);
        let mut base = Base { salt, linked: Timestamp(3), entries: HashMap::new() };
        for (number, author) in [(0_u8, Author::Another), (1, Author::We(Timestamp(4)))] {
            let known = Known::of(&entry(), number.into(), Timestamp(number.into()), author);
            base.entries.insert(Mark([number; 16]), known);
        }
        let bytes = base.encode();
        assert_eq!(Base::decode(&bytes), Some(base));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Base::decode(&damaged), None, "{at}");
            assert_eq!(Base::decode(&bytes[..at]), None, "{at}");
        }
    }

    #[test]
    fn what_lacks_something_is_earlier() {
        let known = Known::of(&entry(), 0, Timestamp(9), Author::Another);
        assert_eq!(known.compare(&entry()), Version::Same);
        let changed = |change: fn(&mut Entry)| {
            let mut entry = entry();
            change(&mut entry);
            known.compare(&entry)
        };
        assert_eq!(changed(|e| e.visited = Timestamp(7)), Version::Later);
        assert_eq!(changed(|e| e.applications[0].count = 3), Version::Later);
        assert_eq!(changed(|e| e.applications[1].modified = Timestamp(4)), Version::Earlier);
        assert_eq!(changed(|e| e.applications.truncate(1)), Version::Earlier);
        assert_eq!(changed(|e| e.modified = Timestamp(4)), Version::Earlier);
        assert_eq!(changed(|e| e.applications[0].modified = Timestamp(7)), Version::Apart);
        assert_eq!(changed(|e| e.title = Some("t".into())), Version::Same);
    }
}
