//! `unjank setup` and `unjank undo`: what is switched on is taken back, whatever happens in between.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
#![expect(clippy::disallowed_methods, reason = "fixtures need not be durable")]

use crate::fixture;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fixture::{Bus, NAME, OURS, REAL, copy_program, has, in_time, skip};

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");
const NOBODY: u32 = 65534;

/// A home of somebody without rights, and an installation that nobody else can change.
struct Account {
    dir: tempfile::TempDir,
}

impl Account {
    fn new() -> Account {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let account = Account { dir };
        install(&account.at("opt"));
        fs::create_dir(account.home()).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(account.home(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        account
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn home(&self) -> PathBuf {
        self.at("home")
    }

    fn service(&self) -> PathBuf {
        self.home().join(".local/share/dbus-1/services/ca.desrt.dconf.service")
    }

    fn manifest(&self) -> PathBuf {
        self.home().join(".local/state/unjank/setup.json")
    }

    /// A command as the user runs it, without a bus.
    fn command(&self, before: &[&str]) -> Command {
        let mut words: Vec<&str> = Vec::new();
        if rustix::process::geteuid().is_root() {
            words.extend(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        }
        words.extend(before);
        words.push("env");
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["-i", "PATH=/usr/bin:/bin"]);
        command.arg(format!("HOME={}", self.home().display())).arg(self.at("opt/bin/unjank"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(&[]).args(arguments).output().unwrap()
    }

    /// Runs it, and returns what it said.
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs it in vain, and returns why.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

/// Puts the programs below a directory, as a package does.
fn install(prefix: &Path) {
    let built = Path::new(UNJANK).parent().unwrap();
    fs::create_dir_all(prefix.join("bin")).unwrap();
    fs::create_dir_all(prefix.join("lib/unjank")).unwrap();
    for name in ["unjank", "unjank-bench", "unjankd", "unjank-index", "unjank-host"] {
        copy_program(built.join(name).to_str().unwrap(), &prefix.join("bin").join(name));
    }
    let library = built.join("deps/libunjank_relax.so");
    fs::copy(library, prefix.join("lib/unjank/libunjank-relax.so")).unwrap();
    // Its crate's own tests load it; here it only has to be there.
    fs::create_dir_all(prefix.join("lib/gio/modules")).unwrap();
    fs::write(prefix.join("lib/gio/modules/libgiounjank.so"), "module").unwrap();
}

/// Every path below a directory, with what is there.
fn tree(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let about = path.symlink_metadata().unwrap();
            let what = match about.file_type() {
                kind if kind.is_symlink() => format!("-> {:?}", fs::read_link(&path).unwrap()),
                kind if kind.is_dir() => "directory".to_owned(),
                _ => String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned(),
            };
            if about.is_dir() {
                left.push(path.clone());
            }
            all.insert(path, format!("{:o} {what}", about.permissions().mode()));
        }
    }
    all
}

const FILES: [&str; 8] =
    ["settings", "host", "relax", "index", "listing", "gsettings", "hangs", "hang-notifications"];

#[test]
fn what_is_switched_on_is_taken_back_in_any_order_and_twice() {
    in_time(|| {
        if !has(&["setpriv"]) {
            return;
        }
        let account = Account::new();
        let config = account.home().join(".config");
        fs::create_dir(&config).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(&config, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let before = tree(&account.home());
        assert!(account.done(&["setup"]).starts_with("No part of unjank is on"));
        for order in [[0, 1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1, 0], [2, 0, 5, 7, 6, 4, 1, 3]]
        {
            let said = account.done(&[&["setup"], &FILES[..]].concat());
            assert!(said.contains("there is no session bus here"), "{said}");
            let list = account.done(&["setup", "--list"]);
            assert!(FILES.iter().all(|part| list.contains(&format!("{part}\ton\n"))), "{list}");
            let again = account.done(&["setup", "settings"]);
            assert!(again.contains("Everything was in place already."), "{again}");
            for part in order {
                account.done(&["undo", FILES[part]]);
                let said = account.done(&["undo", FILES[part]]);
                assert!(said.contains("was not switched on"), "{said}");
            }
            assert_eq!(tree(&account.home()), before);
        }
        account.done(&["setup", "--dry-run", "settings", "relax"]);
        account.done(&["setup", "--json"]);
        assert_eq!(tree(&account.home()), before, "nothing is changed by looking");
        let said = account.done(&["undo"]);
        assert!(said.contains("has switched nothing on"), "{said}");
    });
}

#[test]
fn a_module_that_is_not_there_is_not_switched_on() {
    in_time(|| {
        if !has(&["setpriv"]) {
            return;
        }
        let account = Account::new();
        let module = account.at("opt/lib/gio/modules/libgiounjank.so");
        let on = account.done(&["setup", "gsettings"]);
        assert!(on.contains("gsettings: programs use the module from the next login on."), "{on}");
        let file = account.home().join(".config/environment.d/60-unjank-gsettings.conf");
        let text = fs::read_to_string(&file).unwrap();
        let directory = format!("GIO_EXTRA_MODULES={}$", module.parent().unwrap().display());
        assert!(
            text.contains("\nGSETTINGS_BACKEND=unjank\n") && text.contains(&directory),
            "{text}"
        );
        fs::write(file.with_file_name("90-last.conf"), "GSETTINGS_BACKEND=memory\n").unwrap();
        let warned = account.done(&["setup", "gsettings"]);
        assert!(
            warned.contains("90-last.conf is read later and sets GSETTINGS_BACKEND"),
            "{warned}"
        );
        fs::remove_file(file.with_file_name("90-last.conf")).unwrap();
        // The package has gone, and what it needs is still taken back.
        fs::remove_file(&module).unwrap();
        account.done(&["undo", "gsettings"]);
        assert!(!file.exists());
        let said = account.refused(&["setup", "gsettings"]);
        assert!(
            said.contains("libgiounjank.so") && said.contains("unjank-gsettings-backend"),
            "{said}"
        );
        assert_eq!(tree(&account.home()).len(), 0);
    });
}

#[test]
fn a_run_that_is_killed_at_any_step_is_taken_back() {
    in_time(|| {
        if !has(&["setpriv", "strace"]) {
            return;
        }
        let account = Account::new();
        let before = tree(&account.home());
        let steps = "rename,renameat,renameat2,mkdir,mkdirat,symlink,symlinkat,unlink,unlinkat,rmdir,fsync,fdatasync";
        // Kills it when it makes the step of this number; says whether there was one.
        let killed_at = |number: usize, arguments: &[&str]| {
            let inject = format!("inject={steps}:signal=KILL:when={number}");
            let trace = format!("trace={steps}");
            let strace = ["strace", "-f", "-qqq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
            let mut command = account.command(&strace);
            let output = command.args(arguments).output().unwrap();
            !output.status.success()
        };
        // All steps in the slow gate, some of them here.
        let stride =
            fixture::setting("SETUP_KILL_STRIDE").map_or(5, |s| usize::try_from(s).unwrap());
        let on = [&["setup"], &FILES[..]].concat();
        let mut number = 1;
        while killed_at(number, &on) {
            account.done(&["undo"]);
            let leftover: Vec<PathBuf> = tree(&account.home())
                .into_keys()
                // Directories of the base directory specification, of which none is recorded before it is made.
                .filter(|path| !path.is_dir() || !path.starts_with(account.home().join(".local")))
                .collect();
            assert_eq!(leftover, Vec::<PathBuf>::new(), "killed at step {number}");
            let _ = fs::remove_dir_all(account.home().join(".local"));
            number += stride;
        }
        assert!(number > 40, "the run had only {number} steps");
        let mut number = 1;
        loop {
            account.done(&on);
            let was_killed = killed_at(number, &["undo"]);
            account.done(&["undo"]);
            let files: Vec<PathBuf> =
                tree(&account.home()).into_keys().filter(|path| !path.is_dir()).collect();
            assert_eq!(files, Vec::<PathBuf>::new(), "undo killed at step {number}");
            let _ = fs::remove_dir_all(account.home().join(".local"));
            let _ = fs::remove_dir_all(account.home().join(".config"));
            if !was_killed {
                break;
            }
            number += stride;
        }
        assert_eq!(tree(&account.home()), before);
    });
}

#[test]
fn files_of_others_are_left_or_brought_back() {
    in_time(|| {
        if !has(&["setpriv"]) {
            return;
        }
        let account = Account::new();
        let service = account.service();
        fs::create_dir_all(service.parent().unwrap()).unwrap();
        let give = |path: &Path| {
            if rustix::process::geteuid().is_root() {
                for path in path.ancestors().take_while(|path| path.starts_with(account.home())) {
                    std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
                }
            }
        };
        fs::write(&service, "[D-BUS Service]\nName=ca.desrt.dconf\nExec=/bin/other\n").unwrap();
        fs::set_permissions(&service, fs::Permissions::from_mode(0o640)).unwrap();
        give(&service);
        let before = tree(&account.home());
        let said = account.refused(&["setup", "listing", "settings"]);
        assert!(said.contains("belongs to something else") && said.contains("--replace"), "{said}");
        assert_eq!(tree(&account.home()), before, "nothing of a refused run is left");
        account.done(&["setup", "--replace", "settings"]);
        assert!(fs::read_to_string(&service).unwrap().contains("unjankd"));
        account.done(&["undo"]);
        assert_eq!(tree(&account.home()), before);

        // A link, such as that of a person who keeps such files elsewhere, or of systemd's mask.
        fs::remove_file(&service).unwrap();
        symlink("/dev/null", &service).unwrap();
        give(&service);
        let before = tree(&account.home());
        account.refused(&["setup", "settings"]);
        account.done(&["setup", "--replace", "settings"]);
        assert!(!service.is_symlink());
        account.done(&["undo"]);
        assert_eq!(tree(&account.home()), before);
        fs::remove_file(&service).unwrap();

        // Changed after us: kept and named, twice, and gone when its owner removes it.
        account.done(&["setup", "settings", "relax"]);
        fs::write(&service, "mine now").unwrap();
        for _ in 0..2 {
            let output = account.run(&["undo"]);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let said = String::from_utf8(output.stdout).unwrap();
            let command = format!("rm {}", service.display());
            assert!(
                said.contains("somebody else has changed it") && said.contains(&command),
                "{said}"
            );
        }
        assert_eq!(fs::read_to_string(&service).unwrap(), "mine now");
        // A file that somebody has removed is told.
        fs::remove_file(&service).unwrap();
        let said = account.done(&["undo"]);
        assert!(said.contains("was not in place any more"), "{said}");
        assert!(!account.manifest().exists());
    });
}

#[test]
fn a_manifest_that_somebody_else_could_have_written_is_not_followed() {
    in_time(|| {
        if !has(&["setpriv"]) {
            return;
        }
        if !rustix::process::geteuid().is_root() {
            skip("another user's manifest is made by root");
            return;
        }
        let account = Account::new();
        account.done(&["setup", "settings"]);
        let manifest = account.manifest();
        let good = fs::read(&manifest).unwrap();
        let before = tree(&account.home());

        // Root with a user's home, as sudo may leave it.
        let as_root = |arguments: &[&str]| {
            let mut command = Command::new(account.at("opt/bin/unjank"));
            command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin");
            command.env("HOME", account.home()).output().unwrap()
        };
        for arguments in [&["undo"][..], &["undo", "settings"], &["setup", "settings"], &["setup"]]
        {
            let output = as_root(arguments);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
            assert!(said.contains("belongs to user 65534"), "{said}");
        }
        assert_eq!(tree(&account.home()), before);

        let attack = |bytes: &[u8], mode: u32, wanted: &str| {
            fs::write(&manifest, bytes).unwrap();
            fs::set_permissions(&manifest, fs::Permissions::from_mode(mode)).unwrap();
            let said = account.refused(&["undo"]);
            assert!(said.contains(wanted) && said.contains("hint: mv "), "{said}");
            assert!(account.service().exists());
        };
        attack(&good, 0o666, "others may write it");
        attack(&good[..good.len() / 2], 0o600, "it is damaged");
        attack(b"", 0o600, "it is damaged");
        attack(b"[[[[[[[[[[[[[[[[[[", 0o600, "it is damaged");
        attack(&vec![b' '; 17 << 20], 0o600, "it is too long");
        let elsewhere = String::from_utf8(good.clone()).unwrap();
        let elsewhere = elsewhere.replace("ca.desrt.dconf.service", "../../../../.ssh/authorized");
        attack(elsewhere.as_bytes(), 0o600, "it is damaged");
        fs::remove_file(&manifest).unwrap();
        symlink("/etc/passwd", &manifest).unwrap();
        let said = account.refused(&["undo"]);
        assert!(said.contains("it is a symlink"), "{said}");

        // The way out that the hint names.
        fs::remove_file(&manifest).unwrap();
        account.done(&["setup", "settings"]);
        account.done(&["undo"]);
        assert!(!account.service().exists());
    });
}

#[test]
fn a_home_that_cannot_be_written_is_said_and_left_as_it_was() {
    in_time(|| {
        if !has(&["setpriv", "unshare", "mount"]) {
            return;
        }
        if !rustix::process::geteuid().is_root() {
            skip("a full home is mounted by root");
            return;
        }
        let account = Account::new();
        fs::set_permissions(account.home(), fs::Permissions::from_mode(0o555)).unwrap();
        let said = account.refused(&["setup", "settings"]);
        assert!(said.contains("Permission denied") || said.contains("permission denied"), "{said}");
        assert_eq!(tree(&account.home()).len(), 0);

        let mut nowhere = account.command(&[]);
        let output = nowhere.arg("setup").arg("settings").env_remove("HOME").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let output = Command::new(account.at("opt/bin/unjank"))
            .args(["setup", "settings"])
            .env_clear()
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("HOME is not set") && said.contains("hint: "), "{said}");

        // Full: not a block is left after so many, and what was done is taken back from there.
        let script = r#"
mount -t tmpfs -o mode=755,uid=65534,gid=65534,nr_inodes=$INODES tmpfs $HOME_DIR || exit 9
run() { setpriv --reuid=65534 --regid=65534 --clear-groups env -i PATH=/usr/bin:/bin HOME=$HOME_DIR $UNJANK "$@"; }
run setup settings relax index && echo on
run undo >/dev/null || echo "undo failed"
find $HOME_DIR -type f -o -type l
"#;
        let mut refused = 0;
        for inodes in (4..34).step_by(3) {
            let output = Command::new("unshare")
                .args(["--mount", "sh", "-c", script])
                .env("INODES", inodes.to_string())
                .env("HOME_DIR", account.home())
                .env("UNJANK", account.at("opt/bin/unjank"))
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let is_on = said.lines().any(|line| line == "on");
            refused += usize::from(!is_on);
            let rest = said.lines().filter(|line| line.starts_with('/') || *line == "undo failed");
            assert_eq!(rest.count(), 0, "{inodes} inodes: {said} {output:?}");
        }
        assert!(refused > 0, "the home was never full");
    });
}

#[test]
fn a_package_is_put_together_below_its_root() {
    in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let run = |arguments: &[&str]| {
            let mut command = Command::new(UNJANK);
            let output = command.args(arguments).env("DESTDIR", &root).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let from = Path::new(UNJANK).parent().unwrap().to_str().unwrap();
        let on = ["setup", "--from", from, "--prefix", "/usr", "programs", "settings", "relax"];
        let said = run(&on);
        assert!(said.contains("On for every user: programs, settings, relax."), "{said}");
        let service = root.join("usr/share/dbus-1/services/ca.desrt.dconf.service");
        let text = fs::read_to_string(&service).unwrap();
        assert!(text.contains("Exec=/usr/bin/unjankd --names dconf"), "{text}");
        for (path, mode) in [
            ("usr", 0o755),
            ("usr/bin/unjankd", 0o755),
            ("usr/lib/systemd/user/unjank-dconf.service", 0o644),
            ("usr/lib/environment.d/60-unjank-relax.conf", 0o644),
        ] {
            let about = fs::metadata(root.join(path)).unwrap();
            assert_eq!(about.permissions().mode() & 0o777, mode, "{path}");
        }
        run(&["undo", "--prefix", "/usr"]);
        assert_eq!(tree(&root).len(), 0);
    });
}

#[test]
fn programs_that_a_file_names_which_stays_are_kept_and_told() {
    in_time(|| {
        if !has(&["setpriv"]) {
            return;
        }
        let account = Account::new();
        let built = account.at("built");
        fs::create_dir_all(built.join("deps")).unwrap();
        for name in ["unjank", "unjankd", "unjank-index", "unjank-host"] {
            fs::write(built.join(name), name).unwrap();
        }
        for name in ["libunjank_relax.so", "libunjank_writeback.so"] {
            fs::write(built.join("deps").join(name), name).unwrap();
        }
        account.done(&["setup", "--from", built.to_str().unwrap(), "settings", "relax"]);
        let file = account.home().join(".config/environment.d/60-unjank-relax.conf");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{text}# mine\n")).unwrap();
        let kept = account.home().join(".local/lib/unjank/libunjank-relax.so");
        // It is said before as it is done, and the next time, too.
        let wanted = "kept ~/.local/lib/unjank/libunjank-relax.so: ~/.config/environment.d/60-unjank-relax.conf needs it";
        for arguments in [&["undo", "-n"][..], &["undo", "-n", "--json"], &["undo"], &["undo"]] {
            let output = account.run(arguments);
            let said = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
            let is_json = arguments.contains(&"--json");
            assert!(said.contains(if is_json { "\"needed\"" } else { wanted }), "{said}");
            assert!(kept.is_file(), "{arguments:?}");
        }
        assert!(!account.service().exists());
        fs::remove_file(&file).unwrap();
        account.done(&["undo"]);
        assert!(!kept.exists() && !account.manifest().exists());
    });
}

#[test]
fn a_library_that_others_preload_is_kept_by_systemd_itself() {
    in_time(|| {
        let generator = Path::new(
            "/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator",
        );
        if !generator.exists() {
            skip("no generator of environments");
            return;
        }
        let account = Account::new();
        account.done(&["setup", "relax"]);
        let directory = account.home().join(".config/environment.d");
        fs::write(directory.join("50-other.conf"), "LD_PRELOAD=/usr/lib/other.so\n").unwrap();
        let output = Command::new(generator)
            .env_clear()
            .env("HOME", account.home())
            .env("XDG_CONFIG_HOME", account.home().join(".config"))
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let library = account.at("opt/lib/unjank/libunjank-relax.so");
        assert!(
            said.contains(&format!("LD_PRELOAD={}:/usr/lib/other.so", library.display())),
            "{said}"
        );
        // A later file that keeps nothing: the library would be lost, and that is told.
        assert!(!account.done(&["setup", "relax"]).contains("is read later"));
        fs::write(directory.join("90-last.conf"), "LD_PRELOAD=/usr/lib/last.so\n").unwrap();
        let warned = account.done(&["setup", "relax"]);
        assert!(warned.contains("90-last.conf is read later and sets LD_PRELOAD"), "{warned}");
        let output = Command::new(generator)
            .env_clear()
            .env("HOME", account.home())
            .env("XDG_CONFIG_HOME", account.home().join(".config"))
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("LD_PRELOAD=/usr/lib/last.so\n"), "{said}");
    });
}

/// What a person would miss: the settings and the recent documents.
fn belongings(bus: &Bus, unjank: &Path) -> (String, String, Vec<u8>) {
    let text = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let settings = text(bus.command("dconf").args(["dump", "/"]));
    let recents = text(bus.command(unjank).args(["recent", "list", "--json"]));
    let list = fs::read(bus.dir().join("data/recently-used.xbel")).unwrap();
    (settings, recents, list)
}

#[test]
fn what_is_on_for_every_user_and_cannot_be_read_is_said() {
    in_time(|| {
        let may = Command::new("unshare").args(["-m", "true"]).status();
        if !may.is_ok_and(|status| status.success()) {
            skip("mount namespaces are for root");
            return;
        }
        let home = tempfile::tempdir().unwrap();
        // The directory of all users is another one in this mount namespace.
        let script = "mount -t tmpfs none /var/lib && mkdir /var/lib/unjank && echo junk > /var/lib/unjank/setup.json && exec \"$0\" setup --list";
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_unjank")])
            .env("HOME", home.path())
            .env_remove("DBUS_SESSION_BUS_ADDRESS")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("cannot read what is on for every user"), "{output:?}");
        assert!(output.status.success() && !output.stdout.is_empty(), "{output:?}");
    });
}

/// Starts a session with the real settings service, and installs the programs below a directory; none where dconf is missing.
fn installed_beside_dconf() -> Option<(Bus, PathBuf)> {
    if !has(&[REAL, "dconf"]) {
        return None;
    }
    let bus = Bus::start_like_a_session()?;
    let prefix = bus.dir().join("opt");
    install(&prefix);
    Some((bus, prefix))
}

#[test]
fn settings_and_recent_documents_are_the_same_before_with_and_after() {
    in_time(|| {
        let Some((bus, prefix)) = installed_beside_dconf() else { return };
        let unjank = prefix.join("bin/unjank");
        let done = |program: &Path, arguments: &[&str]| {
            let mut command = bus.command(program);
            // Documents below the directory of temporary files are not remembered.
            let output = command.args(arguments).env("TMPDIR", bus.dir().join("cache")).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let dconf = Path::new("dconf");
        done(dconf, &["write", "/org/example/text", "'Grüße\n\t\"'"]);
        done(dconf, &["write", "/org/example/many", "[(1, {'a': <2.5>})]"]);
        // Hidden documents are not remembered either.
        let documents = tempfile::Builder::new().prefix("documents").tempdir().unwrap();
        for name in ["letter.txt", "old photo.png"] {
            let document = documents.path().join(name);
            fs::write(&document, "x").unwrap();
            done(&unjank, &["recent", "add", document.to_str().unwrap()]);
        }
        done(&unjank, &["recent", "sync"]);
        let before = belongings(&bus, &unjank);
        for round in 0..3 {
            let parts = ["settings", "host", "recents", "relax", "index", "listing"];
            let said = done(&unjank, &[&["setup", "--now"], &parts[..]].concat());
            assert!(said.contains("the next call starts unjankd"), "{said}");
            // Programs write meanwhile, through ours.
            done(dconf, &["write", "/org/example/new", "1"]);
            done(dconf, &["reset", "/org/example/new"]);
            let client = bus.client();
            let owner = client.pid_of(NAME).unwrap();
            let program = fs::read_link(format!("/proc/{owner}/exe")).unwrap();
            assert_eq!(program, prefix.join("bin/unjankd"));
            assert!(bus.dir().join("data/recently-used.xbel").is_symlink());
            assert_eq!(belongings(&bus, &unjank), before, "round {round}, with");

            let said = done(&unjank, &["undo", "--dry-run", "recents"]);
            assert!(said.contains("would move the lists of recent documents back"), "{said}");
            let said = done(&unjank, &["undo"]);
            assert!(said.contains("has stored everything and ended"), "{said}");
            assert!(said.contains(REAL), "{said}");
            assert!(!bus.dir().join("data/recently-used.xbel").is_symlink());
            done(dconf, &["write", "/org/example/new", "1"]);
            done(dconf, &["reset", "/org/example/new"]);
            let owner = client.pid_of(NAME).unwrap();
            assert_eq!(fs::read_link(format!("/proc/{owner}/exe")).unwrap(), Path::new(REAL));
            assert_eq!(belongings(&bus, &unjank), before, "round {round}, after");
            assert!(!bus.dir().join("state/unjank/setup.json").exists());
            assert!(!bus.dir().join("data/dbus-1").exists());
        }
        assert!(Path::new(OURS).exists());
    });
}

#[test]
fn no_write_fails_while_parts_are_switched_on_and_off() {
    in_time(|| {
        let Some((bus, prefix)) = installed_beside_dconf() else { return };
        let unjank = prefix.join("bin/unjank");
        let stop = bus.dir().join("stop");
        // It writes until it is told to stop, and says how much.
        let script = "n=0; until [ -e $0 ]; do n=$((n+1)); dconf write /t/k$n $n || echo failed; done; echo $n";
        let mut writer = bus.command("sh");
        writer.args(["-c", script]).arg(&stop).stdout(std::process::Stdio::piped());
        let writer = writer.spawn().unwrap();
        for _ in 0..4 {
            for arguments in [["setup", "settings"], ["undo", "settings"]] {
                let output = bus.command(&unjank).args(arguments).output().unwrap();
                assert!(output.status.success(), "{output:?}");
            }
        }
        fs::write(&stop, "").unwrap();
        let output = writer.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let count: usize = said.trim().parse().unwrap_or_else(|_| panic!("{said}"));
        let dump = bus.command("dconf").args(["dump", "/t/"]).output().unwrap();
        let there = String::from_utf8(dump.stdout).unwrap().matches("\nk").count();
        assert_eq!(there, count);
    });
}

#[test]
fn systemd_of_the_session_starts_what_is_switched_on_and_forgets_what_is_taken_back() {
    in_time(|| {
        let script = r#"
$UNJANK setup index settings >/run/said 2>&1 || cat /run/said >&2
until systemctl --user -q is-active unjank-index.path; do :; done
echo watched
systemctl --user show --value -p ExecStart unjank-dconf.service | grep -o '/unjankd --names dconf'
# An application comes: the index is made.
mkdir -p $HOME/.local/share/applications
printf '[Desktop Entry]\nType=Application\nName=New\nExec=true\n' >$HOME/.local/share/applications/new.desktop
until ls $HOME/.cache/unjank/index-*.gvdb >/dev/null 2>&1; do :; done
echo indexed
$UNJANK undo >/run/said 2>&1 || cat /run/said >&2
systemctl --user -q is-active unjank-index.path || echo stopped
systemctl --user show --value -p LoadState unjank-dconf.service unjank-index.path | sort -u | grep .
"#;
        let Some(output) = fixture::systemd::beside_systemd(script) else { return };
        let said = String::from_utf8_lossy(&output.stdout);
        let wanted = ["watched", "/unjankd --names dconf", "indexed", "stopped", "not-found"];
        assert_eq!(said.lines().collect::<Vec<_>>(), wanted, "{output:?}");
    });
}
