//! `unjank-host`, the client as a small program: what `unjank host` does, with nothing of a sandbox's libraries.

use std::path::Path;
use std::process::{Command, Stdio};

use super::fixture::{has, in_time};
use super::{Host, SMALL, UNJANK, told};

#[test]
fn the_small_program_answers_every_command_line_as_unjank_host_does() {
    in_time(|| {
        let Some(host) = Host::ours() else { return };
        let shims = host.bus.dir().join("shims");
        let shims = shims.to_str().unwrap();
        for words in [
            &["sh", "-c", "echo out; echo err >&2; exit 7"][..],
            &["--", "sh", "-c", "kill -TERM $$"],
            &["--clear-env", "--env", "A=b", "/usr/bin/env"],
            &["--unset-env", "HOME", "--nice", "3", "--idle", "sh", "-c", "nice; echo $HOME"],
            &["-C", "/", "--tty", "never", "pwd"],
            &["--timeout", "50ms", "sleep", "1000"],
            &["--watch-bus", "true"],
            &["--forward-fd", "99", "true"],
            &["--env-fd", "99", "true"],
            &["no-such-command"],
            &["/"],
            &["--directory", "/no/such", "true"],
            &["--env", "A", "true"],
            &["--nonsense\x1b[2J", "true"],
            &["--help"],
            &["shim", "--help"],
            &["shim", "list", "--dir", shims],
            &["shim", "remove", "git", "--dir", shims],
            &["policy", "show"],
            &["log", "--since", "never"],
            &[],
        ] {
            let small = host.bus.command(SMALL).args(words).stdin(Stdio::null()).output();
            let (status, out, err) = told(small.unwrap());
            let (whole_status, whole_out, whole_err) = host.run(words);
            assert_eq!(status, whole_status, "{words:?}: {err}");
            // Each says in its help how it is called, and breaks lines as that has room.
            let plain = |text: &str| {
                let text = text.replace("unjank host", "unjank-host");
                let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
                // Whole, it is `unjank --version`.
                text.replace(" -V, --version Print version", "")
            };
            assert_eq!(plain(&out), plain(&whole_out), "{words:?}");
            assert_eq!(plain(&err), plain(&whole_err), "{words:?}");
        }
    });
}

#[test]
fn a_shim_is_a_link_to_the_small_program() {
    in_time(|| {
        let Some(host) = Host::ours() else { return };
        let shims = host.bus.dir().join("shims");
        for program in [&[UNJANK, "host"][..], &[SMALL]] {
            let run = |words: &[&str]| {
                let mut command = host.bus.command(program[0]);
                let dir = ["--dir", shims.to_str().unwrap()];
                command.args(&program[1..]).arg("shim").args(words).args(dir);
                told(command.output().unwrap())
            };
            let (status, _, said) = run(&["add", "sh"]);
            assert_eq!(status, Some(0), "{said}");
            let link = shims.join("sh").canonicalize().unwrap();
            assert_eq!(link, Path::new(SMALL).canonicalize().unwrap());
            let shim = host.bus.command(shims.join("sh")).args(["-c", "exit 9"]).status();
            assert_eq!(shim.unwrap().code(), Some(9));
            assert!(run(&["list"]).1.contains("sh"));
            assert_eq!(run(&["remove", "sh"]).0, Some(0));
        }
    });
}

#[test]
fn the_small_program_starts_where_there_is_no_library() {
    if !has(&["bwrap"]) {
        return;
    }
    in_time(|| {
        let Some(host) = Host::ours() else { return };
        let dir = host.bus.dir().to_str().unwrap();
        let mut command = host.bus.command("bwrap");
        // Nothing but the program and the directory of the bus.
        command.args(["--unshare-pid", "--dev", "/dev", "--proc", "/proc", "--bind", dir, dir]);
        command.args(["--bind", "/tmp", "/tmp", "--ro-bind", SMALL, "/flatpak-spawn"]);
        command.args(["--ro-bind", SMALL, "/unjank-host", "--chdir", "/"]);
        for (words, status) in [
            (&["/unjank-host", "--", "sh", "-c", "echo on the host; exit 5"][..], 5),
            (&["/flatpak-spawn", "--host", "sh", "-c", "echo on the host; exit 6"], 6),
        ] {
            let mut inside = Command::new("bwrap");
            inside.args(command.get_args()).args(words);
            for (name, value) in command.get_envs() {
                inside.env(name, value.unwrap_or_default());
            }
            let (code, out, err) = told(inside.stdin(Stdio::null()).output().unwrap());
            assert_eq!((code, &*out, &*err), (Some(status), "on the host\n", ""), "{words:?}");
        }
    });
}
