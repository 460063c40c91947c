//! What `packaging/install` puts in place is what the bus starts, and what it removes is gone.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod fixture;

use std::path::{Path, PathBuf};

use fixture::{Bus, NAME, OURS, REAL, has, in_time};

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// Runs a script of `packaging` for the user of this bus.
fn run(bus: &Bus, script: &str) -> String {
    let output = bus
        .command(packaging(script))
        .arg("--from")
        .arg(Path::new(OURS).parent().unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The executable that the bus starts for the name.
fn started(bus: &Bus) -> PathBuf {
    let client = bus.client();
    client.ping().unwrap();
    std::fs::read_link(format!("/proc/{}/exe", client.pid_of(NAME).unwrap())).unwrap()
}

#[test]
fn the_bus_of_the_user_starts_what_was_installed() {
    in_time(|| {
        if !has(&[REAL]) {
            return;
        }
        let Some(bus) = Bus::start_like_a_session() else { return };
        let said = run(&bus, "install");
        assert!(said.contains("--undo"), "{said}");
        let installed = bus.dir().join("home/.local/bin/unjankd");
        let bus = bus.restart();
        assert_eq!(started(&bus), installed);

        let library = bus.dir().join("home/.local/lib/unjank/libunjank-writeback.so");
        assert!(library.is_file());
        let unjank = installed.with_file_name("unjank");
        let report = bus.dir().join("report.json");
        let ran = bus.command(&unjank).arg("run").arg("--report").arg(&report).arg("true").status();
        assert!(ran.unwrap().success());
        let report = std::fs::read_to_string(report).unwrap();
        assert!(report.contains("\"preload\": true"), "{report}");

        run(&bus, "uninstall");
        assert!(!installed.exists() && !library.exists());
        let bus = bus.restart();
        assert_eq!(started(&bus), Path::new(REAL));
    });
}

#[test]
fn a_service_of_somebody_else_is_left_alone() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let dir = bus.dir().join("data/dbus-1/services");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::copy(packaging("uninstall"), dir.join("ca.desrt.dconf.service")).unwrap();
        let output = bus
            .command(packaging("install"))
            .arg("--from")
            .arg(Path::new(OURS).parent().unwrap())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("belongs to something else"), "{text}");
    });
}
