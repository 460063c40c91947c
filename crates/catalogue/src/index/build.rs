//! Making an index: directories that did not change keep their records, files that did not change are not opened.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::{self, ScopedJoinHandle};

use gvdb::TableWriteError;
use sys::thread::spawn_scoped;

use super::Index;
use super::entries::{Entries, TypeValues, type_values};
use super::identity::Identity;
use super::input::{IndexPart, Input};
use super::sections::RecordList;
use super::sources::IndexSources;
pub use super::walk::CheckDepth;
use super::walk::{Failures, IndexedFile, LeftOut, Walked, walk};
use crate::apps::associations::{Associations, looked_for, read_bounded};
use crate::unread::Unread;
use xdg::mime_types::MimeTypes;

/// A finished index.
#[derive(Debug)]
pub struct Built {
    /// The bytes of its file.
    pub image: Vec<u8>,
    /// How many plugins there are.
    pub plugins: usize,
    /// How many desktop files there are.
    pub applications: usize,
    /// How many files were opened; all others were in the old index.
    pub opened: usize,
    /// Files and directories that could not be used, with the reason.
    pub faults: Vec<(PathBuf, String)>,
    /// What was not read because of a failure of the machine.
    pub(super) failures: Failures,
}

/// Makes the index of `sources`; what `old` has and did not change is taken from there.
///
/// # Errors
///
/// More than a file of 4 GiB can hold. A file that cannot be used is a fault of that file alone.
pub fn build(
    sources: &IndexSources,
    old: Option<&Index>,
    look: CheckDepth,
) -> Result<Built, TableWriteError> {
    let start = sys::file_clock::now_ns();
    let is_same = |old: &&Index| old.is_of(sources) && old.stale(&IndexPart::OF_OPENERS).is_none();
    let same_types = old.filter(is_same);
    let (walked, types) = thread::scope(|scope| {
        let is_read = same_types.is_none();
        let reader =
            is_read.then(|| spawn_scoped(scope, "types", || TypesRead::of(sources, start)));
        let walked = walk(sources, old, look, start);
        let types = reader.map(|reader| match reader.map(ScopedJoinHandle::join) {
            Ok(Ok(types)) => types,
            Ok(Err(why)) => resume_unwind(why),
            // There is no further thread: they are read on this one.
            Err(_) => TypesRead::of(sources, start),
        });
        (walked, types)
    });
    let Walked { items, mut inputs, mut left_out, opened, mut failures } = walked;
    let mut entries = Entries::default();
    for item in &items {
        let record = match &item.what {
            IndexedFile::Kept(record) => *record,
            IndexedFile::New(new) => match &new.made {
                Ok(Some(record)) => &record[..],
                Ok(None) => {
                    let (path, identity) = (new.path.clone(), new.identity);
                    left_out.push(LeftOut { path, identity, reason: String::new() });
                    continue;
                }
                Err(unread) => {
                    failures.note(&new.path, unread);
                    let (path, identity) = (new.path.clone(), new.identity.unless_read(unread));
                    left_out.push(LeftOut { path, identity, reason: unread.reason.clone() });
                    continue;
                }
            },
        };
        match item.list {
            RecordList::Plugins => entries.add_plugin(record),
            RecordList::Apps => entries.add_app(record),
        }
    }
    let (plugins, applications) = entries.counts();
    let leave_out = |(path, reason)| LeftOut { path, identity: Identity::UNWATCHED, reason };
    for directory in &sources.gio_dirs {
        let cache = directory.join("giomodule.cache");
        let mut identity = Identity::of(&cache).sure(start);
        match read_bounded(&cache) {
            Ok(bytes) => entries.add_gio(directory, &bytes.unwrap_or_default()),
            Err(unread) => {
                failures.note(&cache, &unread);
                identity = identity.unless_read(&unread);
                left_out.push(leave_out((cache.clone(), unread.reason)));
            }
        }
        inputs.push(Input::new(IndexPart::Gio, cache, identity));
    }
    if let Some(types) = types {
        // A directory's fault that was taken over may be one of these, and mended.
        let is_one = |path: &Path| types.looked_at.iter().any(|(_, known, _)| known == path);
        left_out.retain(|known| !is_one(&known.path));
        for (part, path, identity) in types.looked_at {
            let unread = types.unusable.iter().find(|(unused, _)| *unused == path);
            let identity = unread.map_or(identity, |(_, unread)| identity.unless_read(unread));
            look_for(&mut inputs, part, path, identity);
        }
        for (path, unread) in types.unusable {
            failures.note(&path, &unread);
            left_out.push(leave_out((path, unread.reason)));
        }
        entries.add_types(types.values);
    } else if let Some(old) = same_types {
        entries.take_types(old);
        let known = old
            .inputs()
            .filter(|input| matches!(input.part, IndexPart::Types | IndexPart::Openers));
        let known: Vec<Input> = known
            .map(|input| Input::new(input.part, input.path().to_owned(), input.identity))
            .collect();
        for (path, reason) in old.faults() {
            let is_new = !left_out.iter().any(|other| other.path == path);
            if is_new && known.iter().any(|input| input.path == path) {
                left_out.push(leave_out((path.to_owned(), reason.to_owned())));
            }
        }
        inputs.extend(known);
    }
    // In an order that has nothing to do with which of them were known before.
    left_out.sort_unstable();
    left_out.dedup();
    entries.add_lists(sources.file_name(), &inputs, &left_out);
    let image = entries.write()?;
    let faults = left_out.into_iter().filter(|known| !known.reason.is_empty());
    let faults = faults.map(|known| (known.path, known.reason)).collect();
    Ok(Built { image, plugins, applications, opened, faults, failures })
}

/// What files say of MIME types.
struct TypesRead {
    /// The files, and what each was before it was read.
    looked_at: Vec<(IndexPart, PathBuf, Identity)>,
    values: TypeValues,
    /// Files that could not be used, with the reason.
    unusable: Vec<(PathBuf, Unread)>,
}

impl TypesRead {
    fn of(sources: &IndexSources, start: u64) -> TypesRead {
        let relations = sources
            .places
            .data()
            .flat_map(|dir| ["mime/aliases", "mime/subclasses"].map(|name| dir.join(name)));
        let relations = relations.map(|path| (IndexPart::Types, path));
        let lists = looked_for(&sources.places).into_iter().map(|path| (IndexPart::Openers, path));
        // Looked at before they are read: what changes in between makes the index stale, not wrong.
        let look = |(part, path): (IndexPart, PathBuf)| {
            let identity = Identity::of(&path).sure(start);
            (part, path, identity)
        };
        let looked_at = relations.chain(lists).map(look).collect();
        let (types, unread) = MimeTypes::read_noting(sources.places.data());
        let associations = Associations::read(&sources.places, &types);
        let unread = unread.into_iter().map(|(path, error)| (path, error.into()));
        let unusable = unread.chain(associations.unusable().iter().cloned()).collect();
        TypesRead { looked_at, values: type_values(&types, &associations), unusable }
    }
}

/// Adds a file that was looked for, so that its change is noticed, or its coming.
fn look_for(inputs: &mut Vec<Input>, part: IndexPart, path: PathBuf, identity: Identity) {
    // A link that leads nowhere may lead somewhere later, without a change of its directory.
    let is_missing = |path: &Path| {
        let found = std::fs::symlink_metadata(path);
        found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    };
    let directory = path.parent().filter(|_| !identity.is_there() && is_missing(&path));
    // What is not there cannot come without its directory: that is one look for all of its files.
    if let Some(directory) = directory {
        let known = |input: &Input| input.path == directory && covers(input.part, part);
        if inputs.iter().any(known) {
            return;
        }
        if is_missing(directory) {
            return inputs.push(Input::new(part, directory.to_owned(), Identity::ABSENT));
        }
    }
    inputs.push(Input::new(part, path, identity));
}

/// Returns whether everybody who looks at `part` looks at this directory too.
fn covers(directory: IndexPart, part: IndexPart) -> bool {
    directory == part || (part == IndexPart::Openers && directory == IndexPart::Applications)
}
