//! Our images in the hands of dconf itself.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test makes its files as it likes, reads REQUIRE_ALL and says what it skips"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use unjank_store::table::gvariant::Variant;
use unjank_store::table::gvdb::{Image, Stamp, Table, stamp, write};

type Model = BTreeMap<String, Variant>;

fn model() -> Model {
    let texts = [
        ("/a/b", "1"),
        ("/a/b-c", "'sorts before the directory b/'"),
        ("/a/b/x", "uint64 18446744073709551615"),
        ("/org/gnome/desktop/interface/font-name", "'Cantarell 11'"),
        ("/org/gnome/desktop/interface/scale", "1.5"),
        ("/org/gnome/desktop/input/sources", "[('xkb', 'us'), ('xkb', 'de')]"),
        ("/org/gnome/empty", "@as []"),
        ("/org/gnome/maybe", "@mi 5"),
        ("/org/gnome/map", "{'k': <1>, 'l': <'x'>}"),
        ("/root", "true"),
        ("/ü/日本", "'Grüße'"),
    ];
    texts.map(|(name, text)| (name.to_owned(), Variant::parse(None, text).expect(text))).into()
}

fn image(model: &Model, generation: Option<u64>) -> Vec<u8> {
    let entries = model.iter().map(|(name, value)| (&**name, value.as_bytes()));
    write(entries, &Image { locks: &[], generation }).expect("keys")
}

/// Directories of one person, and nothing of this machine's own.
struct Home(tempfile::TempDir);

impl Home {
    /// Makes a home whose user database is `image`; `None` where a program that is needed is missing.
    fn with(image: &[u8], programs: &[&str]) -> Option<Home> {
        for program in programs {
            let found = Command::new("sh")
                .args(["-c", &format!("command -v {program}")])
                .stdout(Stdio::null())
                .status();
            if !found.is_ok_and(|status| status.success()) {
                assert!(
                    std::env::vars().all(|(name, _)| name != "REQUIRE_ALL"),
                    "{program} is missing"
                );
                println!("SKIPPED: no {program}");
                return None;
            }
        }
        let home = Home(tempfile::tempdir().expect("a directory"));
        for dir in ["config/dconf", "run", "cache", "data"] {
            std::fs::create_dir_all(home.0.path().join(dir)).expect("a directory");
        }
        std::fs::write(home.database(), image).expect("a file");
        Some(home)
    }

    fn database(&self) -> PathBuf {
        self.0.path().join("config/dconf/user")
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let dir = |name: &str| -> PathBuf { Path::new(self.0.path()).join(name) };
        let out = Command::new(program)
            .args(arguments)
            .env("HOME", self.0.path())
            .env("XDG_CONFIG_HOME", dir("config"))
            .env("XDG_RUNTIME_DIR", dir("run"))
            .env("XDG_CACHE_HOME", dir("cache"))
            .env("XDG_DATA_HOME", dir("data"))
            .env("LC_ALL", "C.UTF-8")
            .env_remove("DCONF_PROFILE")
            .env_remove("DBUS_SESSION_BUS_ADDRESS")
            .stdin(Stdio::null())
            .output()
            .expect(program);
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{program} {arguments:?}: {errors}");
        String::from_utf8(out.stdout).expect("text")
    }
}

#[test]
fn dconf_reads_every_key_and_lists_every_directory_of_our_image() {
    for generation in [None, Some(1 << 40)] {
        let model = model();
        let Some(home) = Home::with(&image(&model, generation), &["dconf"]) else { return };
        for (name, value) in &model {
            assert_eq!(home.run("dconf", &["read", name]).trim_end(), value.print(), "{name}");
        }
        assert_eq!(home.run("dconf", &["list", "/"]), "a/\norg/\nroot\nü/\n");
        assert_eq!(home.run("dconf", &["list", "/a/"]), "b\nb-c\nb/\n");
        assert_eq!(home.run("dconf", &["list", "/org/gnome/"]), "desktop/\nempty\nmap\nmaybe\n");
        assert_eq!(home.run("dconf", &["read", "/org/gnome/nothing"]), "");
    }
}

#[test]
fn the_stamp_is_not_seen_by_dconf() {
    let model = model();
    let Some(stamped) = Home::with(&image(&model, Some(5)), &["dconf"]) else { return };
    let Some(plain) = Home::with(&image(&model, None), &["dconf"]) else { return };
    let dump = stamped.run("dconf", &["dump", "/"]);
    assert_eq!(dump, plain.run("dconf", &["dump", "/"]));
    assert!(dump.contains("font-name='Cantarell 11'") && !dump.contains("unjank"));
    let Some(empty) = Home::with(&image(&Model::new(), Some(5)), &["dconf"]) else { return };
    assert_eq!(empty.run("dconf", &["dump", "/"]), "");
}

#[test]
fn gsettings_reads_our_image() {
    let value = Variant::parse(None, "'Cantarell 23'").expect("a text");
    let name = "/org/gnome/desktop/interface/font-name";
    let model: Model = [(name.to_owned(), value)].into();
    let Some(home) = Home::with(&image(&model, Some(5)), &["gsettings", "dconf"]) else { return };
    let schemas = home.run("gsettings", &["list-schemas"]);
    if !schemas.lines().any(|schema| schema == "org.gnome.desktop.interface") {
        assert!(std::env::var_os("REQUIRE_ALL").is_none(), "the schemas are missing");
        println!("SKIPPED: no gsettings-desktop-schemas");
        return;
    }
    let read = home.run("gsettings", &["get", "org.gnome.desktop.interface", "font-name"]);
    assert_eq!(read, "'Cantarell 23'\n");
}

#[test]
fn dconf_service_writes_our_keys_on_without_the_stamp() {
    let mut model = model();
    let programs = ["dconf", "dbus-run-session", "/usr/libexec/dconf-service"];
    let Some(home) = Home::with(&image(&model, Some(5)), &programs) else { return };
    home.run("dbus-run-session", &["--", "dconf", "write", "/a/new", "'by dconf'"]);
    model.insert("/a/new".to_owned(), Variant::parse(None, "'by dconf'").expect("a text"));
    let file = std::fs::read(home.database()).expect("a file");
    assert_eq!(stamp(&file), Stamp::None);
    let table = Table::open(&file).expect("a table");
    assert_eq!(table.check(), Ok(()));
    assert!(table.nested(".unjank").is_none());
    let read: Model =
        table.entries().map(|(name, _)| (name.clone(), read_value(table, &name))).collect();
    assert_eq!(read, model);
}

fn read_value(table: Table<'_>, name: &str) -> Variant {
    let value = table.value(name).unwrap_or_default();
    unjank_store::table::gvariant::View::inside(value, table.order()).to_variant()
}

#[test]
fn locks_of_our_image_hold_in_dconf() {
    let model = model();
    let entries = model.iter().map(|(name, value)| (&**name, value.as_bytes()));
    let locks = ["/root", "/a/b"];
    let system = write(entries, &Image { locks: &locks, generation: Some(2) }).expect("keys");
    let Some(home) = Home::with(&image(&Model::new(), None), &["dconf"]) else { return };
    let (file, profile) = (home.0.path().join("locked"), home.0.path().join("profile"));
    std::fs::write(&file, system).expect("a file");
    let lines = format!("user-db:user\nfile-db:{}\n", file.display());
    std::fs::write(&profile, lines).expect("a file");
    let command = format!("DCONF_PROFILE={} dconf list-locks /", profile.display());
    let listed = home.run("sh", &["-c", &command]);
    let mut listed: Vec<&str> = listed.lines().collect();
    listed.sort_unstable();
    assert_eq!(listed, ["/a/b", "/root"]);
}
