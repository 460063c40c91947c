//! `KPlugin`: what KDE's plugins say of themselves, by the rules of `KPluginMetaData`.

use std::path::Path;

use xdg::languages::Languages;

use super::metadata::Metadata;
use super::value::JsonValue;

/// A plugin of KDE, or of Qt alone: then there is little but its identifier.
#[derive(Clone, Copy, Debug)]
pub struct KPlugin<'a> {
    author: &'a JsonValue<'a>,
    object: &'a JsonValue<'a>,
    path: &'a Path,
}

impl<'a> KPlugin<'a> {
    /// Reads the metadata of the plugin at `path`.
    #[must_use]
    pub fn new(metadata: &'a Metadata<'a>, path: &'a Path) -> KPlugin<'a> {
        let author = metadata.author_data();
        KPlugin { author, object: author.get("KPlugin").unwrap_or(&JsonValue::Null), path }
    }

    /// Returns whether it has a `KPlugin` object.
    #[must_use]
    pub(crate) fn is_kde(&self) -> bool {
        matches!(self.object, JsonValue::Object(_))
    }

    /// Returns its identifier: `Id`, or the file's name up to its last dot.
    #[must_use]
    pub fn id(&self) -> &'a str {
        let given = self.object.get("Id").and_then(JsonValue::text).filter(|id| !id.is_empty());
        given.unwrap_or_else(|| {
            let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.rsplit_once('.').map_or(name, |(base, _)| base)
        })
    }

    /// Returns a text of the object in the user's language, else as it is without one.
    #[must_use]
    pub fn translated(&self, key: &str, languages: &Languages) -> Option<&'a str> {
        let spelled = languages.spellings().find_map(|spelling| {
            self.object.get(&format!("{key}[{spelling}]")).and_then(JsonValue::text)
        });
        spelled.or_else(|| self.text(key))
    }

    /// Returns a text of the object.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.object.get(key)?.text()
    }

    /// Returns a list of texts of the object; one text counts as a list of one, with commas between several, as `KPluginMetaData` reads it.
    pub fn texts(&self, key: &str) -> impl Iterator<Item = &'a str> {
        texts(self.object.get(key))
    }

    /// Returns whether it is on where the user has said nothing: no, unless its author says so.
    #[must_use]
    pub(crate) fn enabled_by_default(&self) -> bool {
        match self.object.get("EnabledByDefault") {
            Some(JsonValue::Bool(value)) => *value,
            Some(JsonValue::Text(text)) => text.eq_ignore_ascii_case("true"),
            _ => false,
        }
    }

    /// Returns whether it is not to be shown to users.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        self.object.get("Hidden") == Some(&JsonValue::Bool(true))
    }

    /// Returns how much it is preferred to others, 0 where it does not say.
    #[must_use]
    pub(crate) fn initial_preference(&self) -> i64 {
        self.object.get("InitialPreference").and_then(JsonValue::whole).unwrap_or(0)
    }

    /// Returns the protocols that it serves (`KDE-KIO-Protocols`).
    pub fn protocols(&self) -> impl Iterator<Item = &'a str> {
        let protocols = self.author.get("KDE-KIO-Protocols");
        protocols.into_iter().flat_map(|protocols| protocols.members()).map(|(name, _)| &**name)
    }

    /// Returns the MIME types that it is for: of KDE's object, and of Qt's own image and style plugins.
    pub fn mime_types(&self) -> impl Iterator<Item = &'a str> {
        self.texts("MimeTypes").chain(texts(self.author.get("MimeTypes")))
    }

    /// Returns the names under which Qt's factories know it (`Keys`).
    pub fn keys(&self) -> impl Iterator<Item = &'a str> {
        texts(self.author.get("Keys"))
    }

    /// Returns the members outside of the `KPlugin` object, which mean something to one kind of plugin.
    pub fn others(&self) -> impl Iterator<Item = (&'a str, &'a JsonValue<'a>)> {
        let members = self.author.members().iter();
        members.filter(|(name, _)| name != "KPlugin").map(|(name, value)| (&**name, value))
    }
}

fn texts<'a>(value: Option<&'a JsonValue<'a>>) -> impl Iterator<Item = &'a str> {
    let list = value.map_or(&[][..], JsonValue::list).iter().filter_map(JsonValue::text);
    let single = value.and_then(JsonValue::text).into_iter().flat_map(|text| text.split(','));
    list.chain(single.map(str::trim).filter(|part| !part.is_empty()))
}
