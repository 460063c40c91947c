//! Making an index: directories that did not change keep their records, files that did not change are not opened.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;

use store::table::gvdb::WriteError;
use sys::thread::spawn_scoped;

use super::Index;
use super::entries::{Entries, TypeValues, type_values};
use super::identity::Identity;
use super::input::{Input, Part};
use super::sources::Sources;
use super::walk::{Kind, Walked, What, walk};
use crate::apps::associations::{Associations, looked_for, read_bounded};
use crate::mime_types::MimeTypes;

/// How closely is looked at what may have changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Look {
    /// At directories: one that did not change has the same files. A file that was overwritten in place is noticed when it is used.
    Directories,
    /// At every file.
    Files,
}

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
}

/// Makes the index of `sources`; what `old` has and did not change is taken from there.
///
/// # Errors
///
/// More than a file of 4 GiB can hold. A file that cannot be used is a fault of that file alone.
pub fn build(sources: &Sources, old: Option<&Index>, look: Look) -> Result<Built, WriteError> {
    let is_same = |old: &&Index| old.is_of(sources) && old.stale(&Part::OF_OPENERS).is_none();
    let same_types = old.filter(is_same);
    let (walked, types) = std::thread::scope(|scope| {
        let is_read = same_types.is_none();
        let reader = is_read.then(|| spawn_scoped(scope, "types", || TypesRead::of(sources)));
        let walked = walk(sources, old, look);
        let types = reader.map(|reader| match reader.map(ScopedJoinHandle::join) {
            Ok(Ok(types)) => types,
            Ok(Err(why)) => resume_unwind(why),
            // There is no further thread: they are read on this one.
            Err(_) => TypesRead::of(sources),
        });
        (walked, types)
    });
    let Walked { items, mut inputs, faults, opened } = walked;
    let mut faults: Vec<(PathBuf, String)> =
        faults.into_iter().map(|(path, reason)| (path.to_owned(), reason.to_owned())).collect();
    let mut entries = Entries::default();
    for item in &items {
        let record = match &item.what {
            What::Kept(record) => *record,
            What::New(new) => match &new.made {
                Ok(Some(record)) => &record[..],
                Ok(None) => continue,
                Err(reason) => {
                    faults.push((new.path.clone(), reason.clone()));
                    continue;
                }
            },
        };
        match item.kind {
            Kind::Plugin => entries.add_plugin(record),
            Kind::App => entries.add_app(record),
        }
    }
    let (plugins, applications) = entries.counts();
    for directory in &sources.gio_dirs {
        let cache = directory.join("giomodule.cache");
        inputs.push(Input::new(Part::Gio, cache.clone(), Identity::of(&cache)));
        match read_bounded(&cache) {
            Ok(bytes) => entries.add_gio(directory, &bytes.unwrap_or_default()),
            Err(reason) => faults.push((cache, reason)),
        }
    }
    if let Some(types) = types {
        // A directory's fault that was taken over may be one of these, and mended.
        let is_one = |path: &Path| types.looked_at.iter().any(|(_, known, _)| known == path);
        faults.retain(|(path, _)| !is_one(path));
        faults.extend(types.unusable);
        for (part, path, identity) in types.looked_at {
            look_for(&mut inputs, part, path, identity);
        }
        entries.add_types(types.values);
    } else if let Some(old) = same_types {
        entries.take_types(old);
        let known = old.inputs().filter(|input| matches!(input.part, Part::Types | Part::Openers));
        let known: Vec<Input> = known
            .map(|input| Input::new(input.part, input.path().to_owned(), input.identity))
            .collect();
        for (path, reason) in old.faults() {
            let is_new = !faults.iter().any(|(other, _)| other == path);
            if is_new && known.iter().any(|input| input.path == path) {
                faults.push((path.to_owned(), reason.to_owned()));
            }
        }
        inputs.extend(known);
    }
    entries.add_lists(sources.file_name(), &inputs, &faults);
    let image = entries.write()?;

    Ok(Built { image, plugins, applications, opened, faults })
}

/// What files say of MIME types.
struct TypesRead {
    /// The files, and what each was before it was read.
    looked_at: Vec<(Part, PathBuf, Identity)>,
    values: TypeValues,
    /// Files that could not be used, with the reason.
    unusable: Vec<(PathBuf, String)>,
}

impl TypesRead {
    fn of(sources: &Sources) -> TypesRead {
        let relations = sources
            .places
            .data()
            .flat_map(|dir| ["mime/aliases", "mime/subclasses"].map(|name| dir.join(name)));
        let relations = relations.map(|path| (Part::Types, path));
        let lists = looked_for(&sources.places).into_iter().map(|path| (Part::Openers, path));
        // Looked at before they are read: what changes in between makes the index stale, not wrong.
        let look = |(part, path): (Part, PathBuf)| {
            let identity = Identity::of(&path);
            (part, path, identity)
        };
        let looked_at = relations.chain(lists).map(look).collect();
        let types = MimeTypes::read(sources.places.data());
        let associations = Associations::read(&sources.places, &types);
        let unusable = associations.unusable().to_vec();
        TypesRead { looked_at, values: type_values(&types, &associations), unusable }
    }
}

/// Adds a file that was looked for, so that its change is noticed, or its coming.
fn look_for(inputs: &mut Vec<Input>, part: Part, path: PathBuf, identity: Identity) {
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

/// Says whether everybody who looks at `part` looks at this directory too.
fn covers(directory: Part, part: Part) -> bool {
    directory == part || (part == Part::Openers && directory == Part::Applications)
}
