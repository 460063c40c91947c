//! Shims, policy and log, the doctor and the benchmark.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Signal, kill_process};

use super::fixture::{self, Bus, in_time, skip};
use super::{Host, REAL, SPAWN, UNJANK, through_each, told, wait_until};

/// Has the bus of a host start this program for the name.
fn activates(host: &Host, program: &str) {
    let dir = host.bus.dir().join("run/dbus-1/services");
    fs::create_dir_all(&dir).unwrap();
    let text = format!("[D-BUS Service]\nName=org.freedesktop.Flatpak\nExec={program}\n");
    fs::write(dir.join("org.freedesktop.Flatpak.service"), text).unwrap();
}

#[test]
fn a_policy_that_its_application_may_write_is_told() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let (home, data) = (bus.dir().join("home"), bus.dir().join("share"));
        let config = home.join(".config");
        let metadata = data.join("flatpak/app/org.vim.Vim/current/active");
        fs::create_dir_all(&metadata).unwrap();
        let permit = |filesystems: &str| {
            let text = format!("[Context]\nshared=ipc;\nfilesystems={filesystems}\n");
            fs::write(metadata.join("metadata"), text).unwrap();
        };
        let command = |program: &str| {
            let mut command = bus.command(program);
            command.env("HOME", &home).env("XDG_CONFIG_HOME", &config);
            command.env("XDG_DATA_HOME", &data);
            command
        };
        let policy = |words: &[&str]| {
            let mut command = command(UNJANK);
            let (_, out, err) =
                told(command.args(["host", "policy"]).args(words).output().unwrap());
            format!("{out}{err}")
        };
        permit("xdg-download;home;");
        let said = policy(&["allow", "org.vim.Vim", "git"]);
        assert!(said.contains("org.vim.Vim can write the policy"), "{said}");
        assert!(said.contains("filesystems=home"), "{said}");
        assert!(said.contains("flatpak override --user --nofilesystem=home org.vim.Vim"), "{said}");
        let json = policy(&["show", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(json["writable_by"][0]["who"].as_str().unwrap().contains("org.vim.Vim"), "{json}");
        // The service says so when it begins.
        let said = bus.dir().join("said");
        let mut service = command(env!("CARGO_BIN_EXE_unjankd"));
        service.args(["--names", "flatpak"]).stderr(fs::File::create(&said).unwrap());
        let mut service = service.spawn().unwrap();
        wait_until(|| {
            fs::read_to_string(&said).unwrap().contains("org.vim.Vim can write the policy")
        });
        kill_process(rustix::process::Pid::from_child(&service), Signal::TERM).unwrap();
        service.wait().unwrap();
        permit("xdg-download;home:ro;");
        assert!(!policy(&["show"]).contains("can write"), "{}", policy(&["show"]));
    });
}

#[test]
fn a_policy_says_who_applies_it() {
    in_time(|| {
        let policy = |host: &Host, words: &[&str]| {
            let words = [&["policy"], words].concat();
            let (_, out, err) = told(host.host(&words).output().unwrap());
            format!("{out}{err}")
        };
        let Some(mut host) = Host::ours() else { return };
        activates(&host, "/usr/bin/unjankd --names flatpak");
        let said = policy(&host, &["allow", "org.vim.Vim", "git"]);
        assert!(said.contains("It is applied: unjankd (process"), "{said}");
        assert!(!said.contains("would start"), "{said}");
        // It would not be after this one.
        activates(&host, "/usr/libexec/flatpak-session-helper");
        let said = policy(&host, &["show"]);
        let next = "the bus would start /usr/libexec/flatpak-session-helper";
        assert!(said.contains(next), "{said}");
        // This one was killed.
        host.service.kill().unwrap();
        host.service.wait().unwrap();
        wait_until(|| host.bus.client().name_owner(super::NAME).unwrap().is_none());
        let said = policy(&host, &["show"]);
        assert!(said.contains("It is NOT applied: the next call makes the bus start"), "{said}");
        let json = policy(&host, &["show", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["service"]["applies"], false);
        assert_eq!(json["service"]["starts"], "/usr/libexec/flatpak-session-helper");
        activates(&host, "/usr/bin/unjankd --names flatpak");
        let said = policy(&host, &["show"]);
        assert!(said.contains("It is applied: the next call"), "{said}");
        // Another program serves.
        if !Path::new(REAL).exists() {
            return skip("no flatpak-session-helper");
        }
        let Some(host) = Host::start(&[REAL]) else { return };
        let said = policy(&host, &["allow", "org.vim.Vim", "git"]);
        assert!(said.contains(&format!("It is NOT applied: {REAL} (process")), "{said}");
    });
}

#[test]
fn a_shim_runs_the_hosts_command_and_else_the_sandboxs_own() {
    through_each(|mut host| {
        let dir = host.bus.dir().to_owned();
        let (shims, own) = (dir.join("shims"), dir.join("own"));
        fs::create_dir(&own).unwrap();
        let program = |path: &Path, text: &str| {
            fixture::script(path, &format!("#!/bin/sh\n{text}\n"));
        };
        // The service was started with another PATH: this one is the sandbox's.
        program(&own.join("nproc"), "echo own \"$@\"; exit 3");
        let path = format!("{}:{}:/usr/bin:/bin", shims.display(), own.display());
        let shim = |bus: &Bus, arguments: &[&str]| {
            let mut command = bus.command(UNJANK);
            command.args(["host", "shim"]).args(arguments).env("PATH", &path);
            told(command.output().unwrap())
        };
        let at = shims.to_str().unwrap().to_owned();
        let (status, out, err) = shim(&host.bus, &["add", "nproc", "--dir", &at]);
        assert_eq!((status, &*err), (Some(0), ""));
        assert_eq!(out, format!("nproc now runs the host's command: {at}/nproc\n"));
        assert_eq!(
            shim(&host.bus, &["add", "nproc", "--dir", &at]).0,
            Some(0),
            "it is there already"
        );
        fs::write(shims.join("taken"), "").unwrap();
        for wrong in ["taken", "a/b", "unjank", ""] {
            assert_eq!(shim(&host.bus, &["add", "--dir", &at, "--", wrong]).0, Some(2), "{wrong}");
        }
        let listed = shim(&host.bus, &["list"]).1;
        assert!(listed.starts_with("1 shim\n") && listed.contains("(else "), "{listed}");
        let json: serde_json::Value =
            serde_json::from_str(&shim(&host.bus, &["list", "--json"]).1).unwrap();
        assert_eq!(
            (&json["shims"][0]["name"], &json["shims"][0]["first"]),
            (&"nproc".into(), &true.into())
        );

        let run = |bus: &Bus, arguments: &[&str]| {
            let mut command = bus.command("nproc");
            // The shell's look-up, as a plugin of an editor does it.
            command.args(arguments).env("PATH", &path);
            told(command.output().unwrap())
        };
        let (status, out, _) = run(&host.bus, &["--version"]);
        assert!(status == Some(0) && out.contains("coreutils"), "the host's: {out}");
        // What is wrong there is wrong here.
        assert_eq!(run(&host.bus, &["--nonsense"]).0, Some(1));
        // A shim that the host itself would run again does not run for ever.
        let mut inside = host.bus.command("nproc");
        let (status, out, _) =
            told(inside.env("PATH", &path).env("UNJANK_SHIM", "nproc").output().unwrap());
        assert_eq!((status, &*out), (Some(3), "own\n"));

        let _ = host.service.kill();
        let _ = host.service.wait();
        assert_eq!(run(&host.bus, &["x y"]), (Some(3), "own x y\n".into(), String::new()));
        host.bus.kill();
        assert_eq!(run(&host.bus, &[]), (Some(3), "own\n".into(), String::new()));
        fs::remove_file(own.join("nproc")).unwrap();
        assert_eq!(shim(&host.bus, &["remove", "taken", "--dir", &at]).0, Some(2));
        assert_eq!(shim(&host.bus, &["remove", "nproc", "--dir", &at]).0, Some(0));
        assert_eq!(shim(&host.bus, &["list"]).1, "There are no shims.\n");
    });
}

#[test]
fn what_the_policy_forbids_is_refused_and_what_ran_is_in_the_log() {
    in_time(|| {
        let Some(host) = Host::ours() else { return };
        let policy = |arguments: &[&str]| {
            let mut command = host.bus.command(UNJANK);
            told(command.args(["host", "policy"]).args(arguments).output().unwrap())
        };
        assert!(policy(&["show"]).1.starts_with("Every application may run every command"));
        assert_eq!(policy(&["explain", "org.x.App", "true"]).0, Some(0));
        assert_eq!(host.run(&["sh", "-c", "exit 4"]).0, Some(4));
        assert_eq!(policy(&["deny", "host", "true"]).0, Some(0));
        assert_eq!(policy(&["allow", "org.x.App", "git", "status"]).0, Some(0));
        let file = host.bus.dir().join("config/unjank/host-policy");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("# Mine.\n{text}")).unwrap();
        assert_eq!(policy(&["deny", "org.x.App", "*"]).0, Some(0));
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# Mine.\n[host]\ndeny true\n"), "{text}");
        let (status, said, _) = policy(&["explain", "host", "true"]);
        assert!(status == Some(1) && said.contains("may not run"), "{said}");
        let json: serde_json::Value = serde_json::from_str(&policy(&["show", "--json"]).1).unwrap();
        assert_eq!(json["sections"][0]["rules"][0]["words"][0], "true");

        let (status, _, said) = host.run(&["true"]);
        assert!(status == Some(126) && said.contains("cannot run true on the host"), "{said}");
        assert_eq!(policy(&["remove", "host", "true"]).0, Some(0));
        assert_eq!(policy(&["remove", "host", "true"]).0, Some(1));
        wait_until(|| host.run(&["true"]).0 == Some(0));
        fs::write(&file, "nonsense\n").unwrap();
        let (status, _, said) = policy(&["show"]);
        assert!(status == Some(2) && said.contains("line 1"), "{said}");

        let log = |arguments: &[&str]| {
            let mut command = host.bus.command(UNJANK);
            told(command.args(["host", "log"]).args(arguments).output().unwrap()).1
        };
        // The end of a command, and a refusal, are written after they were told.
        wait_until(|| {
            let text = log(&["--json"]);
            text.contains("\"wait_status\": 1024") && text.contains("\"refused\"")
        });
        let json: serde_json::Value = serde_json::from_str(&log(&["--json"])).unwrap();
        let commands = json["commands"].as_array().unwrap();
        assert_eq!(commands[0]["command"], serde_json::json!(["sh", "-c", "exit 4"]));
        assert_eq!(commands[0]["app"], "host");
        assert!(commands.iter().any(|command| command["outcome"] == "refused"));
        let shown = log(&["--failed", "-n", "50"]);
        assert!(shown.contains("sh -c 'exit 4'"), "{shown}");
        assert!(shown.contains("\nNot run:\n- refused to host: "), "{shown}");
        assert!(log(&["--app", "org.no.One"]).starts_with("No recorded host command matches."));
    });
}

#[test]
fn the_doctor_says_who_serves_and_what_is_left_behind() {
    through_each(|host| {
        let doctor = |display: Option<&str>| {
            let mut command = host.bus.command(UNJANK);
            command.args(["doctor", "--only", "host", "--json"]);
            display.map(|display| command.env("DISPLAY", display));
            let (status, out, err) = told(command.output().unwrap());
            assert!(status.is_some_and(|status| status < 2), "{err}");
            out
        };
        let said = doctor(None);
        let served = format!("(process {})", host.service.id());
        assert!(said.contains(&served) && said.contains("run a host command"), "{said}");
        assert!(said.contains("is that of this session"), "{said}");
        // The service was started without a display.
        let said = doctor(Some(":7"));
        assert!(said.contains("is another session's: DISPLAY differ"), "{said}");

        let running = host.script(&[], "echo $$; exec sleep 1000");
        let orphan = running.number();
        assert!(!doctor(None).contains("orphaned host commands"));
        drop(running);
        // Only ours keeps a log, by which they are known.
        if host.bus.dir().join("state/unjank/host").exists() {
            let named = format!("sh ({})", orphan.as_raw_nonzero());
            wait_until(|| doctor(None).contains(&named));
        }
        kill_process(orphan, Signal::KILL).unwrap();
    });
}

#[test]
fn the_benchmark_measures_every_figure() {
    in_time(|| {
        if !Path::new(REAL).exists() || !Path::new(SPAWN).exists() {
            return skip("no flatpak-session-helper or no flatpak-spawn");
        }
        let mut command = Command::new(UNJANK);
        command.args(["bench", "host", "--quick", "--json", "--peer", REAL, "--client", SPAWN]);
        let unjankd = env!("CARGO_BIN_EXE_unjankd");
        let (code, out, err) = told(command.args(["--ours", unjankd]).output().unwrap());
        let run: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{err}"));
        let ids: Vec<_> = run["figures"].as_array().unwrap().iter().map(|row| &row["id"]).collect();
        let mut expected = vec!["spawn", "client", "client-small", "plain-ours", "plain-peer"];
        if has_compiler() {
            expected.extend(["bare", "bare-ours"]);
        }
        expected.extend(["bytes", "burst"]);
        assert_eq!(ids, expected, "{out}");
        assert_eq!(code, Some(0), "a quick run judges no time: {out}");
    });
}

/// Says whether the least client and service can be compiled.
fn has_compiler() -> bool {
    Command::new("cc").arg("--version").stdout(Stdio::null()).status().is_ok()
}
