//! The record of what was put in place, and of what was there before.
//!
//! One JSON document, `$XDG_STATE_HOME/unjank/setup.json` or `/var/lib/unjank/setup.json`, replaced as a whole:
//!
//! ```json
//! {"schema": "unjank.setup.manifest/1", "crc32c": 1234, "manifest": {
//!   "program": "0.1.0", "directories": ["/home/ana/.local/share/dbus-1"], "switches": [],
//!   "files": [{"part": "settings", "path": "/home/ana/.local/share/dbus-1/services/ca.desrt.dconf.service",
//!     "before": {"kind": "absent"}, "ours": [{"kind": "file", "len": 111, "crc32c": 99}]}],
//!   "since": {"settings": 1795248000}}}
//! ```
//!
//! A step is in it before it is made, so that whatever a crash leaves can be told apart: what is at a path is one of
//! `ours`, is what was there `before`, or is somebody else's.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::disk::Disk;
use store::publish::{InPlace, NewFile, publish_new};

use crate::error::SetupError;
use crate::layout::SetupScope;
use crate::observe::{Fingerprint, LONGEST_KEPT, Observed};
use crate::part::SetupPart;
use crate::plan;

/// The name and version of the format.
pub const SCHEMA: &str = "unjank.setup.manifest/1";
const FAMILY: &str = "unjank.setup.manifest/";

/// A longer file is no manifest.
const LONGEST: u64 = 16 << 20;
/// More files than an installation could have.
const MOST_FILES: usize = 1000;

/// What was there before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Before {
    /// Nothing, or a file of an earlier installation of ours.
    Absent,
    /// A file.
    File {
        /// Its bytes, two hexadecimal digits each.
        hex: String,
        /// Its permission bits.
        mode: u32,
    },
    /// A symlink.
    Link {
        /// Where it points.
        target: String,
    },
}

impl Before {
    /// Returns what is to be kept of it; none of what cannot be kept.
    pub(crate) fn of(observed: &Observed) -> Option<Before> {
        Some(match observed {
            Observed::Absent => Before::Absent,
            Observed::File { bytes, .. } if bytes.len() > LONGEST_KEPT => return None,
            Observed::File { bytes, mode } => {
                let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                Before::File { hex, mode: *mode }
            }
            Observed::Link(target) => Before::Link { target: target.to_str()?.to_owned() },
            Observed::Other => return None,
        })
    }

    /// Returns it as it was seen.
    pub(crate) fn observed(&self) -> Option<Observed> {
        Some(match self {
            Before::Absent => Observed::Absent,
            Before::File { hex, mode } => {
                let digits: Option<Vec<u32>> =
                    hex.chars().map(|digit| digit.to_digit(16)).collect();
                let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
                let byte = |pair: &[u32]| u8::try_from(pair[0] * 16 + pair[1]).ok();
                let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
                Observed::File { bytes: bytes?, mode: mode & 0o777 }
            }
            Before::Link { target } => Observed::Link(target.into()),
        })
    }
}

/// A file that was put in place, or was about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedFile {
    pub(crate) part: String,
    pub(crate) path: PathBuf,
    pub(crate) before: Before,
    /// What we put there, the latest last.
    pub(crate) ours: Vec<Fingerprint>,
}

impl RecordedFile {
    pub(crate) fn is_of(&self, part: SetupPart) -> bool {
        self.part == part.name()
    }

    pub(crate) fn was_ours(&self, observed: &Observed) -> bool {
        observed.fingerprint().is_some_and(|print| self.ours.contains(&print))
    }
}

/// Something that a part switches and that is no file of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedSwitch {
    /// The part.
    pub part: String,
    /// Its name, such as `volatile`.
    pub name: String,
    /// What it was before.
    pub before: bool,
}

/// Everything that was done and not taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The version of the program that wrote it.
    #[serde(default)]
    pub(crate) program: String,
    /// Directories that were made.
    #[serde(default)]
    pub(crate) directories: BTreeSet<PathBuf>,
    #[serde(default)]
    pub(crate) switches: Vec<RecordedSwitch>,
    #[serde(default)]
    pub(crate) files: Vec<RecordedFile>,
    /// When each part was switched on, in seconds since 1970; of one that an earlier version has switched on there is none.
    #[serde(default)]
    pub(crate) since: BTreeMap<String, u64>,
}

impl Manifest {
    pub(crate) fn is_empty(&self) -> bool {
        self.switches.is_empty() && self.files.is_empty()
    }

    /// Returns whether it has a step of the part of this name.
    pub(crate) fn has_part(&self, name: &str) -> bool {
        self.files.iter().any(|file| file.part == name)
            || self.switches.iter().any(|switch| switch.part == name)
    }

    /// Reads the manifest at `path`; an empty one if there is none.
    ///
    /// It must be a regular file of the user who asks, whom nobody else can change it for: another user's manifest would
    /// have us remove and write what that user chose.
    pub(crate) fn read(disk: &dyn Disk, path: &Path, owner: u32) -> Result<Manifest, SetupError> {
        let damaged =
            |why: &str| SetupError::BadManifest { path: path.to_owned(), why: why.to_owned() };
        let unread = |source: io::Error| SetupError::NotExamined { path: path.to_owned(), source };
        match disk.read_link(path) {
            Ok(_) => return Err(damaged("it is a symlink")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Manifest::default());
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            Err(error) => return Err(unread(error)),
        }
        disk.check_trusted(path).map_err(unread)?;
        let stat = disk.stat(path).map_err(unread)?;
        if stat.owner.0 != owner {
            return Err(SetupError::AnotherUsers { path: path.to_owned(), owner: stat.owner.0 });
        }
        if stat.mode & 0o022 != 0 {
            return Err(damaged("others may write it"));
        }
        if !stat.is_file() {
            return Err(damaged("it is no file"));
        }
        if stat.len > LONGEST {
            return Err(damaged("it is too long"));
        }
        Manifest::parse(&disk.read(path).map_err(unread)?, path)
    }

    fn parse(bytes: &[u8], path: &Path) -> Result<Manifest, SetupError> {
        let damaged =
            |why: &str| SetupError::BadManifest { path: path.to_owned(), why: why.to_owned() };
        let document: Value =
            serde_json::from_slice(bytes).map_err(|_| damaged("it is damaged"))?;
        match document["schema"].as_str() {
            Some(SCHEMA) => {}
            Some(other) if other.starts_with(FAMILY) => {
                return Err(damaged("a newer version of unjank has written it"));
            }
            _ => return Err(damaged("it is damaged")),
        }
        let sum = document["crc32c"].as_u64();
        if sum != Some(u64::from(sum_of(&document["manifest"]))) {
            return Err(damaged("it is damaged: its checksum is wrong"));
        }
        let manifest: Manifest = serde_json::from_value(document["manifest"].clone())
            .map_err(|_| damaged("it is damaged"))?;
        if manifest.files.len() > MOST_FILES || manifest.directories.len() > MOST_FILES {
            return Err(damaged("it names more files than an installation has"));
        }
        for file in &manifest.files {
            let is_whole = file.before.observed().is_some();
            if !is_plain(&file.path) || !plan::is_our_path(&file.path) || !is_whole {
                return Err(damaged("it names a file that is none of unjank's"));
            }
        }
        if !manifest.directories.iter().all(|path| is_plain(path)) {
            return Err(damaged("it names a directory that is none"));
        }
        Ok(manifest)
    }

    /// Replaces the manifest at `path`, durably.
    pub(crate) fn write(
        &self,
        disk: &dyn Disk,
        path: &Path,
        scope: SetupScope,
    ) -> Result<(), SetupError> {
        let is_hidden = |file: &RecordedFile| match file.before {
            Before::File { mode, .. } => mode & 0o004 == 0,
            Before::Absent | Before::Link { .. } => false,
        };
        // Every user may know what is on for all; what was no reading for them before is none here.
        let mode = match scope {
            SetupScope::System if !self.files.iter().any(is_hidden) => 0o644,
            SetupScope::System | SetupScope::User => 0o600,
        };
        let manifest = serde_json::to_value(self).map_err(io::Error::other);
        let text = manifest.and_then(|manifest| {
            let sum = sum_of(&manifest);
            let document =
                serde_json::json!({ "schema": SCHEMA, "crc32c": sum, "manifest": manifest });
            serde_json::to_vec_pretty(&document).map_err(io::Error::other)
        });
        let text =
            text.map_err(|source| SetupError::NotExamined { path: path.to_owned(), source })?;
        publish_new(disk, path, NewFile::Image(&text), mode, InPlace::Anything)
            .map_err(|source| SetupError::NotRecorded { source })?;
        Ok(())
    }
}

/// Returns the checksum of a value in the one form that it has: without spaces, members in order.
fn sum_of(value: &Value) -> u32 {
    crc32c::crc32c(value.to_string().as_bytes())
}

/// Says whether a path is absolute and leads nowhere else on its way.
fn is_plain(path: &Path) -> bool {
    let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
    let mut parts = path.components();
    let text = path.to_string_lossy();
    parts.next() == Some(Component::RootDir) && parts.all(is_name) && !text.contains(['\0', '\n'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::sim::SimDisk;

    const PATH: &str = "/s/unjank/setup.json";

    fn example() -> Manifest {
        Manifest {
            program: "0.0.1".to_owned(),
            files: vec![RecordedFile {
                part: "settings".to_owned(),
                path: "/d/dbus-1/services/ca.desrt.dconf.service".into(),
                before: Before::File { hex: "00ff".to_owned(), mode: 0o600 },
                ours: vec![Fingerprint::of(b"x")],
            }],
            since: BTreeMap::from([("settings".to_owned(), 1_795_248_000)]),
            ..Manifest::default()
        }
    }

    fn text_of(manifest: &Value) -> Vec<u8> {
        let sum = sum_of(manifest);
        serde_json::json!({ "schema": SCHEMA, "crc32c": sum, "manifest": manifest })
            .to_string()
            .into_bytes()
    }

    #[test]
    fn what_is_written_is_read() {
        let disk = SimDisk::new().with_dir("/s/unjank");
        example().write(&disk, Path::new(PATH), SetupScope::User).unwrap();
        let bytes = disk.read(Path::new(PATH)).unwrap();
        assert_eq!(Manifest::parse(&bytes, Path::new(PATH)).unwrap(), example());
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let disk = SimDisk::new().with_dir("/s/unjank");
        example().write(&disk, Path::new(PATH), SetupScope::User).unwrap();
        let whole = disk.read(Path::new(PATH)).unwrap();
        let good = Manifest::parse(&whole, Path::new(PATH)).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            // White space between members means nothing.
            let read = Manifest::parse(&bytes, Path::new(PATH));
            assert!(read.is_err() || read.is_ok_and(|read| read == good), "byte {at}");
            assert!(Manifest::parse(&whole[..at], Path::new(PATH)).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_manifest_leads_to_no_file_but_those_of_an_installation() {
        let base = serde_json::to_value(example()).unwrap();
        for path in [
            "/home/ana/.ssh/authorized_keys",
            "/etc/../home/ana/dbus-1/services/ca.desrt.dconf.service",
            "dbus-1/services/ca.desrt.dconf.service",
            "/d/dbus-1/services/../../../etc/passwd",
            "/etc/passwd",
            "/d/dbus-1/services/org.other.service",
            "",
        ] {
            let mut hostile = base.clone();
            hostile["files"][0]["path"] = path.into();
            let read = Manifest::parse(&text_of(&hostile), Path::new(PATH));
            assert!(matches!(read, Err(SetupError::BadManifest { .. })), "{path}");
        }
        let mut hostile = base.clone();
        hostile["directories"] = serde_json::json!(["/a/../../etc"]);
        Manifest::parse(&text_of(&hostile), Path::new(PATH)).unwrap_err();
        let mut hostile = base.clone();
        hostile["files"][0]["before"]["hex"] = "0".into();
        Manifest::parse(&text_of(&hostile), Path::new(PATH)).unwrap_err();
        let mut many = base.clone();
        many["files"] = vec![base["files"][0].clone(); MOST_FILES + 1].into();
        Manifest::parse(&text_of(&many), Path::new(PATH)).unwrap_err();
    }

    #[test]
    fn a_manifest_of_an_older_version_is_read_and_one_of_a_newer_version_is_named() {
        // Without what was added since.
        let old = serde_json::json!({ "files": [] });
        assert!(Manifest::parse(&text_of(&old), Path::new(PATH)).unwrap().is_empty());
        let mut more = serde_json::to_value(example()).unwrap();
        more["added"] = 1.into();
        assert_eq!(Manifest::parse(&text_of(&more), Path::new(PATH)).unwrap(), example());
        let newer = br#"{"schema": "unjank.setup.manifest/2"}"#;
        let error = Manifest::parse(newer, Path::new(PATH)).unwrap_err().to_string();
        assert!(error.contains("a newer version"), "{error}");
    }
}
