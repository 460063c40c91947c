//! What is said of a machine beside its hangs, only if a person asks for it: its system, its kernel, the models of its disks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use store::disk::Disk;

/// The longest name and the longest value that are taken, in bytes.
const MAX_TEXT: usize = 256;

/// Something that is so on a machine at a moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fact {
    /// When it was seen, in nanoseconds since 1970.
    pub seen_ns: u64,
    /// Its name, such as `kernel` or `disk:vda`.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Reads `NAME=VALUE`, as `--fact` takes it.
///
/// # Errors
///
/// A sentence about what is wrong.
pub fn parse_fact(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            let is_long = name.len() > MAX_TEXT || value.len() > MAX_TEXT;
            let is_control = text.chars().any(char::is_control);
            match (is_long, is_control) {
                (true, _) => Err(format!("a name or a value has at most {MAX_TEXT} bytes")),
                (_, true) => Err("a fact has no control characters".to_owned()),
                _ => Ok((name.to_owned(), value.to_owned())),
            }
        }
        _ => Err("a fact is NAME=VALUE, such as nautilus=43.2-1".to_owned()),
    }
}

/// Returns the system, the kernel and the models of these devices, as far as they can be read below `root`.
#[must_use]
pub fn read_machine(
    disk: &dyn Disk,
    root: &Path,
    devices: &BTreeSet<&str>,
) -> Vec<(String, String)> {
    let read = |path: &str| {
        let bytes = disk.read(&root.join(path)).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        Some(text).filter(|text| !text.is_empty() && text.len() <= 64 << 10)
    };
    let mut facts = Vec::new();
    let release = read("etc/os-release").or_else(|| read("usr/lib/os-release"));
    if let Some(release) = release {
        let field = |wanted: &str| {
            let lines = release.lines().filter_map(|line| line.split_once('='));
            let value =
                lines.filter(|(name, _)| *name == wanted).map(|(_, value)| value).next_back();
            value.map(|value| value.trim_matches(['"', '\'']).to_owned())
        };
        let words = ["ID", "VERSION_ID", "BUILD_ID", "IMAGE_VERSION"].map(field);
        facts
            .push(("system".to_owned(), words.into_iter().flatten().collect::<Vec<_>>().join(" ")));
    }
    if let Some(kernel) = read("proc/sys/kernel/osrelease") {
        facts.push(("kernel".to_owned(), kernel));
    }
    for device in devices {
        if let Some(model) = disk_model(disk, root, device) {
            facts.push((format!("disk:{device}"), model));
        }
    }
    facts.retain(|(_, value)| !value.is_empty());
    for (_, value) in &mut facts {
        value.retain(|character| !character.is_control());
        let mut end = value.len().min(MAX_TEXT);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        value.truncate(end);
    }
    facts
}

/// Returns the model of the disk of a device, also of a partition, or of a volume over one.
fn disk_model(disk: &dyn Disk, root: &Path, device: &str) -> Option<String> {
    if device.is_empty() || device.contains('/') || device.starts_with('.') {
        return None;
    }
    let class = root.join("sys/class/block");
    let mut at = class.join(device).canonicalize().ok()?;
    // A volume of the device mapper may be over another one.
    for _ in 0..4 {
        let below = disk.list(&at.join("slaves")).ok().and_then(|names| names.into_iter().min());
        let Some(below) = below else { break };
        at = class.join(below).canonicalize().ok()?;
    }
    let model = |at: &Path| {
        let bytes =
            disk.read(&at.join("device/model")).or_else(|_| disk.read(&at.join("device/name")));
        bytes.ok().map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    let parent: Option<PathBuf> = at.parent().map(Path::to_owned);
    model(&at).or_else(|| model(&parent?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test makes the files that it reads")]
    fn the_model_of_a_partition_is_that_of_its_disk() {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join("sys/devices/nvme0n1");
        std::fs::create_dir_all(disk.join("nvme0n1p2")).unwrap();
        std::fs::create_dir_all(disk.join("device")).unwrap();
        std::fs::write(disk.join("device/model"), "Some SSD 970 \n").unwrap();
        std::fs::create_dir_all(root.path().join("sys/class/block")).unwrap();
        let link = root.path().join("sys/class/block/nvme0n1p2");
        std::os::unix::fs::symlink(disk.join("nvme0n1p2"), link).unwrap();
        std::fs::create_dir_all(root.path().join("etc")).unwrap();
        let release = "NAME=x\nID=debian\nVERSION_ID=\"12\"\n";
        std::fs::write(root.path().join("etc/os-release"), release).unwrap();
        let devices = BTreeSet::from(["nvme0n1p2", "../x", "sdz"]);
        let facts = read_machine(&*store::disk::real(), root.path(), &devices);
        let expected = [("system", "debian 12"), ("disk:nvme0n1p2", "Some SSD 970")];
        assert_eq!(facts, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_fact_is_a_name_and_a_value() {
        parse_fact("nautilus=43.2-1").unwrap();
        for wrong in ["", "x", "=y", "x=", "x=\u{1b}[31m"] {
            parse_fact(wrong).unwrap_err();
        }
    }
}
