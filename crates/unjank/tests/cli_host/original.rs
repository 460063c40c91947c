//! Under the name of the original: the same words, statuses and ends.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Signal, kill_process};

use super::fixture::{self, skip};
use super::{Running, SMALL, SPAWN, through_each, told};

/// The name under which ours is called like the original.
fn like_the_original(dir: &Path) -> PathBuf {
    let link = dir.join("flatpak-spawn");
    if !link.exists() {
        std::os::unix::fs::symlink(SMALL, &link).unwrap();
    }
    link
}

#[test]
fn under_the_name_of_the_original_it_says_and_does_the_same() {
    through_each(|host| {
        if !Path::new(SPAWN).exists() {
            return skip("no flatpak-spawn");
        }
        let ours = like_the_original(host.bus.dir());
        let run = |program: &Path, arguments: &[&str]| {
            let mut command = host.bus.command(program);
            // The same name in the messages of both.
            command.arg0("flatpak-spawn").args(arguments).stdin(Stdio::null());
            told(command.output().unwrap())
        };
        for arguments in [
            &["--host", "--", "echo", "hi"][..],
            &["--host", "echo", "--host"],
            &["--host", "--env=FOO=1", "printenv", "FOO"],
            &["--host", "--env=FOO", "true"],
            &["--host", "--env==x", "true"],
            &["--host", "--env", "FOO=1", "true"],
            &["--host", "--unset-env=HOME", "printenv", "HOME"],
            &["--host", "--clear-env", "env"],
            &["--host", "--directory=/nope", "true"],
            &["--host", "--directory=/tmp", "pwd"],
            &["--host", "--nonsense", "true"],
            &["--host", "--env"],
            &["--host"],
            &[],
            &["--host", "--forward-fd=77", "true"],
            &["--host", "--forward-fd=x", "true"],
            &["--host", "--sandbox", "true"],
            &["--host", "--app-path=/x", "true"],
            &["--host", "--sandbox-expose-path-try=/x", "true"],
            &["--host", "/nope"],
            &["--host", "/"],
            &["--host", ""],
            &["--host", "--watch-bus", "sh", "-c", "exit 139"],
            &["--host", "sh", "-c", "kill -TERM $$"],
            &["--host", "sh", "-c", "kill -34 $$"],
        ] {
            let theirs = run(Path::new(SPAWN), arguments);
            assert_eq!(run(&ours, arguments), theirs, "{arguments:?}");
        }
        let running = {
            let mut command = host.bus.command(&ours);
            command.args(["--host", "sh", "-c", "echo $$; exec sleep 1000"]);
            Running::start(command)
        };
        kill_process(running.number(), Signal::USR1).unwrap();
        assert_eq!(running.end().0.code(), Some(138));
        // Without --host it is the sandbox's own that is asked.
        let mut other = host.bus.command(&ours);
        fs::create_dir(host.bus.dir().join("bin")).unwrap();
        let fake = host.bus.dir().join("bin/flatpak-spawn");
        fixture::script(&fake, "#!/bin/sh\necho own \"$@\"\n");
        let path = format!(
            "{}:{}:/usr/bin:/bin",
            host.bus.dir().display(),
            fake.parent().unwrap().display()
        );
        let (status, out, _) =
            told(other.env("PATH", path).args(["--sandbox", "ls"]).output().unwrap());
        assert_eq!((status, &*out), (Some(0), "own --sandbox ls\n"));
    });
}

#[test]
fn under_the_name_of_the_original_a_lost_bus_is_no_success() {
    through_each(|mut host| {
        let ours = like_the_original(host.bus.dir());
        let mut command = host.bus.command(&ours);
        command.args(["--host", "sh", "-c", "echo $$; exec sleep 1000"]);
        let running = Running::start(command);
        let orphan = running.number();
        host.bus.kill();
        // The original says 0 here.
        assert_eq!(running.end().0.code(), Some(1));
        let _ = kill_process(orphan, Signal::KILL);
        let (status, _, said) =
            told(host.bus.command(&ours).args(["--host", "true"]).output().unwrap());
        assert!(status == Some(1) && said.starts_with("Can't find bus: "), "{said}");
    });
}
