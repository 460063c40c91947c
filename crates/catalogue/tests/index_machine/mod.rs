//! A directory with plugins and applications of our own, and an index of them.
#![allow(dead_code, unreachable_pub, reason = "each test uses another part")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "what cannot be set up fails the test"
)]

use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use unjank_catalogue::apps::place::ApplicationDirectories;
use unjank_catalogue::index::Index;
use unjank_catalogue::index::build::CheckDepth;
use unjank_catalogue::index::input::IndexPart;
use unjank_catalogue::index::query::{Basis, IndexAnswer, QuestionAnswer};
use unjank_catalogue::index::refresh::{Location, RefreshOutcome};
use unjank_catalogue::index::sources::IndexSources;

/// A directory of our own with plugins made by the compiler.
pub struct Machine {
    pub root: tempfile::TempDir,
    /// A compiled plugin of Qt 5 and one of Qt 6, to be copied; the identifier in them can be replaced.
    compiled: [Vec<u8>; 2],
}

/// The identifier in the compiled plugins.
const ID: &str = "plugin-0000";

impl Machine {
    pub fn new() -> Machine {
        let root = tempfile::tempdir().unwrap();
        let text = |text: &str| format!(".byte {}\n.ascii \"{text}\"\n", 0x60 + text.len());
        // {2: "org.example.I", 3: "Class", 4: {"KPlugin": {"Id": ID, "Name": "x", "MimeTypes": ["text/plain"]}}}
        let cbor = format!(
            ".byte 0xbf\n.byte 2\n{}.byte 3\n{}.byte 4\n.byte 0xa1\n{}.byte 0xa3\n{}{}{}{}{}.byte 0x81\n{}.byte 0xff\n",
            text("org.example.I"),
            text("Class"),
            text("KPlugin"),
            text("Id"),
            text(ID),
            text("Name"),
            text("x"),
            text("MimeTypes"),
            text("text/plain"),
        );
        let five = format!(
            ".section .qtmetadata,\"a\",@progbits\n.ascii \"QTMETADATA !\"\n.byte 0, 5, 15, 0\n{cbor}"
        );
        let six = format!(
            ".section .note.qt.metadata,\"a\",@note\n.balign 4\n.long 12\n.long 2f-1f\n.long 0x74510001\n.asciz \"qt-project!\"\n1: .byte 1, 6, 4, 1\n{cbor}2:\n.balign 4\n"
        );
        let compiled = [("five", five), ("six", six)].map(|(name, source)| {
            let (input, output) = (root.path().join(format!("{name}.s")), root.path().join(name));
            fs::write(&input, source).unwrap();
            let done = Command::new("gcc")
                .args(["-shared", "-nostdlib", "-o"])
                .arg(&output)
                .arg(&input)
                .status();
            assert!(done.unwrap().success());
            fs::read(output).unwrap()
        });
        fs::create_dir_all(root.path().join("plugins/kf5")).unwrap();
        fs::create_dir_all(root.path().join("share/applications")).unwrap();
        fs::create_dir(root.path().join("cache")).unwrap();
        Machine { root, compiled }
    }

    pub fn plugin(&self, name: &str, number: usize) -> PathBuf {
        let path = self.root.path().join("plugins").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, self.plugin_bytes(number)).unwrap();
        path
    }

    pub fn plugin_bytes(&self, number: usize) -> Vec<u8> {
        let mut bytes = self.compiled[number % 2].clone();
        let at = bytes.windows(ID.len()).position(|window| window == ID.as_bytes()).unwrap();
        bytes[at..at + ID.len()].copy_from_slice(format!("plugin-{number:04}").as_bytes());
        bytes
    }

    pub fn app(&self, name: &str, text: &str) {
        let path = self.root.path().join("share/applications").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("[Desktop Entry]\nType=Application\nName={name}\nExec=sh\n{text}"))
            .unwrap();
    }

    pub fn location(&self) -> Location {
        let at = |name: &str| self.root.path().join(name);
        let places = ApplicationDirectories {
            data_dirs: vec![at("share")],
            path: vec!["/bin".into()],
            ..ApplicationDirectories::default()
        };
        let sources =
            IndexSources { plugin_roots: vec![at("plugins")], places, ..IndexSources::default() };
        Location::new(at("cache"), sources, None)
    }

    pub fn refresh(&self) -> (Index, RefreshOutcome) {
        tick();
        self.location().refresh(&*store::disk::real(), CheckDepth::Directories).unwrap()
    }

    /// Asks for all plugins as a program does.
    pub fn ids_asked(&self) -> IndexAnswer<Vec<String>> {
        let question = |index: &Index| {
            let ids = index.plugins().map(|plugin| plugin.text("Id").unwrap().to_owned());
            QuestionAnswer { value: ids.collect(), basis: Basis::Plugins }
        };
        let disk = store::disk::real();

        self.location().ask(&*disk, |index| index.stale(&[IndexPart::Plugins]), question).unwrap()
    }

    pub fn ids(&self) -> Vec<String> {
        let (index, _) = self.refresh();
        let mut ids: Vec<String> =
            index.plugins().map(|plugin| plugin.text("Id").unwrap().to_owned()).collect();
        ids.sort();
        ids
    }
}

/// Waits until the kernel's clock of files has passed this moment: what was changed before is dated earlier than what comes.
pub fn tick() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    while u128::from(sys::file_clock::now_ns()) <= now.as_nanos() {
        std::thread::yield_now();
    }
}

/// Sets both times that a program can set to one second after 1970, as Nix and OSTree do.
pub fn set_old(path: &Path) {
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    File::open(path)
        .unwrap()
        .set_times(FileTimes::new().set_modified(old).set_accessed(old))
        .unwrap();
}
