//! What goes into an index's file: records, and lists by which they are found.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gvdb::{self, Image, TableWriteError};

use super::array::{self, ArrayBuilder, put};
use super::input::Input;
use super::layout::{self, AppKey, PluginKey, Section};
use super::record::{IndexRecord, MemberValue};
use super::sections::RecordList;
use super::walk::LeftOut;
use super::{Index, TYPE, app, checksum};
use crate::apps::associations::{AssociationClaim, AssociationReason, Associations};
use xdg::mime_types::MimeTypes;

/// How much room a value takes in the file besides its bytes, about.
const VALUE_ROOM: usize = 128;

/// Texts with the numbers of the records that they lead to.
type Pairs<'a> = Vec<(Cow<'a, str>, u32)>;

/// Values by name. Those of records are borrowed: they are copied once, into the file.
#[derive(Debug, Default)]
pub(super) struct Entries<'a> {
    plugins: Vec<&'a [u8]>,
    apps: Vec<&'a [u8]>,
    by_plugin: [Pairs<'a>; PluginKey::ALL.len()],
    by_app: [Pairs<'a>; AppKey::ALL.len()],
    gio: BTreeMap<String, Vec<u8>>,
    values: Vec<(Section, Vec<u8>)>,
}

fn number(count: usize) -> u32 {
    // There are no more files than `FILES_MAX` of each kind.
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl<'a> Entries<'a> {
    /// Adds a plugin.
    pub(super) fn add_plugin(&mut self, bytes: &'a [u8]) {
        let number = number(self.plugins.len());
        self.plugins.push(bytes);
        // All members are passed once; there are more names than members of a record.
        let place =
            |name: &[u8]| PluginKey::ALL.iter().position(|key| key.member().as_bytes() == name);
        for (place, value) in IndexRecord(bytes).chosen(place) {
            let pairs = &mut self.by_plugin[place];
            match value {
                MemberValue::Text(text) => pairs.push((text.into(), number)),
                MemberValue::List(list) => pairs.extend(list.map(|text| (text.into(), number))),
                _ => {}
            }
        }
    }

    /// Adds an application.
    pub(super) fn add_app(&mut self, bytes: &'a [u8]) {
        let number = number(self.apps.len());
        self.apps.push(bytes);
        let record = IndexRecord(bytes);
        let id = record.text(app::ID).unwrap_or_default();
        for (key, pairs) in AppKey::ALL.into_iter().zip(&mut self.by_app) {
            let mut add = |value: Cow<'a, str>| pairs.push((value, number));
            match key {
                AppKey::Id => add(id.into()),
                AppKey::MimeType => record.list("MimeType").for_each(|value| add(value.into())),
                AppKey::Category => record.list("Categories").for_each(|value| add(value.into())),
                AppKey::Keyword => {
                    record.list("Keywords").for_each(|word| add(word.to_lowercase().into()));
                }
                AppKey::Program => {
                    record
                        .text("Exec")
                        .and_then(program)
                        .into_iter()
                        .for_each(|name| add(name.into()));
                }
                AppKey::BusName => {
                    let own = Some(id.trim_end_matches(".desktop"));
                    let own = own.filter(|_| record.is_true("DBusActivatable"));
                    let named = record.text("X-DBUS-ServiceName").or(own);
                    named.into_iter().for_each(|name| add(name.into()));
                }
            }
        }
    }

    /// Returns how many plugins and applications were added.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.plugins.len(), self.apps.len())
    }

    /// Adds what is said of MIME types.
    pub(super) fn add_types(&mut self, values: TypeValues) {
        self.values.extend(values);
    }

    /// Takes what is said of MIME types from another index.
    pub(super) fn take_types(&mut self, old: &Index) {
        for section in [layout::OPEN, layout::LINEAGE, layout::FILES] {
            self.values.push((section, old.section(section).to_vec()));
        }
    }

    /// Takes the cache of GIO modules: `module.so: extension point, extension point` a line.
    pub(super) fn add_gio(&mut self, directory: &Path, cache: &[u8]) {
        for line in String::from_utf8_lossy(cache).lines().filter(|line| !line.starts_with('#')) {
            let Some((module, points)) = line.split_once(':') else { continue };
            let path = directory.join(module.trim());
            for point in points.split(',').map(str::trim).filter(|point| !point.is_empty()) {
                put(self.gio.entry(point.to_owned()).or_default(), path.as_os_str().as_bytes());
            }
        }
    }

    /// Adds of which sources the index is, what it is made of, and what of it could not be used.
    pub(super) fn add_lists(&mut self, sources: String, inputs: &[Input], left_out: &[LeftOut]) {
        let mut bytes = Vec::new();
        inputs.iter().for_each(|input| input.write(&mut bytes));
        self.values.push((layout::INPUTS, bytes));
        let mut bytes = Vec::new();
        for file in left_out {
            put(&mut bytes, file.path.as_os_str().as_bytes());
            bytes.extend(file.identity.to_bytes());
            put(&mut bytes, file.reason.as_bytes());
        }
        self.values.push((layout::UNUSED, bytes));
        self.values.push((layout::SOURCES, sources.into_bytes()));
        self.values.push((layout::VERSION_AT, layout::VERSION.to_le_bytes().to_vec()));
    }

    /// Returns the bytes of the file.
    pub(super) fn write(mut self) -> Result<Vec<u8>, TableWriteError> {
        for (key, pairs) in PluginKey::ALL.into_iter().zip(&self.by_plugin) {
            self.values.push((key.section(), array::numbers(pairs)));
        }
        for (key, pairs) in AppKey::ALL.into_iter().zip(&self.by_app) {
            self.values.push((key.section(), array::numbers(pairs)));
        }
        let mut gio = ArrayBuilder::default();
        for (point, modules) in &self.gio {
            gio.push_key(point, |bytes| bytes.extend(modules));
        }
        self.values.push((layout::GIO, gio.build()));
        // Records are most of the file: they are copied once, into it, and have their sums already.
        let lists = [(RecordList::Plugins, &self.plugins), (RecordList::Apps, &self.apps)];
        for (list, records) in lists {
            self.values.push((list.sections().0, array::ends(records)));
        }
        self.values.iter_mut().for_each(|(section, value)| checksum::seal(section.seed(), value));
        self.values.extend(lists.map(|(list, _)| (list.sections().1, Vec::new())));
        self.values.sort_unstable_by_key(|(section, _)| section.name);
        // Some thirty values, each with a name, an item, a sum and what its beginning leaves free.
        let lists_len: usize =
            lists.iter().flat_map(|(_, records)| *records).map(|record| record.len()).sum();
        let values_len: usize = self.values.iter().map(|(_, value)| value.len() + VALUE_ROOM).sum();
        let records = |section: Section| {
            let list = lists.iter().find(|(list, _)| list.sections().1 == section);
            list.map_or(&[][..], |(_, records)| &records[..])
        };
        let entries = self.values.iter().map(|(section, value)| {
            let value = std::iter::once(&value[..]);
            (section.name, value.chain(records(*section).iter().copied()).chain([TYPE]))
        });
        // Its parts have sums of their own, which say what was damaged and what was not.
        gvdb::write_in(entries, &Image { locks: &[], generation: None }, lists_len + values_len)
    }
}

/// What is said of MIME types, by section.
pub(super) type TypeValues = [(Section, Vec<u8>); 3];

/// Returns what is said of MIME types, as the file holds it.
pub(super) fn type_values(types: &MimeTypes, associations: &Associations) -> TypeValues {
    let mut open = ArrayBuilder::default();
    for mime_type in associations.types() {
        open.push_key(mime_type, |bytes| {
            associations.claims(mime_type).for_each(|claim| put_claim(bytes, claim));
        });
    }
    let children = types.children().map(|(child, _)| child);
    let mut related: Vec<&str> = children.chain(types.aliases().map(|(alias, _)| alias)).collect();
    related.sort_unstable();
    related.dedup();
    let mut lineage = ArrayBuilder::default();
    for mime_type in related {
        lineage.push_key(mime_type, |bytes| {
            types.lineage(mime_type).iter().for_each(|kind| put(bytes, kind.as_bytes()));
        });
    }
    let mut files = Vec::new();
    associations.files().iter().for_each(|path| put(&mut files, path.as_os_str().as_bytes()));
    [(layout::OPEN, open.build()), (layout::LINEAGE, lineage.build()), (layout::FILES, files)]
}

/// Returns the name of the program that a command runs.
fn program(command: &str) -> Option<String> {
    let words = shell_words::split(command).ok()?;
    Path::new(words.first()?).file_name()?.to_str().map(str::to_owned)
}

/// Puts a claim: reason, level, file, line, identifier.
fn put_claim(bytes: &mut Vec<u8>, claim: AssociationClaim<'_>) {
    bytes.push(match claim.reason {
        AssociationReason::Default => b'd',
        AssociationReason::Added => b'a',
        AssociationReason::Declared => b'm',
        AssociationReason::Removed => b'r',
    });
    for number in [claim.level.unwrap_or(u32::MAX), claim.file, claim.line] {
        bytes.extend(number.to_le_bytes());
    }
    put(bytes, claim.id.as_bytes());
}
