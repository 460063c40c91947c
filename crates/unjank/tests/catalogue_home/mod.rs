//! A home of its own with plugins and applications, and the command in it.
#![allow(dead_code, unreachable_pub, reason = "each test uses another part")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "what cannot be set up fails the test"
)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

pub const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");

/// A home with two applications and a plugin.
pub struct Home(tempfile::TempDir);

impl Home {
    pub fn new() -> Home {
        let home = Home(tempfile::tempdir().unwrap());
        let apps = home.path("data/applications");
        fs::create_dir_all(&apps).unwrap();
        fs::create_dir_all(home.path("config")).unwrap();
        fs::create_dir_all(home.path("plugins/kf5")).unwrap();
        let app = |name: &str, rest: &str| home.app(name, rest);
        app("writer", "MimeType=text/plain;\nKeywords=Letter;\n");
        app("painter", "MimeType=image/png;\nNoDisplay=true\n");
        fs::write(
            apps.join("mimeinfo.cache"),
            "[MIME Cache]\ntext/plain=writer.desktop;\nimage/png=painter.desktop;\n",
        )
        .unwrap();
        let source = home.path("plugin.s");
        // {2: "org.example.I", 4: {"KPlugin": {"Id": "one", "Name": "One", "Name[de]": "Eins"}}}
        let cbor = ".byte 0xa2,2,0x6d\n.ascii \"org.example.I\"\n.byte 4,0xa1,0x67\n.ascii \"KPlugin\"\n.byte 0xa3,0x62\n.ascii \"Id\"\n.byte 0x63\n.ascii \"one\"\n.byte 0x64\n.ascii \"Name\"\n.byte 0x63\n.ascii \"One\"\n.byte 0x68\n.ascii \"Name[de]\"\n.byte 0x64\n.ascii \"Eins\"\n";
        fs::write(&source, format!(".section .qtmetadata,\"a\",@progbits\n.ascii \"QTMETADATA !\"\n.byte 0,5,15,0\n{cbor}")).unwrap();
        let done = Command::new("gcc")
            .args(["-shared", "-nostdlib", "-o"])
            .arg(home.path("plugins/kf5/one.so"))
            .arg(&source)
            .status();
        assert!(done.unwrap().success());
        sys::file_clock::wait_until_later();
        home
    }

    /// Writes a desktop file of the user's.
    pub fn app(&self, name: &str, rest: &str) {
        let text = format!(
            "[Desktop Entry]\nType=Application\nName={name}\nName[de]={name} auf Deutsch\nExec=sh -c {name}\n{rest}"
        );
        fs::write(self.path(&format!("data/applications/{name}.desktop")), text).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn unjank(&self, words: &[&str]) -> Output {
        self.command(UNJANK).args(words).output().unwrap()
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.0.path())
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("XDG_CONFIG_DIRS", self.path("etc"))
            .env("XDG_DATA_HOME", self.path("data"))
            .env("XDG_DATA_DIRS", self.path("share"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("XDG_RUNTIME_DIR", self.path("runtime"))
            .env("QT_PLUGIN_PATH", self.path("plugins"));
        command
    }

    /// Asks again until a command that changes nothing says what is expected.
    pub fn until(&self, words: &[&str], expected: impl Fn(&Output) -> bool) {
        let start = Instant::now();
        while !expected(&self.unjank(words)) {
            assert!(start.elapsed() < Duration::from_secs(60), "{words:?}");
        }
    }

    /// Returns what a command printed that exits with `code`.
    pub fn said(&self, code: i32, words: &[&str]) -> String {
        let output = self.unjank(words);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {errors}");
        String::from_utf8(if code == 2 { output.stderr } else { output.stdout }).unwrap()
    }
}
