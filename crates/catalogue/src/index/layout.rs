//! The sections of an index: under which name it keeps what; docs/index.md describes each.

use super::plugin;

/// The version of the layout: an index of another one is not read.
pub const VERSION: u32 = 4;

/// A value of the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Section {
    /// Its name in the table.
    pub(super) name: &'static str,
    /// Its place among all sections.
    pub(super) at: usize,
}

/// How many sections there are.
pub(super) const SECTIONS: usize = 12 + PluginKey::ALL.len() + AppKey::ALL.len();

impl Section {
    const fn new(name: &'static str, at: usize) -> Section {
        Section { name, at }
    }

    /// Returns what its sum begins with, so that no section can be taken for another one.
    pub(super) fn seed(self) -> u64 {
        self.at as u64 + 1
    }
}

/// The version, a number.
pub(super) const VERSION_AT: Section = Section::new("/version", 0);
/// What the index was made of: of each path what was read from it, how many after it are below it, its identity, and the path with a zero.
pub(super) const INPUTS: Section = Section::new("/input", 1);
/// The files with associations, as claims number them.
pub(super) const FILES: Section = Section::new("/files", 2);
/// The paths that have no record, each with its identity and the reason.
pub(super) const UNUSED: Section = Section::new("/unused", 3);
/// The name of the sources that it was made of.
pub(super) const SOURCES: Section = Section::new("/sources", 4);
/// Where each plugin's record ends, in the order of precedence.
pub(super) const PLUGINS: Section = Section::new("/plugins", 5);
/// Where each application's record ends.
pub(super) const APPS: Section = Section::new("/apps", 6);
/// The records of plugins, each with a sum of its own; the section has none.
pub(super) const PLUGIN_RECORDS: Section = Section::new("/plugin-records", 7);
/// The records of applications.
pub(super) const APP_RECORDS: Section = Section::new("/app-records", 8);
/// Claims on MIME types, by type.
pub(super) const OPEN: Section = Section::new("/open", 9);
/// What MIME types are a kind of, by type.
pub(super) const LINEAGE: Section = Section::new("/lineage", 10);
/// GIO modules by extension point.
pub(super) const GIO: Section = Section::new("/gio", 11);

/// Returns every section, each at its place.
pub(super) fn all_sections() -> [Section; SECTIONS] {
    let own = [
        VERSION_AT,
        INPUTS,
        FILES,
        UNUSED,
        SOURCES,
        PLUGINS,
        APPS,
        PLUGIN_RECORDS,
        APP_RECORDS,
        OPEN,
        LINEAGE,
        GIO,
    ];
    let mut all = [VERSION_AT; SECTIONS];
    let keys = PluginKey::ALL.map(PluginKey::section).into_iter();
    let keys = keys.chain(AppKey::ALL.map(AppKey::section));
    all.iter_mut().zip(own.into_iter().chain(keys)).for_each(|(place, section)| *place = section);
    all
}

/// By what plugins are found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PluginKey {
    /// The identifier.
    Id,
    /// The interface that they implement.
    Interface,
    /// The directory below the root.
    Namespace,
    /// A MIME type that they are for.
    MimeType,
    /// A service type.
    ServiceType,
    /// A protocol.
    Protocol,
    /// A name that Qt's factories use.
    Key,
}

impl PluginKey {
    /// All of them.
    pub const ALL: [PluginKey; 7] = [
        PluginKey::Id,
        PluginKey::Interface,
        PluginKey::Namespace,
        PluginKey::MimeType,
        PluginKey::ServiceType,
        PluginKey::Protocol,
        PluginKey::Key,
    ];

    /// Returns the list in which values lead to plugins.
    pub(super) fn section(self) -> Section {
        let name = match self {
            PluginKey::Id => "/p/id",
            PluginKey::Interface => "/p/interface",
            PluginKey::Namespace => "/p/namespace",
            PluginKey::MimeType => "/p/mime",
            PluginKey::ServiceType => "/p/service",
            PluginKey::Protocol => "/p/protocol",
            PluginKey::Key => "/p/key",
        };
        Section::new(name, GIO.at + 1 + self as usize)
    }

    /// Returns the name of the records' member that has the values.
    #[must_use]
    pub fn member(self) -> &'static str {
        match self {
            PluginKey::Id => plugin::ID,
            PluginKey::Interface => plugin::INTERFACE,
            PluginKey::Namespace => plugin::NAMESPACE,
            PluginKey::MimeType => plugin::MIME_TYPES,
            PluginKey::ServiceType => plugin::SERVICE_TYPES,
            PluginKey::Protocol => plugin::PROTOCOLS,
            PluginKey::Key => plugin::KEYS,
        }
    }
}

/// By what applications are found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AppKey {
    /// The identifier.
    Id,
    /// A MIME type that they declare.
    MimeType,
    /// A category.
    Category,
    /// A keyword, in lower case.
    Keyword,
    /// The name of the program that they run.
    Program,
    /// The name that they own on the session bus.
    BusName,
}

impl AppKey {
    /// All of them.
    pub const ALL: [AppKey; 6] = [
        AppKey::Id,
        AppKey::MimeType,
        AppKey::Category,
        AppKey::Keyword,
        AppKey::Program,
        AppKey::BusName,
    ];

    /// Returns the list in which values lead to applications.
    pub(super) fn section(self) -> Section {
        let name = match self {
            AppKey::Id => "/a/id",
            AppKey::MimeType => "/a/mime",
            AppKey::Category => "/a/category",
            AppKey::Keyword => "/a/keyword",
            AppKey::Program => "/a/program",
            AppKey::BusName => "/a/bus",
        };
        Section::new(name, GIO.at + 1 + PluginKey::ALL.len() + self as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_has_a_place_of_its_own() {
        for (at, section) in all_sections().into_iter().enumerate() {
            assert_eq!(section.at, at, "{}", section.name);
        }
    }
}
