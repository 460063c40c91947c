//! What is said of a machine beside its hangs, only if a person asks for it: its system, its kernel, the models of its disks.

use std::collections::BTreeSet;
use std::path::Path;

use store::disk::Disk;

/// The longest name and the longest value that are taken, in bytes.
const MAX_TEXT: usize = 256;
/// The most facts of a file.
const MOST_FACTS: usize = 256;
/// The most volumes, one over the other, that are followed to a disk.
const DEEPEST: usize = 8;
/// The most disks below a volume whose models are told.
const MOST_DISKS: usize = 16;

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

/// Reads a file with a fact in each line; empty lines and those that begin with `#` are none.
///
/// # Errors
///
/// A sentence about what is wrong.
pub fn parse_facts(bytes: &[u8]) -> Result<Vec<(String, String)>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
    let mut facts = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if facts.len() == MOST_FACTS {
            return Err(format!("it has more than {MOST_FACTS} facts"));
        }
        facts.push(parse_fact(line).map_err(|why| format!("line {}: {why}", at + 1))?);
    }
    Ok(facts)
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
    // Services may not see that file.
    let running = || {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        (root == Path::new("/")).then_some(release)
    };
    if let Some(kernel) = read("proc/sys/kernel/osrelease").or_else(running) {
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

/// Returns the model of the disk of a device, also of a partition, or of a volume over one; of a volume over several disks all
/// models.
fn disk_model(disk: &dyn Disk, root: &Path, device: &str) -> Option<String> {
    let class = root.join("sys/class/block");
    let mut level = BTreeSet::from([block_name(disk, root, device)?]);
    let mut models = BTreeSet::new();
    // A volume of the device mapper may be over another one.
    for _ in 0..DEEPEST {
        let mut below = BTreeSet::new();
        for name in level.into_iter().take(MOST_DISKS) {
            let Ok(at) = class.join(&name).canonicalize() else { continue };
            let mut slaves = slaves_at(disk, &at);
            if slaves.is_empty() {
                let model = model_at(disk, &at);
                if model.is_none() {
                    // A partition of an array, which is over disks itself.
                    slaves = at.parent().map_or_else(Vec::new, |array| slaves_at(disk, array));
                }
                models.extend(model);
            }
            below.extend(slaves);
        }
        level = below;
    }
    let models: Vec<String> = models.into_iter().collect();
    (!models.is_empty()).then(|| models.join(" + "))
}

/// Returns the names of the devices that a volume or an array is over.
fn slaves_at(disk: &dyn Disk, at: &Path) -> Vec<String> {
    let names = disk.list(&at.join("slaves")).unwrap_or_default();
    names.into_iter().filter_map(|name| name.into_string().ok()).collect()
}

/// Returns the model of a disk, or of the disk of a partition.
fn model_at(disk: &dyn Disk, at: &Path) -> Option<String> {
    let model = |at: &Path| {
        let bytes =
            disk.read(&at.join("device/model")).or_else(|_| disk.read(&at.join("device/name")));
        let text = String::from_utf8_lossy(&bytes.ok()?).trim().to_owned();
        Some(text).filter(|text| !text.is_empty())
    };
    model(at).or_else(|| model(at.parent()?))
}

/// Returns the name in `/sys/class/block` of a device that is named as below `/dev`: of a volume of LVM, or of an encrypted one, that
/// of the device mapper, which has numbers in the place of names.
fn block_name(disk: &dyn Disk, root: &Path, device: &str) -> Option<String> {
    let is_plain = |part: &str| !part.is_empty() && !part.starts_with('.');
    if !device.split('/').all(is_plain) {
        return None;
    }
    let class = root.join("sys/class/block");
    if !device.contains('/') {
        return Some(device.to_owned());
    }
    // A link, as `/dev/mapper/NAME` and `/dev/disk/by-uuid/NAME` are.
    let target = root.join("dev").join(device).canonicalize().ok();
    let name = target.and_then(|target| Some(target.file_name()?.to_str()?.to_owned()));
    if let Some(name) = name.filter(|name| class.join(name).exists()) {
        return Some(name);
    }
    // A service may have a `/dev` of its own, without disks.
    let mapped = match device.split_once('/')? {
        ("mapper", name) => unescaped(name),
        // `/dev/GROUP/VOLUME` of LVM.
        (group, volume) => format!("{}-{}", group.replace('-', "--"), volume.replace('-', "--")),
    };
    let mut names = disk.list(&class).ok()?;
    names.sort_unstable();
    let is_meant = |name: &String| {
        let found = disk.read(&class.join(name).join("dm/name"));
        name.starts_with("dm-")
            && found.is_ok_and(|found| found.trim_ascii_end() == mapped.as_bytes())
    };
    names.into_iter().filter_map(|name| name.into_string().ok()).find(is_meant)
}

/// Returns the name of a volume as the kernel has it: `udev` writes some bytes as `\x20`.
fn unescaped(name: &str) -> String {
    let mut parts = name.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(&part.as_bytes()[2..]);
            }
            None => bytes.extend([b"\\x", part.as_bytes()].concat()),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
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

    /// Makes a tree as `/sys` and `/dev` have it: disks with partitions, and volumes over what is named.
    #[expect(clippy::disallowed_methods, reason = "a test makes the files that it reads")]
    fn tree(disks: &[(&str, &str)], volumes: &[(&str, &str, &[&str])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let class = root.path().join("sys/class/block");
        std::fs::create_dir_all(&class).unwrap();
        let link = |name: &str, to: &Path| {
            std::os::unix::fs::symlink(to, class.join(name)).unwrap();
        };
        for (name, model) in disks {
            let at = root.path().join("sys/devices").join(name);
            let part = at.join(format!("{name}p1"));
            std::fs::create_dir_all(&part).unwrap();
            std::fs::create_dir_all(at.join("device")).unwrap();
            std::fs::write(at.join("device/model"), format!("{model} \n")).unwrap();
            link(name, &at);
            link(&format!("{name}p1"), &part);
        }
        for (name, mapped, below) in volumes {
            let at = root.path().join("sys/devices/virtual/block").join(name);
            std::fs::create_dir_all(at.join("slaves")).unwrap();
            std::fs::create_dir_all(at.join("dm")).unwrap();
            std::fs::write(at.join("dm/name"), format!("{mapped}\n")).unwrap();
            for slave in *below {
                let to = class.join(slave);
                std::os::unix::fs::symlink(to, at.join("slaves").join(slave)).unwrap();
            }
            link(name, &at);
        }
        root
    }

    fn model(root: &tempfile::TempDir, device: &str) -> Option<String> {
        let facts = read_machine(&*store::disk::real(), root.path(), &BTreeSet::from([device]));
        facts
            .into_iter()
            .find(|(name, _)| *name == format!("disk:{device}"))
            .map(|(_, model)| model)
    }

    #[test]
    fn the_model_of_a_volume_is_that_of_the_disk_below_it() {
        let root = tree(
            &[("nvme0n1", "Some SSD 970"), ("nvme1n1", "Old Disk")],
            &[
                ("dm-0", "luks-1b2c", &["nvme0n1p1"]),
                ("dm-1", "my--group-root--fs", &["dm-0"]),
                ("dm-2", "wide", &["nvme1n1p1", "dm-0"]),
                ("dm-3", "with blank", &["nvme1n1p1"]),
            ],
        );
        let ssd = Some("Some SSD 970".to_owned());
        for device in [
            "mapper/luks-1b2c",
            "mapper/my--group-root--fs",
            "my-group/root-fs",
            "dm-1",
            "nvme0n1p1",
            "nvme0n1",
        ] {
            assert_eq!(model(&root, device), ssd, "{device}");
        }
        assert_eq!(model(&root, "mapper/wide").unwrap(), "Old Disk + Some SSD 970");
        assert_eq!(model(&root, "mapper/with\\x20blank").unwrap(), "Old Disk");
        for device in ["mapper/none", "mapper/../nvme0n1", "mapper/", "/dm-0", "a/b/c", "mapper/.x"]
        {
            assert_eq!(model(&root, device), None, "{device}");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test makes the files that it reads")]
    fn a_link_below_dev_names_the_device() {
        let root = tree(&[("sda", "Disk"), ("sdb", "Other")], &[("dm-7", "x", &["sdap1"])]);
        let dev = root.path().join("dev");
        for dir in ["mapper", "disk/by-uuid"] {
            std::fs::create_dir_all(dev.join(dir)).unwrap();
        }
        for name in ["dm-7", "sdb"] {
            std::fs::write(dev.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("../dm-7", dev.join("mapper/renamed")).unwrap();
        std::os::unix::fs::symlink("../../sdb", dev.join("disk/by-uuid/12-34")).unwrap();
        assert_eq!(model(&root, "mapper/renamed").unwrap(), "Disk");
        assert_eq!(model(&root, "disk/by-uuid/12-34").unwrap(), "Other");
    }

    #[test]
    fn the_models_of_a_partition_of_an_array_are_those_of_its_disks() {
        let root = tree(
            &[("sda", "Disk"), ("sdb", "Other")],
            &[("md126", "", &["sda", "sdbp1"]), ("dm-0", "luks", &["md126p1"])],
        );
        let at = root.path().join("sys/devices/virtual/block/md126/md126p1");
        std::fs::create_dir_all(at.join("holders")).unwrap();
        let link = root.path().join("sys/class/block/md126p1");
        std::os::unix::fs::symlink(at, link).unwrap();
        for device in ["md126p1", "md126", "mapper/luks"] {
            assert_eq!(model(&root, device).as_deref(), Some("Disk + Other"), "{device}");
        }
    }

    #[test]
    fn volumes_that_are_over_each_other_end() {
        let root = tree(&[("sda", "Disk")], &[("dm-0", "a", &["dm-1"]), ("dm-1", "b", &["dm-0"])]);
        assert_eq!(model(&root, "mapper/a"), None);
    }

    #[test]
    fn a_file_of_facts_has_one_in_each_line() {
        let facts = parse_facts(b"# packages\n\nnautilus=43.2-1\n desktop=GNOME 48\n").unwrap();
        let expected = [("nautilus", "43.2-1"), ("desktop", "GNOME 48")];
        assert_eq!(facts, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(parse_facts(b"a=b\nc\n").unwrap_err().starts_with("line 2: "));
        parse_facts(b"a=\xff\n").unwrap_err();
        let many = "a=b\n".repeat(MOST_FACTS);
        parse_facts(many.as_bytes()).unwrap();
        parse_facts(format!("{many}a=b\n").as_bytes()).unwrap_err();
    }

    #[test]
    fn a_fact_is_a_name_and_a_value() {
        parse_fact("nautilus=43.2-1").unwrap();
        for wrong in ["", "x", "=y", "x=", "x=\u{1b}[31m"] {
            parse_fact(wrong).unwrap_err();
        }
    }
}
