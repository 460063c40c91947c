//! The names under which an index keeps what; docs/index.md describes each.

use super::plugin;

/// The version of the layout: an index of another one is not read.
pub const VERSION: u32 = 3;

/// The version, a number.
pub const VERSION_AT: &str = "/version";
/// The identifier of the boot in which it was made.
pub const BOOT: &str = "/boot";
/// What the index was made of: of each path what was read from it, how many after it are below it, its identity, and the path with a zero.
pub const INPUTS: &str = "/input";
/// The files with associations, as claims number them.
pub const FILES: &str = "/files";
/// The paths that could not be used, each with the reason.
pub const FAULTS: &str = "/faults";

/// The name of the sources that it was made of.
pub const SOURCES: &str = "/sources";
/// What is kept of plugins: a list in the order of precedence.
pub const PLUGINS: &str = "/plugins";
/// What is kept of applications.
pub const APPS: &str = "/apps";
/// Claims on MIME types, by type.
pub const OPEN: &str = "/open";
/// What MIME types are a kind of, by type.
pub const LINEAGE: &str = "/lineage";
/// GIO modules by extension point.
pub const GIO: &str = "/gio";

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

    /// Returns the name of the list in which values lead to plugins.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PluginKey::Id => "/p/id",
            PluginKey::Interface => "/p/interface",
            PluginKey::Namespace => "/p/namespace",
            PluginKey::MimeType => "/p/mime",
            PluginKey::ServiceType => "/p/service",
            PluginKey::Protocol => "/p/protocol",
            PluginKey::Key => "/p/key",
        }
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

    /// Returns the name of the list in which values lead to applications.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AppKey::Id => "/a/id",
            AppKey::MimeType => "/a/mime",
            AppKey::Category => "/a/category",
            AppKey::Keyword => "/a/keyword",
            AppKey::Program => "/a/program",
            AppKey::BusName => "/a/bus",
        }
    }
}
