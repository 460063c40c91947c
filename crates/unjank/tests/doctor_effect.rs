//! `unjank doctor` judges what is in effect, and advises nothing that is there already.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use crate::fixture;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");
const UNJANKD: &str = env!("CARGO_BIN_EXE_unjankd");

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        // A document in a hidden directory would be left out.
        let home = Home(tempfile::Builder::new().prefix("home").tempdir().unwrap());
        for name in ["home/.config", "home/.local/share", "run", "tmp"] {
            fs::create_dir_all(home.at(name)).unwrap();
        }
        home
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Judges each step by a frame that nothing fits, so that all that is judged is bad.
    fn diagnosis(&self, probe: &str, change: impl FnOnce(&mut Command)) -> serde_json::Value {
        let mut command = Command::new(UNJANK);
        command
            .args(["doctor", "--json", "--frame", "1us", "--only", probe])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.at("home"))
            .env("XDG_RUNTIME_DIR", self.at("run"))
            .env("TMPDIR", self.at("tmp"));
        change(&mut command);
        let output = command.output().unwrap();
        let document: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        assert_eq!(document["bad"].as_bool(), Some(output.status.code() == Some(1)));
        document
    }
}

fn finding<'a>(document: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let all = document["findings"].as_array().unwrap();
    let found = all.iter().find(|finding| finding["name"].as_str().unwrap().starts_with(name));
    found.unwrap_or_else(|| panic!("no {name} in {document:#}"))
}

fn commands(document: &serde_json::Value) -> Vec<&str> {
    let actions = document["actions"].as_array().unwrap();
    actions.iter().map(|action| action["command"].as_str().unwrap()).collect()
}

/// Says that a step is shown and not judged.
fn is_comparison(document: &serde_json::Value, name: &str) -> bool {
    let finding = finding(document, name);
    assert_eq!(finding["kind"], "time", "{finding:#}");
    finding["comparison"].as_bool().unwrap()
}

#[test]
fn the_service_that_programs_write_through_is_judged_and_the_other_compared() {
    if !fixture::has(&["dbus-daemon"]) || !Path::new("/usr/libexec/dconf-service").exists() {
        return fixture::skip("there is no dconf-service to compare with");
    }
    let home = Home::new();
    let usual = home.diagnosis("settings", |_| ());
    assert!(!is_comparison(&usual, "write a setting, installed"), "{usual:#}");
    assert!(is_comparison(&usual, "write a setting, unjank"));

    // Ours is what the bus would start.
    let services = home.at("home/.local/share/dbus-1/services");
    fs::create_dir_all(&services).unwrap();
    let text = format!("[D-BUS Service]\nName=ca.desrt.dconf\nExec={UNJANKD} --names dconf\n");
    fs::write(services.join("ca.desrt.dconf.service"), text).unwrap();
    let installed = home.diagnosis("settings", |_| ());
    assert!(!is_comparison(&installed, "write a setting, installed"));
    assert!(is_comparison(&installed, "write a setting, dconf-service"), "{installed:#}");
    let advised = installed.to_string();
    assert!(!advised.contains("setup settings") && !advised.contains("instead"), "{advised}");

    // Whatever is installed, what runs is in effect.
    let Some(bus) = fixture::Bus::start() else { return };
    let _ours = bus.serve(UNJANKD, &["--names", "dconf"]);
    fs::remove_file(services.join("ca.desrt.dconf.service")).unwrap();
    let running = home.diagnosis("settings", |command| {
        command.env("DBUS_SESSION_BUS_ADDRESS", bus.address());
    });
    assert!(is_comparison(&running, "write a setting, installed"), "{running:#}");
    assert!(!is_comparison(&running, "write a setting, unjank"));
    assert!(!running.to_string().contains("setup settings"), "{running:#}");
}

#[test]
fn what_is_relaxed_is_judged_as_it_is_and_not_advised() {
    let library = Path::new(UNJANK).parent().unwrap().join("deps/libunjank_relax.so");
    let home = Home::new();
    let relaxes = |document: &serde_json::Value| {
        commands(document).iter().any(|command| command.contains("setup relax"))
    };
    let usual = home.diagnosis("recents", |_| ());
    assert!(relaxes(&usual), "{usual:#}");

    let relaxed = home.diagnosis("recents", |command| {
        command.env("LD_PRELOAD", &library).env("UNJANK_RELAX_DIR", home.at("home/.local/share"));
    });
    let add = finding(&relaxed, "one add as KDE's");
    assert!(add["measured"].as_str().unwrap().contains("as in this session"), "{relaxed:#}");
    assert!(!relaxes(&relaxed), "{relaxed:#}");
    assert!(is_comparison(&relaxed, "one add by unjank"));

    let output = Command::new(UNJANK)
        .args(["recent", "relax", "--session", "on"])
        .env_clear()
        .env("HOME", home.at("home"))
        .output();
    assert!(output.unwrap().status.success());
    let next = home.diagnosis("recents", |_| ());
    assert!(!relaxes(&next), "it is on from the next login on: {next:#}");
    assert!(next.to_string().contains("log out and in again"), "{next:#}");
}

#[test]
fn a_program_that_asks_for_what_opens_a_file_is_compared_and_nothing_else() {
    if !fixture::has(&["gio"]) {
        return;
    }
    let home = Home::new();
    let applications = home.at("home/.local/share/applications");
    fs::create_dir_all(&applications).unwrap();
    let text = "[Desktop Entry]\nType=Application\nName=a\nExec=sh\nMimeType=text/plain;\n";
    fs::write(applications.join("a.desktop"), text).unwrap();
    fs::write(applications.join("mimeinfo.cache"), "[MIME Cache]\ntext/plain=a.desktop;\n")
        .unwrap();
    let document = home.diagnosis("plugins", |command| {
        command.env("XDG_DATA_DIRS", home.at("share"));
    });
    assert!(is_comparison(&document, "ask gio what opens a file"));
    assert_eq!(document["bad"], false, "{document:#}");
}
