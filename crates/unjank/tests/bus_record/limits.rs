//! An ordinary user who may have no more processes and threads: every command ends with an error that says so, and none
//! with a panic.

use std::process::Command;

use super::fixture::{Bus, copy_program, has, in_time, skip};
use super::{UNJANK, said};

/// Runs `$1 bus ...` with ever more processes and threads on a bus of the user's own. The bus and the shells count, too.
const SCRIPT: &str = r#"
cd "$2"
started=$(dbus-daemon --session --fork --print-address=1 --print-pid=1) || exit 9
export DBUS_SESSION_BUS_ADDRESS=$(sed -n 1p <<< "$started")
trap "kill $(sed -n 2p <<< "$started")" EXIT
"$1" bus record --for 300ms -o x.pcapng 2> first || exit 8
echo "no errors" > rules
run() {
    (ulimit -u "$limit"; exec timeout -s KILL 60 "$program" bus "$@") > out 2> said
    status=$?
    printf '%s %s %s: %s\n' "$limit" "$status" "$*" "$(tr '\n' ' ' < said)"
}
program=$1
for limit in 1 2 3 4 5 6 7 8 9 10 11 12 14 16; do
    run record --for 100ms -o "r$limit.pcapng"
    run tail --for 100ms
    run expect -f rules -- true
    run expect -f rules x.pcapng
    run stats x.pcapng
    run diagram x.pcapng -o "d$limit.html"
    run convert x.pcapng -o "c$limit.jsonl"
    run merge x.pcapng x.pcapng -o "m$limit.pcapng"
done
"#;

#[test]
fn who_may_have_no_more_processes_is_told_so() {
    if !has(&["setpriv", "bash", "dbus-daemon", "timeout"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        skip("only root can be another user");
        return;
    }
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let home = tempfile::tempdir().unwrap();
        let program = home.path().join("unjank");
        copy_program(UNJANK, &program);
        // One that the bus finds a name for and that nothing else runs as, so that no other process counts.
        let user = "news";
        let given = Command::new("chown").args(["-R", user]).arg(home.path()).status();
        assert!(given.unwrap().success());
        let mut command = bus.command("setpriv");
        command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
        command.args(["bash", "-c", SCRIPT, "bash"]).arg(&program).arg(home.path());
        let output = command.env("XDG_RUNTIME_DIR", home.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.lines().count(), 14 * 8, "{text}{}", said(&output));
        let mut refused = 0;
        for line in text.lines() {
            assert!(!line.contains("panicked"), "{line}");
            let status: u32 = line.split(' ').nth(1).unwrap().parse().unwrap();
            // What is above 2 is of the shell and of timeout, which may have no processes either.
            if status == 2 {
                assert!(
                    line.contains("temporarily unavailable") && line.contains("hint: "),
                    "{line}"
                );
                refused += 1;
            }
            assert!(matches!(status, 0 | 2 | 124..=126), "{line}");
        }
        let last = text.lines().rev().take(8);
        assert!(last.clone().all(|line| line.split(' ').nth(1) == Some("0")), "{text}");
        assert!(refused > 4, "nothing was refused: {text}");
    });
}
