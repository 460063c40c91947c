//! What `packaging/install` puts in place is what the bus starts, and what it removes is gone.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
#![expect(clippy::disallowed_methods, reason = "fixtures need not be durable")]

use crate::fixture;

use std::path::{Path, PathBuf};
use std::process::Command;

use catalogue::index::Index;

use fixture::{Bus, NAME, OURS, REAL, has, in_time};

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// Where the programs were built.
fn built() -> &'static Path {
    Path::new(OURS).parent().unwrap()
}

/// Runs a script of `packaging` for the user of this bus.
fn run(bus: &Bus, script: &str) -> String {
    let output = bus.command(packaging(script)).arg("--from").arg(built()).output().unwrap();
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
        assert!(said.contains("--undo") && said.contains("not on your PATH"), "{said}");
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
        assert!(run(&bus, "uninstall").starts_with("Nothing of unjank was installed in "));
        // What something else has installed is not taken for ours.
        std::fs::create_dir_all(installed.parent().unwrap()).unwrap();
        std::fs::write(&installed, "another").unwrap();
        let output = bus.command(packaging("uninstall")).arg("--from").arg(built()).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(said.contains("is in no record of unjank setup"), "{output:?}");
        std::fs::remove_file(&installed).unwrap();
        run(&bus, "install");
        // Without the daemon it says what it does, too, and what is left.
        std::fs::remove_file(&installed).unwrap();
        let service = bus.dir().join("data/dbus-1/services/ca.desrt.dconf.service");
        std::fs::write(&service, "mine").unwrap();
        let output = bus.command(packaging("uninstall")).arg("--from").arg(built()).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(said.contains("somebody else has changed it"), "{output:?}");
        assert!(!unjank.exists() && output.stderr.ends_with(b"what is left and why\n"));
        std::fs::remove_file(&service).unwrap();
        run(&bus, "uninstall");
        let bus = bus.restart();
        assert_eq!(started(&bus), Path::new(REAL));
    });
}

#[test]
fn what_is_installed_for_every_user_is_written_by_root_alone() {
    in_time(|| {
        if !rustix::process::geteuid().is_root() {
            fixture::skip("it is installed for every user by root");
            return;
        }
        if !has(&["unshare", "mount"]) {
            return;
        }
        // A place that is root's as far as the root directory, seen here alone.
        let script = r#"
set -eu
mount -t tmpfs -o mode=755 tmpfs /mnt
umask 000
"$INSTALL" --from "$FROM" --prefix /mnt/usr >/mnt/said
grep -o 'undo --prefix /mnt/usr listing settings' /mnt/said
find /mnt/usr -perm /022 ! -type l
mkdir /mnt/open
"$INSTALL" --from "$FROM" --prefix /mnt/open >/mnt/said 2>&1 && echo "installed in an open directory"
grep -o 'others than root may write /mnt/open' /mnt/said
mkdir -m 755 /mnt/user /mnt/user/prefix
chown 65534 /mnt/user
"$INSTALL" --from "$FROM" --prefix /mnt/user/prefix >/mnt/said 2>&1 && echo "installed below a user's directory"
grep -o 'others than root may write /mnt/user' /mnt/said
ls /mnt/open /mnt/user/prefix
"#;
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .env("INSTALL", packaging("install"))
            .env("FROM", built())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        let wanted = "undo --prefix /mnt/usr listing settings\nothers than root may write /mnt/open\nothers than root may write /mnt/user\n\
            /mnt/open:\n\n/mnt/user/prefix:\n";
        assert_eq!(said, wanted, "{errors}");
    });
}

#[test]
fn a_service_of_somebody_else_is_left_alone() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let dir = bus.dir().join("data/dbus-1/services");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::copy(packaging("uninstall"), dir.join("ca.desrt.dconf.service")).unwrap();
        let output = bus.command(packaging("install")).arg("--from").arg(built()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("belongs to something else"), "{text}");
    });
}

/// A system of its own for dpkg, with the packages `unjank` and `unjank-session` in it: dpkg's lists, and files below it;
/// scripts see the machine's own programs.
struct DpkgRoot {
    dir: tempfile::TempDir,
}

impl DpkgRoot {
    fn make() -> Option<DpkgRoot> {
        if !has(&["/usr/bin/dpkg", "/usr/bin/dpkg-deb", "/usr/bin/dh", "/usr/bin/lowdown"]) {
            return None;
        }
        let root = DpkgRoot { dir: tempfile::tempdir().unwrap() };
        // The commands have no daemon of their own.
        let names = ["unjank-session", "unjank"];
        let mut deb = Command::new(packaging("deb"));
        deb.arg("--from").arg(built());
        for name in names {
            deb.args(["--package", name]);
        }
        let made = done(deb.arg(root.dir.path().join("packages")));
        let package = |name: &str| {
            let path = made.lines().find(|path| path.contains(&format!("/{name}_")));
            path.map(PathBuf::from).unwrap_or_else(|| panic!("no package {name}: {made}"))
        };
        for name in ["var/lib/dpkg/updates", "var/lib/dpkg/info", "etc/default", "var/cache"] {
            std::fs::create_dir_all(root.at(name)).unwrap();
        }
        let architecture = done(Command::new("dpkg").arg("--print-architecture"));
        // What the package depends on; dpkg triggers nothing that misses something.
        let installed = ["libc6", "libgcc-s1"].map(|name| {
            format!("Package: {name}\nStatus: install ok installed\nMaintainer: x <x@localhost>\nArchitecture: {architecture}Version: 99\nDescription: x\n\n")
        });
        std::fs::write(root.at("var/lib/dpkg/status"), installed.concat()).unwrap();
        std::fs::write(root.at("etc/default/locale"), "LANG=\"de_DE.UTF-8\"\n").unwrap();
        done(root.dpkg("--install").args(names.map(package)));
        Some(root)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join("root").join(name)
    }

    fn dpkg(&self, action: &str) -> Command {
        let mut command = Command::new("dpkg");
        command.arg("--root").arg(self.at("")).args(["--log=/dev/null", action]);
        command.args(["--force-not-root", "--force-script-chrootless", "--force-bad-path"]);
        // A package manager has no home.
        command.env_remove("HOME").env("XDG_DATA_DIRS", self.at("usr/share"));
        command
    }
}

fn done(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn dpkg_has_the_systems_index_made_when_a_package_brings_an_application() {
    in_time(|| {
        let Some(root) = DpkgRoot::make() else { return };
        let indexes = || {
            let entries = std::fs::read_dir(root.at("var/cache/unjank")).unwrap();
            let paths = entries.map(|entry| entry.unwrap().path());
            let mut paths: Vec<PathBuf> =
                paths.filter(|path| path.extension().is_some_and(|end| end == "gvdb")).collect();
            paths.sort();
            paths
        };
        let knows = |path: &Path| Index::open(path).unwrap().apps().count() == 1;
        assert_eq!(indexes().len(), 2, "one without a language, and the machine's");
        assert!(!indexes().iter().any(|path| knows(path)));

        let tree = root.dir.path().join("other");
        std::fs::create_dir_all(tree.join("DEBIAN")).unwrap();
        std::fs::create_dir_all(tree.join("usr/share/applications")).unwrap();
        std::fs::write(
            tree.join("DEBIAN/control"),
            "Package: other\nVersion: 1\nArchitecture: all\nMaintainer: x <x@localhost>\nDescription: x\n",
        )
        .unwrap();
        std::fs::write(
            tree.join("usr/share/applications/other.desktop"),
            "[Desktop Entry]\nType=Application\nName=Other\nExec=true\n",
        )
        .unwrap();
        let other = root.dir.path().join("other.deb");
        let mut build = Command::new("dpkg-deb");
        done(build.arg("--root-owner-group").arg("--build").arg(&tree).arg(&other));
        done(root.dpkg("--install").arg(&other));
        assert_eq!(indexes().len(), 2);
        assert!(indexes().iter().all(|path| knows(path)));
    });
}

#[test]
fn what_is_on_for_every_user_goes_with_the_package_and_stays_with_an_upgrade() {
    in_time(|| {
        if !has(&["systemctl"]) {
            return;
        }
        let Some(root) = DpkgRoot::make() else { return };
        let mut setup = Command::new(root.at("usr/bin/unjank"));
        setup.args(["setup", "--prefix", "/usr", "--root"]).arg(root.at(""));
        done(setup.args(["settings", "relax"]));
        // As `systemctl enable unjank-recorder.socket` does.
        let socket = root.at("etc/systemd/system/sockets.target.wants/unjank-recorder.socket");
        std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let unit = "/usr/lib/systemd/system/unjank-recorder.socket";
        std::os::unix::fs::symlink(unit, &socket).unwrap();
        let on = [
            root.at("var/lib/unjank/setup.json"),
            root.at("usr/lib/environment.d/60-unjank-relax.conf"),
            root.at("usr/share/dbus-1/services/ca.desrt.dconf.service"),
            socket,
        ];
        let is_on = || on.each_ref().map(|path| path.symlink_metadata().is_ok());
        let packages = std::fs::read_dir(root.dir.path().join("packages")).unwrap();
        done(root.dpkg("--install").args(packages.map(|entry| entry.unwrap().path())));
        assert_eq!(is_on(), [true; 4]);
        let output = root.dpkg("--remove").arg("unjank").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(is_on(), [false; 4], "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("each runs 'unjank undo' before they go"), "{said}");
    });
}
