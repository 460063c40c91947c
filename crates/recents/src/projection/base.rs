//! The contents of the shared file when unjank last read or wrote it: the base of the three-way merge. It names no document.
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
use crate::{RecentEntry, RecentList, RecentTime, Salt, UriHash};

const MAGIC: &[u8; 8] = b"unjankRB";
const VERSION: u32 = 2;
const HEAD: usize = 8 + 4 + 16;

/// The entries of the shared file, by the marks of their URIs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) salt: Salt,
    /// Documents that were opened until then have their links.
    pub(super) linked: RecentTime,
    /// Some program has read a version of the file with everything that was published until then.
    pub(super) read_through: RecentTime,
    /// The receipts, which identify the versions that unjank wrote.
    pub(super) receipts: Receipts,
    pub(super) entries: HashMap<UriHash, BaseEntry>,
}

/// The base's data about an entry of the shared file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BaseEntry {
    /// Its position in the file.
    pub(super) order: usize,
    pub(super) publication: Publication,
    /// When it was added, as the file says.
    pub(super) added: RecentTime,
    modified: RecentTime,
    visited: RecentTime,
    applications: Vec<KnownApplication>,
}

/// Since when the file has contained the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Publication {
    /// Since unjank wrote a version with it. The receipts of that version tell which programs have read it.
    Ours(RecentTime),
    /// Since another program wrote it. A program that writes a list without it may not have read it.
    Others(RecentTime),
    /// It was in the file since then, and a program dropped it by a limit of its own. It is not in the file now.
    Dropped(RecentTime),
}

impl Publication {
    /// Returns that time.
    pub(super) fn since(self) -> RecentTime {
        match self {
            Publication::Ours(at) | Publication::Others(at) | Publication::Dropped(at) => at,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownApplication {
    tag: u32,
    count: u32,
    modified: RecentTime,
}

/// How an entry of the file differs from the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// It equals the base.
    Same,
    /// It has everything in the base, and more.
    Later,
    /// It lacks something: its writer had not read the version of the base.
    Earlier,
    /// Both: its writer used the document without having read the version of the base.
    Apart,
}

impl BaseEntry {
    /// Records an entry of the file.
    pub(super) fn of(entry: &RecentEntry, order: usize, publication: Publication) -> BaseEntry {
        let applications = entry.applications.iter().map(|application| KnownApplication {
            tag: tag(&application.name),
            count: application.count,
            modified: application.modified,
        });
        BaseEntry {
            order,
            publication,
            added: entry.added,
            modified: entry.modified,
            visited: entry.visited,
            applications: applications.collect(),
        }
    }

    /// Returns whether it is in the file.
    pub(super) fn is_in_file(&self) -> bool {
        !matches!(self.publication, Publication::Dropped(_))
    }

    /// Returns when the entry was used last.
    pub(super) fn used(&self) -> RecentTime {
        self.modified.max(self.visited).max(self.added)
    }

    /// Compares an entry of the file with this one.
    pub(super) fn compare(&self, entry: &RecentEntry) -> Version {
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
            // A writer that had read the base would have counted on from its number.
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
    /// Returns the receipts, including those of a version whose writer was killed before it updated the base.
    pub(super) fn receipts_with(&self, list: &RecentList) -> Receipts {
        let salt = list.salt();
        // Marks with another salt cannot be compared.
        let before = if self.salt == salt { self.receipts.clone() } else { Receipts::default() };
        before.with(list.receipts(), salt)
    }

    /// Encodes the base.
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
        // Entries that are not in the file keep their last positions.
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

    /// Decodes the base; `None` if the bytes are damaged or of another version.
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
        linked: RecentTime(from.i64()?),
        read_through: RecentTime(from.i64()?),
        ..Base::default()
    };
    let mut receipts = Vec::new();
    for _ in 0..count(from)? {
        count(from)?;
        let mark = UriHash(sixteen(from.bytes()?)?);
        let (added, publication) = (RecentTime(from.i64()?), RecentTime(from.i64()?));
        receipts.push(Receipt { mark, added, publication });
    }
    base.receipts = receipts.into_iter().collect();
    for _ in 0..count(from)? {
        count(from)?;
        let mark = UriHash(sixteen(from.bytes()?)?);
        let (kind, since) = (from.u8()?, RecentTime(from.i64()?));
        let publication = match kind {
            1 => Publication::Ours(since),
            2 => Publication::Others(since),
            3 => Publication::Dropped(since),
            _ => return Err(Error::message("no such kind")),
        };
        let order = usize::try_from(from.u64()?).unwrap_or(usize::MAX);
        let added = RecentTime(from.i64()?);
        let (modified, visited) = (RecentTime(from.i64()?), RecentTime(from.i64()?));
        let mut applications = Vec::new();
        for _ in 0..count(from)? {
            count(from)?;
            applications.push(KnownApplication {
                tag: from.u32()?,
                count: from.u32()?,
                modified: RecentTime(from.i64()?),
            });
        }
        let known = BaseEntry { order, publication, added, modified, visited, applications };
        base.entries.insert(mark, known);
    }
    Ok(base)
}

fn checksum(body: &[u8]) -> [u8; 16] {
    let mut sum = [0; 16];
    sum.copy_from_slice(&Sha256::digest(body)[..16]);
    sum
}

/// Returns a hash of 32 bits (FNV-1a), which distinguishes the applications of one document.
fn tag(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpeningApplication, Privacy, Uri};

    fn entry() -> RecentEntry {
        let application = |name: &str| OpeningApplication {
            name: name.into(),
            exec: "x".into(),
            count: 2,
            modified: RecentTime(5),
        };
        RecentEntry {
            uri: Uri::exact("a:b").unwrap(),
            mime: None,
            groups: Vec::new(),
            title: None,
            description: None,
            privacy: Privacy::Public,
            added: RecentTime(1),
            modified: RecentTime(5),
            visited: RecentTime(6),
            applications: vec![application("kate"), application("vi")],
        }
    }

    #[test]
    fn a_base_is_read_as_it_was_written_or_not_at_all() {
        let (mark, at) = (UriHash([1; 16]), RecentTime(8));
        let receipts = [Receipt { mark, added: RecentTime(-4), publication: at }];
        let mut base = Base {
            salt: Salt([4; 16]),
            linked: RecentTime(3),
            read_through: RecentTime(5),
            receipts: receipts.into_iter().collect(),
            entries: HashMap::new(),
        };
        let publications =
            [Publication::Ours(at), Publication::Others(at), Publication::Dropped(at)];
        for (number, publication) in (0_u8..).zip(publications) {
            let known = BaseEntry::of(&entry(), number.into(), publication);
            base.entries.insert(UriHash([number; 16]), known);
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
        let known = BaseEntry::of(&entry(), 0, Publication::Others(RecentTime(9)));
        assert_eq!(known.compare(&entry()), Version::Same);
        let changed = |change: fn(&mut RecentEntry)| {
            let mut entry = entry();
            change(&mut entry);
            known.compare(&entry)
        };
        assert_eq!(changed(|e| e.visited = RecentTime(7)), Version::Later);
        assert_eq!(changed(|e| e.applications[0].count = 3), Version::Later);
        assert_eq!(changed(|e| e.applications[1].modified = RecentTime(4)), Version::Earlier);
        assert_eq!(changed(|e| e.applications.truncate(1)), Version::Earlier);
        assert_eq!(changed(|e| e.modified = RecentTime(4)), Version::Earlier);
        assert_eq!(changed(|e| e.applications[0].modified = RecentTime(7)), Version::Apart);
        assert_eq!(changed(|e| e.title = Some("t".into())), Version::Same);
    }
}
