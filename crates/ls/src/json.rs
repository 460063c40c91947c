//! `--json`: what `docs/ls.md` promises, written as it comes.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use jiff::Timestamp;
use listing::Attributes;

use super::entry::{Entry, Group, Known, Mark};
use super::owners::Owners;
use super::size::digits;
use super::template::word;

/// The name and version of the schema; a field may be added without a new version, never changed or removed.
pub(super) const SCHEMA: &str = "unjank.ls/1";

/// Writes one document in parts.
#[derive(Debug)]
pub(super) struct Document {
    owners: Owners,
    listings: usize,
}

impl Document {
    /// Begins the document.
    pub(super) fn begin(out: &mut Vec<u8>) -> Document {
        out.extend_from_slice(b"{\"schema\":");
        text(SCHEMA.as_bytes(), out);
        out.extend_from_slice(b",\"listings\":[");
        Document { owners: Owners::by_name(), listings: 0 }
    }

    /// Appends what is in a directory, or what was named on the command line.
    pub(super) fn listing(&mut self, group: &Group, directory: Option<&Path>, out: &mut Vec<u8>) {
        if self.listings > 0 {
            out.push(b',');
        }
        self.listings += 1;
        out.extend_from_slice(b"\n{");
        match directory {
            Some(path) => bytes("path", path.as_os_str().as_bytes(), out),
            None => out.extend_from_slice(b"\"path\":null"),
        }
        out.extend_from_slice(b",\"entries\":[");
        for (at, entry) in group.entries.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.push(b'\n');
            self.entry(group, entry, out);
        }
        out.extend_from_slice(b"]}");
    }

    /// Begins lines of events instead, each a document of its own.
    pub(super) fn events() -> Document {
        Document { owners: Owners::by_name(), listings: 0 }
    }

    /// Appends the line of an event.
    pub(super) fn event(
        &mut self,
        event: &str,
        group: &Group,
        entry: &Entry,
        directory: &Path,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(b"{\"event\":");
        text(event.as_bytes(), out);
        out.push(b',');
        bytes("path", directory.as_os_str().as_bytes(), out);
        out.extend_from_slice(b",\"entry\":");
        self.entry(group, entry, out);
        out.extend_from_slice(b"}\n");
    }

    /// Appends one entry as an object.
    pub(super) fn entry(&mut self, group: &Group, entry: &Entry, out: &mut Vec<u8>) {
        out.push(b'{');
        bytes("name", group.name(entry), out);
        out.extend_from_slice(b",\"type\":");
        text(word(entry.kind).as_bytes(), out);
        if let Some(link) = group.link(entry) {
            out.push(b',');
            bytes("target", &link.target, out);
        }
        if entry.known == Known::All
            && let Some(known) = group.detail(entry)
        {
            self.attributes(known, out);
            if entry.mark == Mark::Acl {
                out.extend_from_slice(b",\"acl\":true");
            }
        }
        out.push(b'}');
    }

    fn attributes(&mut self, known: &Attributes, out: &mut Vec<u8>) {
        out.extend_from_slice(format!(",\"mode\":\"{:04o}\"", known.mode & 0o7777).as_bytes());
        for (name, number) in [
            ("size", known.size),
            ("disk", known.blocks.saturating_mul(512)),
            ("inode", known.inode),
            ("links", known.links.into()),
            ("uid", known.user.into()),
            ("gid", known.group.into()),
        ] {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            digits(number, out);
        }
        for (name, owner) in [
            ("user", self.owners.user(known.user).name().map(<[u8]>::to_vec)),
            ("group", self.owners.group(known.group).name().map(<[u8]>::to_vec)),
        ] {
            if let Some(owner) = owner {
                out.push(b',');
                bytes(name, &owner, out);
            }
        }
        if known.device != (0, 0) {
            out.extend_from_slice(
                format!(",\"device\":\"{}:{}\"", known.device.0, known.device.1).as_bytes(),
            );
        }
        for (name, stamp) in [
            ("modified", known.modified),
            ("accessed", known.accessed),
            ("changed", known.changed),
            ("born", known.born),
        ] {
            if name == "born" && stamp == listing::FileTime::default() {
                continue;
            }
            let nanos = i32::try_from(stamp.nanoseconds).unwrap_or(0);
            // A time beyond the calendar of RFC 3339 is left out.
            if let Ok(time) = Timestamp::new(stamp.seconds, nanos) {
                out.extend_from_slice(format!(",\"{name}\":\"{time:.9}\"").as_bytes());
            }
        }
    }

    /// Ends the document with what went wrong: what was done, with which path, and the system's words.
    pub(super) fn end(&self, errors: &[(&'static str, Vec<u8>, String)], out: &mut Vec<u8>) {
        out.extend_from_slice(b"],\n\"errors\":[");
        for (at, (what, path, why)) in errors.iter().enumerate() {
            out.extend_from_slice(if at > 0 { b",{" } else { b"{" });
            bytes("path", path, out);
            out.extend_from_slice(b",\"error\":");
            text(format!("cannot {what}: {why}").as_bytes(), out);
            out.push(b'}');
        }
        out.extend_from_slice(b"]}\n");
    }
}

/// Appends a member whose value is a file's bytes: as text, and in hexadecimal digits too if the text is not all of it.
pub(super) fn bytes(name: &str, value: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    text(name.as_bytes(), out);
    out.push(b':');
    text(value, out);
    if std::str::from_utf8(value).is_err() {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"_hex\":\"");
        for byte in value {
            out.extend([HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        out.push(b'"');
    }
}

/// Appends a JSON string; what is not UTF-8 becomes U+FFFD.
fn text(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in value.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            match byte {
                b'"' | b'\\' => out.extend([b'\\', byte]),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\t' => out.extend_from_slice(b"\\t"),
                0..0x20 | 0x7f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                _ => out.push(byte),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_can_be_read_back() {
        for name in [&b"plain"[..], b"\"\\\n\x01\x7f", b"bad\xff\xfename", "é".as_bytes()] {
            let mut out = b"{".to_vec();
            bytes("name", name, &mut out);
            out.push(b'}');
            let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
            let read = match value.get("name_hex") {
                Some(hex) => {
                    let hex = hex.as_str().unwrap();
                    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
                    (0..hex.len()).step_by(2).map(byte).collect()
                }
                None => value["name"].as_str().unwrap().as_bytes().to_vec(),
            };
            assert_eq!(read, name);
        }
    }
}
