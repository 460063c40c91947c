//! An ordinary user who may have no more processes and threads: a command does its work, or ends with an error that says why.

use std::process::Command;

use crate::fixture::{self, Bus, copy_program, has, in_time, skip};

/// One that the bus finds a name for and that nothing else runs as: no other process counts.
const USER: &str = "uucp";

/// Runs each line of `lines` in `$1` with ever more processes and threads, on a bus of the user's own.
const SCRIPT: &str = r#"
cd "$1"
export HOME=$1/home XDG_RUNTIME_DIR=$1/run PATH=$1:$PATH
unset XDG_CONFIG_HOME XDG_CACHE_HOME XDG_DATA_HOME XDG_STATE_HOME
started=$(dbus-daemon --session --fork --print-address=1 --print-pid=1) || exit 9
export DBUS_SESSION_BUS_ADDRESS=$(sed -n 1p <<< "$started")
trap "kill $(sed -n 2p <<< "$started")" EXIT
for more in 0 1 2; do
    while read -r line; do
        # The command itself is one, and what earlier commands started may go on.
        limit=$(($(ps -L --no-headers -u "$(id -u)" | wc -l) + more))
        timeout -s KILL 100 prlimit --nproc="$limit" $line > out 2> said < /dev/null
        status=$?
        printf '%s %s %s: %s\n' "$more" "$status" "$line" "$(tr '\n' ' ' < said)"
    done < lines
done
"#;

/// What starts threads or processes, from each group of commands; those of `unjank bus` have a test of their own.
const LINES: &str = "\
unjank trace -- true
unjank trace --backend ptrace -- true
unjank trace --backend peek -- true
unjank trace ab --yes --skip fsync -- true
unjank trace check --max fsync=0 -- true
unjank run -- true
unjank jobs list
unjank settings write /a/b 1
unjank settings check
unjank recent add /etc/passwd
unjank recent sync
unjank recent forget /etc/passwd
unjank ls -lR --color=always /usr/share/doc/bash
unjank plugins index
unjank plugins list
unjank apps default text/plain
unjank host -- true
unjank doctor --only settings
unjank doctor --only bus
unjankd --names dconf --idle-exit 1
unjankd --names session --idle-exit 1
unjankd --names dconf,session,flatpak --idle-exit 1
unjank-index
unjank-host -- true
";

#[test]
fn who_may_have_no_more_processes_is_told_so_by_every_command() {
    if !has(&["setpriv", "bash", "dbus-daemon", "timeout", "prlimit", "ps"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skip("only root can be another user");
    }
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let place = tempfile::tempdir().unwrap();
        for name in ["home", "run"] {
            std::fs::create_dir(place.path().join(name)).unwrap();
        }
        for program in ["unjank", "unjankd", "unjank-index", "unjank-host"] {
            let built = std::path::Path::new(fixture::OURS).with_file_name(program);
            copy_program(built.to_str().unwrap(), &place.path().join(program));
        }
        fixture::script(&place.path().join("lines"), LINES);
        let given = Command::new("chown").args(["-R", USER]).arg(place.path()).status();
        assert!(given.unwrap().success());
        let mut command = bus.command("setpriv");
        command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]);
        command.args(["bash", "-c", SCRIPT, "bash"]).arg(place.path());
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(text.lines().count(), 3 * LINES.lines().count(), "{text}{said}");
        let mut refused = 0;
        for line in text.lines() {
            assert!(!line.contains("panicked"), "{line}");
            let status: u32 = line.split(' ').nth(1).unwrap().parse().unwrap();
            // 125 and 126 are a command of `run` and `host` that did not start, and what the shell and timeout say.
            assert!(matches!(status, 0..=2 | 125..=126), "{line}");
            // A daemon goes on without a part that could not be started: its log says so, with the same hint.
            let is_refused = line.contains("temporarily unavailable")
                || line.contains("cannot start the thread");
            if line.contains(" WARN ") && is_refused {
                assert!(line.contains("hint=\"the limit on processes"), "{line}");
            } else if line.contains("temporarily unavailable") {
                assert!(line.contains("hint: the limit on processes"), "{line}");
                assert!(matches!(status, 2 | 125..=126), "{line}");
                refused += 1;
            }
        }
        assert!(refused > 8, "nothing was refused: {text}");
    });
}
