//! The module as `unjank setup gsettings` switches it on: by variables that systemd gives to the programs of a session.

use std::fs;
use std::path::Path;
use std::process::Command;

use setup::plan::{ProgramSource, files_of};
use setup::{ForeignFiles, Installation, SessionDirectories, SetupLayout, SetupPart, SetupScope};

use crate::service::ours;
use crate::session::{Ran, TestSession, library, skip};

/// Reads `environment.d(5)` for the user manager of systemd.
const GENERATOR: &str =
    "/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator";

/// Returns the variables that systemd gives to the programs of a session; nothing where it is not installed.
fn variables(session: &TestSession) -> Option<Vec<(String, String)>> {
    if !Path::new(GENERATOR).exists() {
        skip(GENERATOR);
        return None;
    }
    let mut generator = Command::new(GENERATOR);
    generator.env_clear().env("HOME", session.path("home"));
    let ran = Ran::of(generator.env("XDG_CONFIG_HOME", session.path("home/.config")));
    assert!(ran.is_good, "{}", ran.stderr);
    let lines = ran.stdout.lines().filter_map(|line| line.split_once('='));
    let ours = lines.filter(|(name, _)| name.starts_with('G'));
    Some(ours.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

#[test]
fn what_setup_switches_on_is_used_by_programs_and_what_it_takes_back_is_not() {
    let Some(session) = TestSession::new(&ours()) else { return };
    let program = session.compile("tests/backend.c");
    let built = session.path("built");
    fs::create_dir(&built).unwrap();
    fs::copy(library(), built.join("libgiounjank.so")).unwrap();
    let layout = SetupLayout::of_user(&SessionDirectories {
        home: session.path("home"),
        config: session.path("home/.config"),
        data: session.path("home/.local/share"),
        state: session.path("home/.local/state"),
    });
    assert_eq!(layout.scope, SetupScope::User);
    let source = ProgramSource::Built(built.clone());
    let files = files_of(SetupPart::Gsettings, &layout, &source).unwrap();
    let disk = store::disk::real();
    let owner = rustix::process::geteuid().as_raw();
    let open = || Installation::open(&*disk, layout.clone(), owner).unwrap();
    open().switch_on(&files, ForeignFiles::Refuse).unwrap();
    // What was built may go.
    fs::remove_dir_all(built).unwrap();
    let Some(given) = variables(&session) else { return };
    let mut names: Vec<&str> = given.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    assert_eq!(names, ["GIO_EXTRA_MODULES", "GSETTINGS_BACKEND"]);

    let with = |given: &[(String, String)], script: &str| {
        let mut command = session.command("", &["sh", "-c", script, &program]);
        command.env_remove("GSETTINGS_BACKEND").env_remove("GIO_EXTRA_MODULES");
        command.envs(given.iter().cloned());
        let ran = Ran::of(&mut command);
        assert!(ran.is_good, "{}{}", ran.stdout, ran.stderr);
        (ran.stdout, ran.stderr)
    };
    let said = with(&given, "$0 type");
    assert_eq!(said, ("UnjankSettingsBackend\ngood\n".to_owned(), String::new()));
    // What is written with it is what dconf's own programs read, also without it.
    let script = "gsettings set org.unjank.test number 41 && dconf read /org/unjank/test/number";
    assert_eq!(with(&given, script).0, "41\n");
    // A program that needs no settings does not load it.
    let script = "LD_DEBUG=files gio mime text/plain 2>&1 | grep libgiounjank || echo unloaded";
    assert_eq!(with(&given, script).0, "unloaded\n");

    open().switch_off(&[SetupPart::Gsettings]).unwrap();
    assert_eq!(variables(&session).unwrap(), []);
    let read = "gsettings get org.unjank.test number";
    let (number, warned) = with(&[], read);
    assert_eq!((&*number, &*warned), ("41\n", ""));
    // A session that still has the variables: the program says what is missing, and uses dconf's module.
    let (number, warned) = with(&given, read);
    assert_eq!(number, "41\n");
    assert!(
        warned.contains("Can't find module 'unjank' specified in GSETTINGS_BACKEND"),
        "{warned}"
    );
    let left: Vec<_> = fs::read_dir(session.path("home")).unwrap().collect();
    assert!(
        !session.path("home/.local/lib").exists()
            && !session.path("home/.config/environment.d").exists(),
        "{left:?}"
    );
}
