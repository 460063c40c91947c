//! What the shared file held when we last knew it: the base of the three-way merge. It names no document.
//!
//! ```text
//! "unjankRB" | version u32 | 16 bytes of SHA-256 over the rest | CBOR
//! CBOR: [salt, linked, read through, [[mark, added, publication]…],
//!        [[mark, kind, since, added, modified, visited, [[tag, count, modified]…]]…]], in the file's order
//! kind: 1 published by us, 2 by another program, 3 dropped by another program's limit
//! ```

use std::collections::HashMap;

use minicbor::decode::{Decoder, Error};
use minicbor::encode::Encoder;
use sha2::{Digest, Sha256};

use super::receipts::{Receipt, Receipts};
use crate::recents::{Entry, List, Mark, Salt, Timestamp};

const MAGIC: &[u8; 8] = b"unjankRB";
const VERSION: u32 = 2;
const HEAD: usize = 8 + 4 + 16;

/// The entries of the shared file, by the marks of their URIs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) salt: Salt,
    /// What was opened until then has its links.
    pub(super) linked: Timestamp,
    /// A version of the file that had everything which was published until then was read by some program.
    pub(super) read_through: Timestamp,
    /// By what the versions that we wrote are told apart.
    pub(super) receipts: Receipts,
    pub(super) entries: HashMap<Mark, Known>,
}

/// What is known of an entry of the shared file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// Its place in the file.
    pub(super) order: usize,
    pub(super) publication: Publication,
    /// When it came, as the file says.
    pub(super) added: Timestamp,
    modified: Timestamp,
    visited: Timestamp,
    applications: Vec<KnownApplication>,
}

/// Since when the file has had an entry like this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Publication {
    /// Since we wrote a version with it, whose receipts tell who has read it.
    Ours(Timestamp),
    /// Since another program wrote it. A list without it may be that of a program that has not read it.
    Others(Timestamp),
    /// It was there since then, and a program dropped it by a limit of its own: it is not in the file now.
    Dropped(Timestamp),
}

impl Publication {
    /// Returns since when.
    pub(super) fn since(self) -> Timestamp {
        match self {
            Publication::Ours(at) | Publication::Others(at) | Publication::Dropped(at) => at,
        }
    }
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

impl Known {
    /// Takes down an entry of the file.
    pub(super) fn of(entry: &Entry, order: usize, publication: Publication) -> Known {
        let applications = entry.applications.iter().map(|application| KnownApplication {
            tag: tag(&application.name),
            count: application.count,
            modified: application.modified,
        });
        Known {
            order,
            publication,
            added: entry.added,
            modified: entry.modified,
            visited: entry.visited,
            applications: applications.collect(),
        }
    }

    /// Tells whether it is in the file.
    pub(super) fn is_in_file(&self) -> bool {
        !matches!(self.publication, Publication::Dropped(_))
    }

    /// Returns when the entry was used last.
    pub(super) fn used(&self) -> Timestamp {
        self.modified.max(self.visited).max(self.added)
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
    /// Returns the receipts, also those of a version whose writer was killed before it could say so here.
    pub(super) fn receipts_with(&self, list: &List) -> Receipts {
        let salt = list.salt();
        // Marks of another salt are of no use.
        let before = if self.salt == salt { self.receipts.clone() } else { Receipts::default() };
        before.with(list.receipts(), salt)
    }

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
        to.array(5)?.bytes(&self.salt.0)?.i64(self.linked.0)?.i64(self.read_through.0)?;
        to.array(self.receipts.iter().len() as u64)?;
        for Receipt { mark, added, publication } in self.receipts.iter() {
            to.array(3)?.bytes(&mark.0)?.i64(added.0)?.i64(publication.0)?;
        }
        let mut entries: Vec<_> = self.entries.iter().collect();
        // Those that are in no file have the places that they had there.
        entries.sort_unstable_by_key(|(mark, known)| (known.order, **mark));
        to.array(entries.len() as u64)?;
        for (mark, known) in entries {
            let kind = match known.publication {
                Publication::Ours(_) => 1,
                Publication::Others(_) => 2,
                Publication::Dropped(_) => 3,
            };
            to.array(8)?.bytes(&mark.0)?.u8(kind)?.i64(known.publication.since().0)?;
            to.u64(known.order as u64)?.i64(known.added.0)?;
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
    let mut base = Base {
        salt: Salt(sixteen(from.bytes()?)?),
        linked: Timestamp(from.i64()?),
        read_through: Timestamp(from.i64()?),
        ..Base::default()
    };
    let mut receipts = Vec::new();
    for _ in 0..count(from)? {
        count(from)?;
        let mark = Mark(sixteen(from.bytes()?)?);
        let (added, publication) = (Timestamp(from.i64()?), Timestamp(from.i64()?));
        receipts.push(Receipt { mark, added, publication });
    }
    base.receipts = receipts.into_iter().collect();
    for _ in 0..count(from)? {
        count(from)?;
        let mark = Mark(sixteen(from.bytes()?)?);
        let (kind, since) = (from.u8()?, Timestamp(from.i64()?));
        let publication = match kind {
            1 => Publication::Ours(since),
            2 => Publication::Others(since),
            3 => Publication::Dropped(since),
            _ => return Err(Error::message("no such kind")),
        };
        let order = usize::try_from(from.u64()?).unwrap_or(usize::MAX);
        let added = Timestamp(from.i64()?);
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
        let known = Known { order, publication, added, modified, visited, applications };
        base.entries.insert(mark, known);
    }
    Ok(base)
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
        let (mark, at) = (Mark([1; 16]), Timestamp(8));
        let receipts = [Receipt { mark, added: Timestamp(-4), publication: at }];
        let mut base = Base {
            salt: Salt([4; 16]),
            linked: Timestamp(3),
            read_through: Timestamp(5),
            receipts: receipts.into_iter().collect(),
            entries: HashMap::new(),
        };
        let publications =
            [Publication::Ours(at), Publication::Others(at), Publication::Dropped(at)];
        for (number, publication) in (0_u8..).zip(publications) {
            let known = Known::of(&entry(), number.into(), publication);
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
        let known = Known::of(&entry(), 0, Publication::Others(Timestamp(9)));
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
