//! A tree of files as they are seldom seen together: every type, odd names, times far away.
#![allow(dead_code, unreachable_pub, reason = "each test uses the part it needs")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a fixture that cannot be set up fails the test"
)]

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

/// The tree, which goes away with this.
pub struct Tree {
    /// It holds the tree alone, so that nobody else changes what `..` is.
    _parent: tempfile::TempDir,
    root: PathBuf,
    _socket: std::os::unix::net::UnixListener,
}

impl Tree {
    /// Makes it; device nodes and other owners only where we may.
    pub fn make() -> Tree {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("tree");
        fs::create_dir(&root).unwrap();
        let path = |name: &[u8]| root.join(OsStr::from_bytes(name));
        for (name, size, mode) in names() {
            file(&path(&name), size, mode);
        }
        // All bytes, in two names; both end in a letter, for GNU ls 9.1 quotes those wrong that do not.
        let all: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
        for part in all.chunks(200) {
            file(&path(&[part, b"z"].concat()), 0, 0o644);
        }
        for (name, seconds) in [("old", 0), ("future", 4_102_444_800), ("y1970", 86_400 * 40)] {
            file(&path(name.as_bytes()), 1, 0o600);
            touch(&path(name.as_bytes()), SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        }
        file(&path(b"before"), 1, 0o600);
        let before = SystemTime::UNIX_EPOCH - Duration::new(123_456_789, 5);
        touch(&path(b"before"), before);
        for (name, days) in [("days-10", 10), ("days-180", 180), ("days-190", 190)] {
            file(&path(name.as_bytes()), 2, 0o644);
            touch(&path(name.as_bytes()), SystemTime::now() - Duration::from_secs(days * 86_400));
        }
        for (name, mode) in [
            ("dir", 0o755),
            ("empty", 0o755),
            ("sticky", 0o1777),
            ("open", 0o777),
            ("st2", 0o1755),
            ("dir sp", 0o755),
            ("dir:colon", 0o750),
        ] {
            fs::create_dir(path(name.as_bytes())).unwrap();
            fs::set_permissions(path(name.as_bytes()), Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(path(b"dir/sub")).unwrap();
        for (name, size) in
            [("dir/f", 0), ("dir/sub/g", 70_000), ("dir sp/x y", 1), ("dir:colon/1", 1)]
        {
            file(&path(name.as_bytes()), size, 0o644);
        }
        for (name, target) in [
            ("link", "plain"),
            ("dangling", "nowhere"),
            ("linkdir", "dir"),
            ("linkexe", "exe"),
            ("link sp", "a b"),
            ("loop", "loop"),
        ] {
            symlink(target, path(name.as_bytes())).unwrap();
        }
        fs::hard_link(path(b"plain"), path(b"hard")).unwrap();
        mknodat(CWD, path(b"pipe"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(path(b"sock")).unwrap();
        if rustix::process::geteuid().is_root() {
            let node = |name: &[u8], kind, major, minor| {
                mknodat(CWD, path(name), kind, Mode::from_raw_mode(0o644), makedev(major, minor))
            };
            // A container may forbid it to root too; the rest is worth comparing.
            let _ = node(b"char", FileType::CharacterDevice, 1, 3);
            let _ = node(b"block", FileType::BlockDevice, 254, 1234);
            let _ = std::os::unix::fs::chown(path(b"old"), Some(12345), Some(54321));
            let _ = std::os::unix::fs::chown(path(b"before"), Some(1), Some(2));
        }
        Tree { _parent: parent, root, _socket: socket }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.root
    }
}

fn names() -> Vec<(Vec<u8>, u64, u32)> {
    let plain: [&[u8]; 38] = [
        b"plain",
        b"new\nline",
        b"tab\t",
        b"bad\xff\xfename",
        "é".as_bytes(),
        "日本".as_bytes(),
        b"\xe2\x82",
        b"esc\x1b[31m",
        b"#h",
        b"~t",
        b"{",
        b"{x}",
        b"-dash",
        b"=eq",
        b"a=b",
        b"a@b",
        b"a*",
        b"?",
        b".hidden",
        b"..two",
        b"back~",
        b"f1",
        b"f2",
        b"f10",
        b"F3",
        b"Zed",
        b"aBc",
        b"x.tar.gz",
        b"x.zip",
        b"a\x01\x02b",
        b"comb e\xcc\x81",
        b"nbsp\xc2\xa0",
        b"soft\xc2\xadhyphen",
        b"zw\xe2\x80\x8bsp",
        b"none\xf0\x9f\xbf\xbf",
        b"emoji\xf0\x9f\x98\x80",
        b"a1.2.10",
        b"a1.2.9",
    ];
    let sized: [(&[u8], u64, u32); 12] = [
        (b"a b", 10, 0o644),
        (b"it's", 1000, 0o644),
        (b"it's $5", 1023, 0o600),
        (b"q\"uote", 1024, 0o640),
        (b"back\\slash", 1025, 0o644),
        (b"large", 12_345_678, 0o644),
        (b"huge", 5 << 40, 0o644),
        (b"exe", 5, 0o755),
        (b"suid", 5, 0o4755),
        (b"sgid", 5, 0o2755),
        (b"sgid2", 5, 0o2644),
        (b"secret", 99_999, 0),
    ];
    let plain = plain.iter().map(|name| (name.to_vec(), 0, 0o644));
    plain.chain(sized.iter().map(|(name, size, mode)| (name.to_vec(), *size, *mode))).collect()
}

fn file(path: &PathBuf, size: u64, mode: u32) {
    let file = fs::OpenOptions::new().write(true).create_new(true).open(path).unwrap();
    file.set_len(size).unwrap();
    file.set_permissions(Permissions::from_mode(mode)).unwrap();
}

fn touch(path: &Path, time: SystemTime) {
    let times = fs::FileTimes::new().set_modified(time).set_accessed(time);
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_times(times).unwrap();
}
