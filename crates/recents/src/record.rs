//! The encoding of the journal's records: CBOR (RFC 8949), one array for each record, its kind first. Later versions append fields.
//!
//! ```text
//! [1, uri, mime, [group…], name, exec, private, at]                       Add
//! [2, uri, mime, [group…], title, description, private, added, modified, visited, [[name, exec, count, modified]…]]   Put
//! [3, marks, everything, at]                                              Forget
//! [3, marks, everything, later_use, at]                                   Forget, with a use that was later than now
//! [4, salt]                                                               Salt
//! [5, publication, [[uri, added]…]]                                       Receipts
//! ```

use minicbor::data::Type;
use minicbor::decode::{Decoder, Error};
use minicbor::encode::Encoder;

use super::{OpeningApplication, Privacy, RecentEntry, RecentTime, Salt, Uri, UriHash};

/// The most groups, or applications, of one entry: what no sensible list reaches, and no damaged one exceeds.
const MOST: usize = 1000;

/// A document that a program opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addition {
    /// Which document.
    pub uri: Uri,
    /// Its MIME type, if the program knows it.
    pub mime: Option<String>,
    /// What kinds of documents it belongs to.
    pub groups: Vec<String>,
    /// Whether only this program shall show it.
    pub privacy: Privacy,
    /// The name of the program: its desktop id.
    pub application: String,
    /// The command line that opens the document again, with `%u` or `%f` in its place.
    pub exec: String,
    /// When.
    pub at: RecentTime,
}

/// Documents to forget. The record contains no names, so it reveals nothing about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgetting {
    /// Which documents; none counts when `everything` is set.
    pub marks: Vec<UriHash>,
    /// Whether all that the list holds goes.
    pub everything: ForgetExtent,
    /// When. What another program brings back must be later to stay.
    pub at: RecentTime,
    /// The last recorded use if that was later; it must not come back, either.
    pub later_use: Option<RecentTime>,
}

/// Whether all entries are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForgetExtent {
    /// Only those that are marked.
    #[default]
    Stays,
    /// All.
    Goes,
}

/// A record of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalRecord {
    /// A program opened a document.
    Add(Addition),
    /// An entry as another store has it: what is later or more in it counts. Doing it twice changes nothing.
    Put(RecentEntry),
    /// Documents are to be forgotten.
    Forget(Forgetting),
    /// The salt of the marks of this journal.
    Salt(Salt),
    /// The next version of the shared file has other times at which documents came.
    Receipts(VersionReceipts),
}

/// Times at which documents came into the list, each earlier by a moment than the one before. They are in one version of
/// the shared file and in no earlier one, which tells what a program had read (`projection::receipts`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionReceipts {
    /// When the version is written.
    pub publication: RecentTime,
    /// The documents with their new times.
    pub added: Vec<(Uri, RecentTime)>,
}

impl JournalRecord {
    /// Returns the bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::new(Vec::with_capacity(256));
        // Writing into a vector does not fail.
        let _ = match self {
            JournalRecord::Add(addition) => write_add(&mut to, addition),
            JournalRecord::Put(entry) => write_put(&mut to, entry),
            JournalRecord::Forget(forgetting) => write_forget(&mut to, forgetting),
            JournalRecord::Salt(salt) => {
                to.array(2).and_then(|to| to.u8(4)?.bytes(&salt.0)).map(|_| ())
            }
            JournalRecord::Receipts(receipts) => write_receipts(&mut to, receipts),
        };
        to.into_writer()
    }

    /// Reads a record; `None` if it is damaged or of a kind that is not known here.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<JournalRecord> {
        let mut from = Decoder::new(bytes);
        let fields = from.array().ok()??;
        match from.u8().ok()? {
            1 => read_add(&mut from).map(JournalRecord::Add),
            2 => read_put(&mut from).map(JournalRecord::Put),
            3 => read_forget(&mut from, fields).map(JournalRecord::Forget),
            4 => from.bytes().map(|bytes| <[u8; 16]>::try_from(bytes).map(Salt)).and_then(|salt| {
                salt.map(JournalRecord::Salt).map_err(|_| Error::message("a salt has 16 bytes"))
            }),
            5 => read_receipts(&mut from).map(JournalRecord::Receipts),
            _ => return None,
        }
        .ok()
    }
}

type SerializedRecord = Result<(), minicbor::encode::Error<std::convert::Infallible>>;

fn write_add(to: &mut Encoder<Vec<u8>>, addition: &Addition) -> SerializedRecord {
    to.array(8)?.u8(1)?.str(addition.uri.as_str())?;
    write_optional(to, addition.mime.as_deref())?;
    write_texts(to, &addition.groups)?;
    to.str(&addition.application)?.str(&addition.exec)?;
    to.bool(addition.privacy == Privacy::Private)?.i64(addition.at.0)?;
    Ok(())
}

fn read_add(from: &mut Decoder<'_>) -> Result<Addition, Error> {
    Ok(Addition {
        uri: read_uri(from)?,
        mime: read_optional(from)?,
        groups: read_texts(from)?,
        application: from.str()?.to_owned(),
        exec: from.str()?.to_owned(),
        privacy: read_privacy(from)?,
        at: RecentTime(from.i64()?),
    })
}

fn write_put(to: &mut Encoder<Vec<u8>>, entry: &RecentEntry) -> SerializedRecord {
    to.array(11)?.u8(2)?.str(entry.uri.as_str())?;
    write_optional(to, entry.mime.as_deref())?;
    write_texts(to, &entry.groups)?;
    write_optional(to, entry.title.as_deref())?;
    write_optional(to, entry.description.as_deref())?;
    to.bool(entry.privacy == Privacy::Private)?;
    to.i64(entry.added.0)?.i64(entry.modified.0)?.i64(entry.visited.0)?;
    to.array(entry.applications.len() as u64)?;
    for application in &entry.applications {
        to.array(4)?.str(&application.name)?.str(&application.exec)?;
        to.u32(application.count)?.i64(application.modified.0)?;
    }
    Ok(())
}

fn read_put(from: &mut Decoder<'_>) -> Result<RecentEntry, Error> {
    Ok(RecentEntry {
        uri: read_uri(from)?,
        mime: read_optional(from)?,
        groups: read_texts(from)?,
        title: read_optional(from)?,
        description: read_optional(from)?,
        privacy: read_privacy(from)?,
        added: RecentTime(from.i64()?),
        modified: RecentTime(from.i64()?),
        visited: RecentTime(from.i64()?),
        applications: (0..read_count(from)?)
            .map(|_| {
                from.array()?;
                Ok(OpeningApplication {
                    name: from.str()?.to_owned(),
                    exec: from.str()?.to_owned(),
                    count: from.u32()?,
                    modified: RecentTime(from.i64()?),
                })
            })
            .collect::<Result<_, Error>>()?,
    })
}

fn write_forget(to: &mut Encoder<Vec<u8>>, forgetting: &Forgetting) -> SerializedRecord {
    let marks: Vec<u8> = forgetting.marks.iter().flat_map(|mark| mark.0).collect();
    let Forgetting { everything, at, later_use, .. } = forgetting;
    to.array(4 + u64::from(later_use.is_some()))?.u8(3)?.bytes(&marks)?;
    to.bool(*everything == ForgetExtent::Goes)?;
    // Earlier versions know one time only, which has to be that of the use.
    if let Some(later_use) = later_use {
        to.i64(later_use.0)?;
    }
    to.i64(at.0)?;
    Ok(())
}

fn read_forget(from: &mut Decoder<'_>, fields: u64) -> Result<Forgetting, Error> {
    let (marks, rest) = from.bytes()?.as_chunks();
    if !rest.is_empty() {
        return Err(Error::message("a mark has 16 bytes"));
    }
    let marks = marks.iter().copied().map(UriHash).collect();
    let everything = if from.bool()? { ForgetExtent::Goes } else { ForgetExtent::Stays };
    let later_use = if fields > 4 { Some(RecentTime(from.i64()?)) } else { None };
    Ok(Forgetting { marks, everything, at: RecentTime(from.i64()?), later_use })
}

fn write_receipts(to: &mut Encoder<Vec<u8>>, receipts: &VersionReceipts) -> SerializedRecord {
    to.array(3)?.u8(5)?.i64(receipts.publication.0)?.array(receipts.added.len() as u64)?;
    for (uri, added) in &receipts.added {
        to.array(2)?.str(uri.as_str())?.i64(added.0)?;
    }
    Ok(())
}

fn read_receipts(from: &mut Decoder<'_>) -> Result<VersionReceipts, Error> {
    let publication = RecentTime(from.i64()?);
    let one = |from: &mut Decoder<'_>| {
        from.array()?;
        Ok((read_uri(from)?, RecentTime(from.i64()?)))
    };
    let added = (0..read_count(from)?).map(|_| one(from)).collect::<Result<_, Error>>()?;
    Ok(VersionReceipts { publication, added })
}

fn write_optional(to: &mut Encoder<Vec<u8>>, text: Option<&str>) -> SerializedRecord {
    match text {
        Some(text) => to.str(text)?,
        None => to.null()?,
    };
    Ok(())
}

fn read_optional(from: &mut Decoder<'_>) -> Result<Option<String>, Error> {
    if from.datatype()? == Type::Null {
        return from.null().map(|()| None);
    }
    from.str().map(|text| Some(text.to_owned()))
}

fn write_texts(to: &mut Encoder<Vec<u8>>, texts: &[String]) -> SerializedRecord {
    to.array(texts.len() as u64)?;
    for text in texts {
        to.str(text)?;
    }
    Ok(())
}

fn read_texts(from: &mut Decoder<'_>) -> Result<Vec<String>, Error> {
    (0..read_count(from)?).map(|_| from.str().map(str::to_owned)).collect()
}

fn read_count(from: &mut Decoder<'_>) -> Result<usize, Error> {
    let count = from.array()?.and_then(|count| usize::try_from(count).ok());
    count
        .filter(|count| *count <= MOST)
        .ok_or_else(|| Error::message("more than one entry can have"))
}

fn read_uri(from: &mut Decoder<'_>) -> Result<Uri, Error> {
    Uri::exact(from.str()?).map_err(|_| Error::message("no URI is so long"))
}

fn read_privacy(from: &mut Decoder<'_>) -> Result<Privacy, Error> {
    Ok(if from.bool()? { Privacy::Private } else { Privacy::Public })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<JournalRecord> {
        let uri = Uri::exact("file:///a%20b").unwrap();
        vec![
            JournalRecord::Add(Addition {
                uri: uri.clone(),
                mime: Some("text/plain".into()),
                groups: vec!["Graphics".into(), "ä".into()],
                privacy: Privacy::Private,
                application: "org.kde.kate".into(),
                exec: "kate -b %U".into(),
                at: RecentTime(1_700_000_000_123_456),
            }),
            JournalRecord::Put(RecentEntry {
                uri,
                mime: None,
                groups: Vec::new(),
                title: Some("A".into()),
                description: None,
                privacy: Privacy::Public,
                added: RecentTime(-1),
                modified: RecentTime(i64::MAX),
                visited: RecentTime(i64::MIN),
                applications: vec![OpeningApplication {
                    name: "x".into(),
                    exec: String::new(),
                    count: u32::MAX,
                    modified: RecentTime(0),
                }],
            }),
            JournalRecord::Forget(Forgetting {
                marks: vec![UriHash([7; 16]), UriHash([9; 16])],
                everything: ForgetExtent::Goes,
                at: RecentTime(5),
                later_use: None,
            }),
            JournalRecord::Forget(Forgetting {
                marks: vec![UriHash([7; 16])],
                everything: ForgetExtent::Stays,
                at: RecentTime(5),
                later_use: Some(RecentTime(9)),
            }),
            JournalRecord::Salt(Salt([3; 16])),
            JournalRecord::Receipts(VersionReceipts {
                publication: RecentTime(9),
                added: vec![(Uri::exact("file:///b").unwrap(), RecentTime(7))],
            }),
        ]
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for record in records() {
            assert_eq!(JournalRecord::decode(&record.encode()), Some(record));
        }
    }

    #[test]
    fn a_forgetting_of_an_earlier_version_is_read_and_earlier_versions_read_ours() {
        let earlier = [0x84, 3, 0x40, 0xf4, 0x09];
        let at = RecentTime(9);
        let read = Forgetting { at, ..Forgetting::default() };
        assert_eq!(JournalRecord::decode(&earlier), Some(JournalRecord::Forget(read)));
        let later_use = Some(at);
        let ours = Forgetting { at: RecentTime(5), later_use, ..Forgetting::default() };
        let ours = JournalRecord::Forget(ours).encode();
        assert_eq!((ours[0], &ours[1..5], &ours[5..]), (0x85, &earlier[1..], &[5][..]));
    }

    #[test]
    fn a_later_version_may_add_fields_and_kinds() {
        let mut later = records()[4].encode();
        later[0] += 1;
        later.push(0x18);
        later.push(0x2a);
        assert_eq!(JournalRecord::decode(&later), Some(records()[4].clone()));
        assert_eq!(JournalRecord::decode(&[0x82, 0x18, 99, 0x00]), None);
    }

    #[test]
    fn cut_and_damaged_records_are_none_and_cost_nothing() {
        for record in records() {
            let bytes = record.encode();
            for cut in 0..bytes.len() {
                assert_eq!(JournalRecord::decode(&bytes[..cut]), None);
            }
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] = 0xff;
                let _ = JournalRecord::decode(&damaged);
            }
        }
        assert_eq!(
            JournalRecord::decode(&[0x88, 1, 0x61, b'a', 0xf6, 0x9b, 0xff, 0, 0, 0, 0, 0, 0, 0]),
            None
        );
    }
}
