//! A plugin's record: what is asked of plugins, in one language.

use std::path::Path;

use super::identity::Identity;
use super::record::RecordBuilder;
use crate::plugins::kplugin::KPlugin;
use crate::plugins::metadata::Metadata;
use crate::plugins::value::JsonValue;
use xdg::languages::Languages;

/// The identifier: `Id`, or the file's name.
pub const ID: &str = "Id";
/// The identifier of the interface that it implements (IID).
pub const INTERFACE: &str = ".interface";
/// The name of its class.
pub const CLASS: &str = ".class";
/// The directory below the root, as `kf5/kio`; what KDE calls the namespace.
pub(crate) const NAMESPACE: &str = ".namespace";
/// The versions of Qt that it was built with: major, minor, requirements.
pub const QT: &str = ".qt";
/// The MIME types that it is for.
pub(crate) const MIME_TYPES: &str = "MimeTypes";
/// What KDE 4 called its service types.
pub(crate) const SERVICE_TYPES: &str = "ServiceTypes";
/// The protocols that it serves.
pub(crate) const PROTOCOLS: &str = ".protocols";
/// The names under which Qt's factories know it.
pub const KEYS: &str = "Keys";

/// Texts of the `KPlugin` object that are translated.
const TRANSLATED: [&str; 3] = ["Name", "Description", "Copyright"];

/// Makes the record of the plugin at `path`, which is in the directory `namespace` below its root.
#[must_use]
pub fn record(
    path: &Path,
    namespace: &str,
    identity: Identity,
    metadata: &Metadata<'_>,
    languages: &Languages,
) -> Vec<u8> {
    let plugin = KPlugin::new(metadata, path);
    let mut record = RecordBuilder::new(path, identity);
    record.some_text(ID, Some(plugin.id()));
    record.some_text(INTERFACE, metadata.interface());
    record.some_text(CLASS, metadata.class());
    record.some_text(NAMESPACE, Some(namespace));
    let built = metadata.built;
    record.bytes(QT, &[built.major, built.minor, built.requirements]);
    record.list(MIME_TYPES, plugin.mime_types());
    record.list(SERVICE_TYPES, plugin.texts(SERVICE_TYPES));
    record.list(PROTOCOLS, plugin.protocols());
    record.list(KEYS, plugin.keys());
    if plugin.is_kde() {
        record.truth("EnabledByDefault", plugin.enabled_by_default());
        record.truth("Hidden", plugin.is_hidden());
        record.whole("InitialPreference", plugin.initial_preference());
        record.list("FormFactors", plugin.texts("FormFactors"));
        for name in TRANSLATED {
            record.some_text(name, plugin.translated(name, languages));
        }
    }
    let object = metadata.author_data().get("KPlugin").map_or(&[][..], JsonValue::members);
    let members = object.iter().map(|(name, value)| (&**name, value));
    for (name, value) in members.chain(plugin.others()) {
        // Other languages, people and protocols are read from the plugin itself by who wants them.
        if !name.starts_with('.') && !name.contains('[') {
            set(&mut record, name, value);
        }
    }
    record.build()
}

/// Adds a value that a constraint can ask for: a text, a number, a truth or a list of texts.
fn set(record: &mut RecordBuilder, name: &str, value: &JsonValue<'_>) {
    match value {
        JsonValue::Bool(value) => record.truth(name, *value),
        JsonValue::Int(value) => record.whole(name, *value),
        JsonValue::Float(value) => record.fraction(name, *value),
        JsonValue::Text(text) => record.text(name, text),
        JsonValue::List(items) if items.iter().all(|item| item.text().is_some()) => {
            record.list(name, items.iter().filter_map(JsonValue::text));
        }
        JsonValue::List(_) | JsonValue::Null | JsonValue::Object(_) => {}
    }
}
