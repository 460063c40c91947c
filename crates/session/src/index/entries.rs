//! What goes into an index's file: values by name, and lists of numbers by which records are found.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use store::table::gvariant::Variant;
use store::table::gvdb::{self, Image, WriteError};

use super::input::Input;
use super::layout::{self, AppKey, PluginKey, name};
use super::plugin;
use super::record::Record;
use crate::apps::associations::{Associations, Claim, Reason};
use crate::mime_types::MimeTypes;

/// Values by name. Those of records are borrowed: they are copied once, into the file.
#[derive(Debug, Default)]
pub(super) struct Entries {
    values: BTreeMap<String, Vec<u8>>,
    plugins: u32,
    apps: u32,
}

/// Puts a value's length (u32) and its bytes behind others.
fn put(bytes: &mut Vec<u8>, value: &[u8]) {
    // Paths and names are never 4 GiB long.
    bytes.extend(u32::try_from(value.len()).unwrap_or(0).to_le_bytes());
    bytes.extend(value);
}

impl Entries {
    fn list(&mut self, prefix: &str, value: &str, number: u32) {
        let Some(name) = name(prefix, value) else { return };
        let numbers = self.values.entry(name).or_default();
        let number = number.to_le_bytes();
        if !numbers.ends_with(&number) {
            numbers.extend(number);
        }
    }

    /// Adds a plugin.
    pub(super) fn add_plugin(&mut self, bytes: &[u8]) {
        let number = self.plugins;
        self.plugins += 1;
        self.values.insert(format!("{}{number}", layout::PLUGIN), bytes.to_vec());
        let record = Record(bytes);
        let single = [
            (PluginKey::Id, plugin::ID),
            (PluginKey::Interface, plugin::INTERFACE),
            (PluginKey::Namespace, plugin::NAMESPACE),
        ];
        for (key, member) in single {
            self.list(key.prefix(), record.text(member).unwrap_or_default(), number);
        }
        let several = [
            (PluginKey::MimeType, plugin::MIME_TYPES),
            (PluginKey::ServiceType, plugin::SERVICE_TYPES),
            (PluginKey::Protocol, plugin::PROTOCOLS),
            (PluginKey::Key, plugin::KEYS),
        ];
        for (key, member) in several {
            record.list(member).for_each(|value| self.list(key.prefix(), value, number));
        }
    }

    /// Adds an application.
    pub(super) fn add_app(&mut self, bytes: &[u8], id: &str) {
        let number = self.apps;
        self.apps += 1;
        self.values.insert(format!("{}{number}", layout::APP), bytes.to_vec());
        let record = Record(bytes);
        self.list(AppKey::Id.prefix(), id, number);
        let several = [(AppKey::MimeType, "MimeType"), (AppKey::Category, "Categories")];
        for (key, member) in several {
            record.list(member).for_each(|value| self.list(key.prefix(), value, number));
        }
        for keyword in record.list("Keywords") {
            self.list(AppKey::Keyword.prefix(), &keyword.to_lowercase(), number);
        }
        let words = record.text("Exec").and_then(|command| shell_words::split(command).ok());
        if let Some(program) = words.as_deref().and_then(<[String]>::first) {
            let program = Path::new(program).file_name().and_then(|name| name.to_str());
            self.list(AppKey::Program.prefix(), program.unwrap_or_default(), number);
        }
        let named = record.text("X-DBUS-ServiceName");
        let own = record.is_true("DBusActivatable").then(|| id.trim_end_matches(".desktop"));
        self.list(AppKey::BusName.prefix(), named.or(own).unwrap_or_default(), number);
    }

    /// Returns how many plugins and applications were added.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.plugins as usize, self.apps as usize)
    }

    /// Adds what is said of MIME types.
    pub(super) fn add_types(&mut self, types: &MimeTypes, associations: &Associations) {
        for mime_type in associations.types() {
            if let Some(name) = name(layout::OPEN, mime_type) {
                let mut bytes = Vec::new();
                associations.claims(mime_type).for_each(|claim| put_claim(&mut bytes, claim));
                self.values.insert(name, bytes);
            }
        }
        let children = types.children().map(|(child, _)| child);
        for mime_type in children.chain(types.aliases().map(|(alias, _)| alias)) {
            if let Some(name) = name(layout::LINEAGE, mime_type) {
                let mut bytes = Vec::new();
                types.lineage(mime_type).iter().for_each(|kind| put(&mut bytes, kind.as_bytes()));
                self.values.insert(name, bytes);
            }
        }
    }

    /// Takes the cache of GIO modules: `module.so: extension point, extension point` a line.
    pub(super) fn add_gio(&mut self, directory: &Path, cache: &[u8]) {
        for line in String::from_utf8_lossy(cache).lines().filter(|line| !line.starts_with('#')) {
            let Some((module, points)) = line.split_once(':') else { continue };
            let path = directory.join(module.trim());
            for point in points.split(',').map(str::trim) {
                if let Some(name) = name(layout::GIO, point) {
                    put(self.values.entry(name).or_default(), path.as_os_str().as_bytes());
                }
            }
        }
    }

    /// Adds what the index is made of, and what of it could not be used.
    pub(super) fn add_lists(
        &mut self,
        inputs: &[Input],
        files: &[PathBuf],
        faults: &[(PathBuf, String)],
    ) {
        let mut bytes = Vec::new();
        inputs.iter().for_each(|input| input.write(&mut bytes));
        self.values.insert(layout::INPUTS.to_owned(), bytes);
        let mut bytes = Vec::new();
        files.iter().for_each(|path| put(&mut bytes, path.as_os_str().as_bytes()));
        self.values.insert(layout::FILES.to_owned(), bytes);
        let mut bytes = Vec::new();
        for (path, reason) in faults {
            put(&mut bytes, path.as_os_str().as_bytes());
            put(&mut bytes, reason.as_bytes());
        }
        self.values.insert(layout::FAULTS.to_owned(), bytes);
        let boot = super::boot_id().map(Vec::from).unwrap_or_default();
        self.values.insert(layout::BOOT.to_owned(), boot);
        self.values.insert(layout::VERSION_AT.to_owned(), layout::VERSION.to_le_bytes().to_vec());
    }

    /// Returns the bytes of the file.
    pub(super) fn write(self) -> Result<Vec<u8>, WriteError> {
        let values: Vec<(String, Variant)> = self
            .values
            .into_iter()
            .map(|(name, bytes)| (name, Variant::from(&bytes[..])))
            .collect();
        let entries = values.iter().map(|(name, value)| (&**name, value.as_bytes()));
        gvdb::write(entries, &Image { locks: &[], generation: Some(1) })
    }
}

/// Puts a claim: reason, level, file, line, identifier.
fn put_claim(bytes: &mut Vec<u8>, claim: Claim<'_>) {
    bytes.push(match claim.reason {
        Reason::Default => b'd',
        Reason::Added => b'a',
        Reason::Declared => b'm',
        Reason::Removed => b'r',
    });
    for number in [claim.level.unwrap_or(u32::MAX), claim.file, claim.line] {
        bytes.extend(number.to_le_bytes());
    }
    put(bytes, claim.id.as_bytes());
}
