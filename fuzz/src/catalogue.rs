//! Plugins and applications: what their readers must keep to, whatever the bytes are.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use catalogue::apps::associations::{ClaimStep, explain};
use catalogue::apps::choose;
use catalogue::apps::desktop::DesktopFile;
use catalogue::apps::entries;
use catalogue::index::Index;
use catalogue::index::identity::Identity;
use catalogue::index::layout::{AppKey, PluginKey};
use catalogue::index::record::IndexRecord;
use catalogue::index::{app, plugin};
use catalogue::plugins::elf::{EncodedMetadata, MetadataLocation};
use catalogue::plugins::metadata;
use xdg::languages::Languages;

/// A plugin's file: ELF, its note or its section, and what is in it.
pub fn plugin_elf(data: &[u8]) {
    let Ok(mut file) = tempfile::tempfile() else { return };
    let written: std::io::Result<File> = file.write_all(data).map(|()| file);
    let Ok(raw) = written.map_err(drop).and_then(|file| metadata::read(&file).map_err(drop)) else {
        return;
    };
    assert!(raw.bytes.len() <= data.len());
    decoded(&raw);
}

/// The metadata alone: CBOR or binary JSON. The first byte says which place it is in.
pub fn plugin_metadata(data: &[u8]) {
    let Some((place, bytes)) = data.split_first() else { return };
    let place = if place % 2 == 0 { MetadataLocation::Note } else { MetadataLocation::Section };
    decoded(&EncodedMetadata { place, bytes: bytes.to_vec() });
}

fn decoded(raw: &EncodedMetadata) {
    let german = Languages::of_locale("de_DE.UTF-8");
    let Ok(whole) = metadata::decode(raw) else { return };
    // What is passed over must have been what it seemed.
    let some = metadata::decode_in(raw, &german).expect("less of what was right is right");
    let (path, identity) = (Path::new("/a/b.so"), Identity([1, 2, 3, 4, 5]));
    let [one, other] =
        [&whole, &some].map(|metadata| plugin::record(path, "a", identity, metadata, &german));
    assert_eq!(one, other, "other languages change nothing");
    assert!(one.len() <= 4096 + 64 * raw.bytes.len());
    let _ = whole.root.to_json();
}

/// A desktop file, and its record in an index.
pub fn desktop_file(data: &[u8]) {
    let Ok(file) = DesktopFile::parse(data) else { return };
    let german = Languages::of_locale("de_AT@euro");
    let record =
        app::record(Path::new("/a.desktop"), "a.desktop", 1, Identity::ABSENT, &file, &german);
    assert!(record.len() <= 4096 + 16 * data.len());
    for group in file.groups() {
        for entry in &group.entries {
            assert!(entry.text().len() <= entry.raw.len());
            assert!(entry.list().map(|item| item.len()).sum::<usize>() <= entry.raw.len());
        }
    }
}

/// A list of associations, and the choice of a default in it.
pub fn mimeapps_list(data: &[u8]) {
    for group in ["Default Applications", "Added Associations", "MIME Cache"] {
        for entry in entries::group(data, group).into_iter().flatten() {
            let _ = entry.list().count();
        }
    }
    let Ok(chosen) = choose::set_default(data, "text/x-chosen", "chosen.desktop") else { return };
    let defaults = entries::group(&chosen, "Default Applications");
    let defaults = defaults.expect("it was a key file before").into_iter();
    let of_type: Vec<_> = defaults.filter(|entry| entry.key == "text/x-chosen").collect();
    let text = String::from_utf8_lossy(&chosen);
    assert!(of_type.iter().any(|entry| entry.raw.trim_end() == "chosen.desktop"), "{text:?}");
    let again = choose::set_default(&chosen, "text/x-chosen", "chosen.desktop");
    // A carriage return at the end of the text, or before a zero, which ends a line for GLib, ends a line only the second time.
    if !data.iter().any(|byte| matches!(byte, 0 | b'\r')) {
        assert_eq!(again.as_deref(), Ok(&chosen[..]), "what is chosen stays as it is");
    }
}

/// An index, as it is and as one whose sums are right: everything that is asked of one.
pub fn index(data: &[u8]) {
    let opened = [Index::from_bytes(data.to_vec()), Index::from_resealed(data.to_vec())];
    opened.into_iter().flatten().for_each(|index| asked(&index, data.len()));
}

fn asked(index: &Index, most: usize) {
    let _ = (index.is_whole(), index.is_damaged());
    let mut types = vec!["text/plain"];
    for records in [index.plugins().collect::<Vec<_>>(), index.apps().collect()] {
        assert!(records.len() <= most);
        for record in records.into_iter().take(100) {
            take(record, &mut types);
        }
    }
    assert!(index.inputs().count() <= most && index.faults().count() <= most);
    for text in types.into_iter().take(50) {
        for key in PluginKey::ALL {
            assert!(index.plugins_by(key, text).count() <= most);
        }
        for key in AppKey::ALL {
            assert!(index.apps_by(key, text).count() <= most);
        }
        assert!(index.gio_modules(text).count() <= most);
        let lineage: Vec<&str> = index.lineage(text).into_iter().take(8).collect();
        let steps: Vec<ClaimStep<'_>> =
            explain(&lineage, |name| index.claims(name).take(50).collect::<Vec<_>>(), &Nobody);
        for step in steps {
            let _ = index.association_file(step.claim.file);
        }
    }
}

fn take<'a>(record: IndexRecord<'a>, types: &mut Vec<&'a str>) {
    let _ = (record.path(), record.identity());
    for (name, _) in record.members() {
        types.extend(record.list(name).take(10));
        types.extend(record.text(name));
    }
}

/// Nothing is installed.
struct Nobody;

impl catalogue::apps::associations::Apps for Nobody {
    fn is_usable(&self, id: &str) -> bool {
        id.len().is_multiple_of(2)
    }

    fn is_masked(&self, _: &str, level: u32) -> bool {
        level == 7
    }
}
