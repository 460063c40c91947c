//! Our images in the hands of dconf itself.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test makes its files as it likes, reads REQUIRE_ALL and says what it skips"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use unjank_gvdb::gvariant::Variant;
use unjank_gvdb::{GvdbTable, Image, PatchableImage, Stamp, patch, stamp, write};

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

/// Patches an image of `n_keys` keys so often that the number of its items is no longer that of its buckets: keys come
/// and go and come again, and directories with them. Returns it with what it holds, and the names that were touched.
fn patched(n_keys: u32) -> (Vec<u8>, Model, Vec<String>) {
    let name = |n: u32| format!("/d{}/e{}/k{n}", n % 7, n % 31);
    let mut model: Model = (0..n_keys).map(|n| (name(n), Variant::from(n))).collect();
    let mut file = PatchableImage::from(image(&model, Some(1)));
    let mut touched = Vec::new();
    let mut n_patched = 0_u32;
    for n in 0..40 + n_keys / 200 {
        let old = name(n * 13 % n_keys);
        let new = format!("/new{}{}", n % 3, name(n).replace('k', "deep/n"));
        let changes: &[(&str, bool)] = match n % 4 {
            0 => &[(&new, true)],
            1 => &[(&old, false)],
            2 => &[(&new, true), (&old, true)],
            _ => &[(&new, true), (&new, false)],
        };
        for (name, is_set) in changes {
            if *is_set {
                model.insert((*name).to_owned(), Variant::from(format!("text {n}").as_str()));
            } else {
                model.remove(*name);
            }
            let names_len = model.keys().map(String::len).sum();
            let change = [(*name, model.get(*name).map(Variant::as_bytes))];
            let new = patch(file, change, names_len, 2 + u64::from(n));
            n_patched += u32::from(new.is_some());
            file = new.unwrap_or_else(|| image(&model, Some(2 + u64::from(n))).into());
            touched.push((*name).to_owned());
        }
    }
    assert!(n_patched > 30, "{n_patched} patches");
    (file.into(), model, touched)
}

#[test]
fn dconf_answers_from_a_patched_image_as_from_one_written_anew() {
    for n_keys in [1, 7, 300, 10_000] {
        let (file, model, touched) = patched(n_keys);
        let Some(home) = Home::with(&file, &["dconf"]) else { return };
        let Some(anew) = Home::with(&image(&model, Some(5)), &["dconf"]) else { return };
        assert_eq!(home.run("dconf", &["dump", "/"]), anew.run("dconf", &["dump", "/"]));
        for dir in ["/", "/d1/", "/d1/e1/", "/new1/", "/new2/d1/"] {
            let list = ["list", dir];
            assert_eq!(home.run("dconf", &list), anew.run("dconf", &list), "{n_keys} keys, {dir}");
        }
        for name in touched.iter().rev().take(20) {
            let value = model.get(name).map_or_else(String::new, Variant::print);
            assert_eq!(home.run("dconf", &["read", name]).trim_end(), value, "{name}");
        }
    }
}

#[test]
fn dconf_reads_what_ten_thousand_keys_that_came_and_went_in_turn_have_left() {
    let name = |n: u32| format!("/d{}/{}e/k{}", n % 5, ["", "ü", "-"][n as usize % 3], n % 400);
    let mut model: Model = (0..200).map(|n| (name(n), Variant::from(n))).collect();
    let mut file = PatchableImage::from(image(&model, Some(1)));
    let mut names_len: usize = model.keys().map(String::len).sum();
    let mut n_patched = 0;
    for n in 0..10_000_u32 {
        // A walk over all names, so that each comes and goes many times beside ever other ones.
        let name = name(n.wrapping_mul(2_654_435_761) >> 7);
        if model.remove(&name).is_some() {
            names_len -= name.len();
        } else {
            names_len += name.len();
            model.insert(name.clone(), Variant::from("x".repeat(n as usize % 20).as_str()));
        }
        let change = [(&*name, model.get(&name).map(Variant::as_bytes))];
        let patched = patch(file, change, names_len, u64::from(n));
        n_patched += u32::from(patched.is_some());
        file = patched.unwrap_or_else(|| image(&model, Some(u64::from(n))).into());
    }
    assert!(n_patched > 9_500 && model.len() > 100, "{n_patched} patches, {} keys", model.len());
    let Some(home) = Home::with(&file, &["dconf"]) else { return };
    let Some(anew) = Home::with(&image(&model, Some(5)), &["dconf"]) else { return };
    let dump = home.run("dconf", &["dump", "/"]);
    assert_eq!(dump, anew.run("dconf", &["dump", "/"]));
    assert_eq!(dump.lines().filter(|line| line.starts_with('k')).count(), model.len());
    for dir in ["/", "/d0/", "/d1/e/", "/d2/üe/", "/d3/-e/"] {
        assert_eq!(home.run("dconf", &["list", dir]), anew.run("dconf", &["list", dir]), "{dir}");
    }
    for (name, value) in model.iter().step_by(17) {
        assert_eq!(home.run("dconf", &["read", name]).trim_end(), value.print(), "{name}");
    }
}

#[test]
fn dconf_service_takes_over_every_key_of_a_patched_image() {
    let (file, mut model, _) = patched(300);
    let programs = ["dconf", "dbus-run-session", "/usr/libexec/dconf-service"];
    let Some(home) = Home::with(&file, &programs) else { return };
    home.run("dbus-run-session", &["--", "dconf", "write", "/a/new", "'by dconf'"]);
    model.insert("/a/new".to_owned(), Variant::parse(None, "'by dconf'").expect("a text"));
    let file = std::fs::read(home.database()).expect("a file");
    let table = GvdbTable::open(&file).expect("a table");
    let read: Model =
        table.entries().map(|(name, _)| (name.clone(), read_value(table, &name))).collect();
    assert_eq!(read, model);
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
    let table = GvdbTable::open(&file).expect("a table");
    assert_eq!(table.check(), Ok(()));
    assert!(table.nested(".unjank").is_none());
    let read: Model =
        table.entries().map(|(name, _)| (name.clone(), read_value(table, &name))).collect();
    assert_eq!(read, model);
}

fn read_value(table: GvdbTable<'_>, name: &str) -> Variant {
    let value = table.value(name).unwrap_or_default();
    unjank_gvdb::gvariant::VariantView::inside(value, table.order()).to_variant()
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
