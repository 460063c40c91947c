//! What a Qt plugin says of itself: the interface that it implements, its class, and the JSON that its author wrote.
//!
//! Formats: `qplugin_p.h` and `qelfparser_p.cpp` of Qt 5.15 and 6.4; see docs/plugins.md.

use std::fs::File;

use minicbor::decode::Decoder;

use super::cbor::MemberFilter;
use super::elf::{self, ElfError, EncodedMetadata, MetadataLocation};
use super::value::JsonValue;
use super::{cbor, qbjs};
use xdg::languages::Languages;

/// The magic text before the metadata of Qt 5.
const MAGIC: &[u8] = b"QTMETADATA ";

/// Why a file's metadata cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// The file gave no metadata.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// It has metadata in a form that is not known, or damaged.
    #[error("cannot decode the metadata: {0}")]
    Undecodable(String),
}

/// The header of the metadata: which Qt the plugin was built with.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Built {
    /// The major version of Qt.
    pub major: u8,
    /// The minor version of Qt.
    pub minor: u8,
    /// The requirements on the processor, and in bit 0 (Qt 5) or 7 (Qt 6) whether it is a debug build.
    pub requirements: u8,
}

/// A plugin's metadata, borrowed from its encoded bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Metadata<'a> {
    /// Which Qt it was built with.
    pub built: Built,
    /// The members, named as `QPluginLoader::metaData` names them: `IID`, `className`, `MetaData`, `URI` and what `moc -M` added.
    pub root: JsonValue<'a>,
}

impl Metadata<'_> {
    /// Returns the identifier of the interface that the plugin implements.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        self.root.get("IID")?.text()
    }

    /// Returns the name of its class.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        self.root.get("className")?.text()
    }

    /// Returns what its author wrote.
    #[must_use]
    pub(crate) fn author_data(&self) -> &JsonValue<'_> {
        self.root.get("MetaData").unwrap_or(&JsonValue::Null)
    }
}

/// Reads the encoded metadata of the plugin in `file`.
///
/// # Errors
///
/// The file cannot be read, is no plugin, or is damaged.
pub fn read(file: &File) -> Result<EncodedMetadata, MetadataError> {
    Ok(elf::metadata(file)?)
}

/// Decodes metadata.
///
/// # Errors
///
/// It is in a form that is not known, or damaged; nothing of it is used.
pub fn decode(raw: &EncodedMetadata) -> Result<Metadata<'_>, MetadataError> {
    decode_where(raw, &|_| true)
}

/// Decodes metadata without the translations into other languages, which are most of it.
///
/// # Errors
///
/// As [`decode`].
pub fn decode_in<'a>(
    raw: &'a EncodedMetadata,
    languages: &Languages,
) -> Result<Metadata<'a>, MetadataError> {
    // A translation is called `Name[de]`.
    let is_wanted = |name: &[u8]| {
        let Some(name) = name.strip_suffix(b"]") else { return true };
        let Some(at) = name.iter().position(|byte| *byte == b'[') else { return true };
        languages.spellings().any(|spelling| spelling.as_bytes() == &name[at + 1..])
    };
    decode_where(raw, &is_wanted)
}

fn decode_where<'a>(
    raw: &'a EncodedMetadata,
    is_wanted: &MemberFilter<'_>,
) -> Result<Metadata<'a>, MetadataError> {
    match raw.place {
        // The note has a version of its own before the three bytes that both have.
        MetadataLocation::Note => match *raw.bytes.as_slice() {
            [1, major, minor, requirements, ref map @ ..] => {
                from_cbor(Built { major, minor, requirements }, map, is_wanted)
            }
            _ => Err(undecodable("a note of another version")),
        },
        MetadataLocation::Section => from_section(&raw.bytes, is_wanted),
    }
}

fn undecodable(what: &str) -> MetadataError {
    MetadataError::Undecodable(what.to_owned())
}

fn from_section<'a>(
    bytes: &'a [u8],
    is_wanted: &MemberFilter<'_>,
) -> Result<Metadata<'a>, MetadataError> {
    let found = bytes.windows(MAGIC.len()).position(|window| window == MAGIC);
    // The form is in the byte after `QTMETADATA `: `!` for CBOR, and `qbjs` follows at once in the older one.
    let after = found.map(|at| &bytes[at + MAGIC.len()..]);
    match after {
        Some([b'!', 0, major, minor, requirements, map @ ..]) => {
            let built = Built { major: *major, minor: *minor, requirements: *requirements };
            from_cbor(built, map, is_wanted)
        }
        Some([b'!', ..]) => Err(undecodable("a version that is not known")),
        Some(rest) => {
            let start = rest.strip_prefix(b" ").unwrap_or(rest);
            let root = qbjs::decode(start).map_err(|error| undecodable(&error.to_string()))?;
            let version = root.get("version").and_then(JsonValue::whole).unwrap_or(0);
            let byte = |shift: u32| u8::try_from((version >> shift) & 0xff).unwrap_or(0);
            let is_debug = root.get("debug") == Some(&JsonValue::Bool(true));
            let built = Built { major: byte(16), minor: byte(8), requirements: u8::from(is_debug) };
            Ok(Metadata { built, root })
        }
        None => Err(undecodable("no QTMETADATA in its section")),
    }
}

fn from_cbor<'a>(
    built: Built,
    map: &'a [u8],
    is_wanted: &MemberFilter<'_>,
) -> Result<Metadata<'a>, MetadataError> {
    let mut decoder = Decoder::new(map);
    let root = cbor::value_where(&mut decoder, is_wanted)
        .map_err(|error| undecodable(&error.to_string()))?;
    let JsonValue::Object(members) = root else { return Err(undecodable("no map")) };
    let named = members.into_iter().filter_map(|(name, value)| {
        let name = match &*name {
            "2" => "IID".into(),
            "3" => "className".into(),
            "4" => "MetaData".into(),
            "5" => "URI".into(),
            // Numbers that are reserved mean nothing to Qt.
            number if number.parse::<i64>().is_ok() => return None,
            _ => name,
        };
        Some((name, value))
    });
    Ok(Metadata { built, root: JsonValue::Object(named.collect()) })
}
