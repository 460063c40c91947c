//! `unjank run` beside a real systemd of a user: its jobs in scopes of `background.slice`, held before a program that it starts, and nothing left of them.
//!
//! The manager runs in process, mount and cgroup namespaces of its own, in a cgroup of the test's: it sees and moves no process but those that are started there.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test that cannot be set up fails; it stands for a user"
)]

use crate::fixture;

use std::process::{Command, Output};

use fixture::{has, in_time, skip};

/// What the scripts of these tests begin with.
const JOBS: &str = r#"
slice=/sys/fs/cgroup/manager/background.slice
# On a busy machine the answer may come too late for one job.
until $UNJANK run -- grep -q background.slice /proc/self/cgroup; do :; done
jobs() { $UNJANK jobs --json | tr -d ' \n'; }
job() { $UNJANK jobs --json | sed -n 's/.*"job": \([0-9]*\).*/\1/p'; }
mkfifo /run/pipe
# Starts a job with a descendant, in its scope, and holds it.
start() {
    $UNJANK run -- sh -c 'echo up > /run/pipe; sleep 1000 & sleep 1000' &
    supervisor=$!
    read line < /run/pipe
    scope=$slice/unjank-run-$supervisor.scope
    [ -d $scope/unjank-job ] || { kill $supervisor; wait $supervisor || start; return; }
    until [ -n "$(job)" ]; do :; done
    $UNJANK jobs pause $supervisor
    grep -q 1 $scope/unjank-job/cgroup.freeze
    keeper=$(cat $scope/unjank-keeper/cgroup.procs)
}
"#;

/// Runs a script beside a manager, where there can be one.
fn beside_systemd(script: &str) -> Option<Output> {
    fixture::systemd::beside_systemd(&format!("{JOBS}{script}"))
}

fn check(output: &Output, wanted: &[&str]) {
    let text = String::from_utf8_lossy(&output.stdout);
    let said: Vec<&str> = text.lines().collect();
    assert_eq!(said, wanted, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_job_is_in_a_scope_of_the_background_and_its_keeper_beside_it() {
    in_time(|| {
        let script = r#"
$UNJANK run -- sed -n 's/^0:://p' /proc/self/cgroup | sed 's/run-[0-9]*/run-N/'
$UNJANK run -- sh -c 'exit 7' || echo "ended with $?"
$UNJANK run -- /no/such/program 2>/dev/null || echo "ended with $?"
$UNJANK run -- sh -c 'job=$(sed -n s/^0:://p /proc/self/cgroup); cat /sys/fs/cgroup${job%/unjank-job}/unjank-keeper/cgroup.procs | wc -l'
# Each scope is gone with its job.
until [ -z "$(ls -d $slice/*.scope 2>/dev/null)" ]; do :; done
echo clean
"#;
        let Some(output) = beside_systemd(script) else { return };
        let scope = "/manager/background.slice/unjank-run-N.scope/unjank-job";
        check(&output, &[scope, "ended with 7", "ended with 127", "1", "clean"]);
    });
}

#[test]
fn a_frozen_job_goes_on_or_ends_when_one_of_ours_is_killed() {
    in_time(|| {
        let script = r#"
start
kill -9 $supervisor
until ! grep -q 1 $scope/unjank-job/cgroup.freeze 2>/dev/null; do :; done
echo thawed
# Its descendants may run on, as without us; the command itself was killed.
systemctl --user stop unjank-run-$supervisor.scope
until [ ! -d $scope ]; do :; done
start
kill -9 $keeper
until ! grep -q 1 $scope/unjank-job/cgroup.freeze 2>/dev/null; do :; done
kill -TERM $supervisor
wait $supervisor || echo "ended with $?"
systemctl --user stop unjank-run-$supervisor.scope 2>/dev/null || true
until [ ! -d $scope ]; do :; done
# Systemd ends the job itself.
start
$UNJANK jobs resume $supervisor
systemctl --user stop unjank-run-$supervisor.scope
wait $supervisor || echo "ended with $?"
until [ -z "$(ls -d $slice/*.scope 2>/dev/null)" ]; do :; done
echo clean
"#;
        let Some(output) = beside_systemd(script) else { return };
        check(&output, &["thawed", "ended with 143", "ended with 143", "clean"]);
    });
}

#[test]
fn a_frozen_job_whose_two_processes_were_killed_at_once_goes_on_at_the_next_look() {
    in_time(|| {
        let script = r#"
start
# Somebody lives who owns it.
$UNJANK jobs >/dev/null
grep -q 1 $scope/unjank-job/cgroup.freeze && echo held
# Stopped first, so that neither sees the end of the other.
kill -STOP $supervisor $keeper
for one in $supervisor $keeper; do
    until grep -q '^State:.T' /proc/$one/status; do :; done
done
kill -9 $supervisor $keeper
wait $supervisor || echo "ended with $?"
# Its locks are gone with its last thread.
until ! grep -q . $scope/unjank-keeper/cgroup.procs; do :; done
grep -q 1 $scope/unjank-job/cgroup.freeze && echo frozen
until [ ! -d $scope/unjank-job ]; do $UNJANK jobs >/dev/null; done
# The descendants run on.
systemctl --user stop unjank-run-$supervisor.scope
until [ ! -d $scope ]; do :; done
echo clean
"#;
        let Some(output) = beside_systemd(script) else { return };
        check(&output, &["held", "ended with 137", "frozen", "clean"]);
    });
}

#[test]
fn a_job_is_held_before_a_program_that_systemd_starts() {
    in_time(|| {
        let script = r#"
$UNJANK run -- sleep 1000 &
supervisor=$!
until [ "$(job)" = $supervisor ]; do :; done
# The keeper listens some time after it has started; units that are no programs hold nothing.
for other in 1 2 3; do systemd-run --user --scope --quiet true; done
jobs | grep -q launch && echo "held for another unit"
until jobs | grep -q '"cause":"launch"'; do
    systemd-run --user --scope --quiet --unit app-test-$(date +%N).scope true
done
echo held
# Nobody waits: it runs again.
until jobs | grep -q '"held":false'; do :; done
echo released
kill $supervisor
wait $supervisor || echo "ended with $?"
# As a service, too.
$UNJANK run -- sleep 1000 &
supervisor=$!
until [ "$(job)" = $supervisor ]; do :; done
until jobs | grep -q '"cause":"launch"'; do
    systemd-run --user --quiet --wait --unit app-test@$(date +%N).service true
done
echo held
kill $supervisor
wait $supervisor || echo "ended with $?"
"#;
        let Some(output) = beside_systemd(script) else { return };
        let ended = "ended with 143";
        check(&output, &["held", "released", ended, "held", ended]);
    });
}

#[test]
fn an_adopted_unit_runs_in_the_idle_class_and_is_attached_to() {
    in_time(|| {
        // What an ordinary user gets; the manager here is root's.
        let script = r#"
units=/run/adopt/systemd/user
mkdir -p $units
# Where only root can change it, whoever has built it.
mkdir -p /run/bin
cp $UNJANK /run/bin/unjank
UNJANK=/run/bin/unjank
cat > $units/borgmatic.service <<END
[Service]
ExecStart=/bin/sleep 1000
END
chown -R 65534 /run/adopt
setpriv --reuid=65534 --clear-groups env HOME=/run/adopt XDG_CONFIG_HOME=/run/adopt $UNJANK run --adopt-units >/dev/null
mkdir -p /run/home/.config/systemd
cp -r $units /run/home/.config/systemd/
systemd-analyze --user verify borgmatic.service unjank-run@borgmatic.service.service 2>&1
systemctl --user daemon-reload
systemctl --user start borgmatic.service
pid=$(systemctl --user show --value -p MainPID borgmatic.service)
# It is started before it is the command.
until grep -qx sleep /proc/$pid/comm; do :; done
ionice -p $pid
until $UNJANK jobs --json | grep -o '"borgmatic.service"'; do :; done
job=
until [ -n "$job" ]; do job=$(job); done
$UNJANK jobs pause $job
grep -q 1 /sys/fs/cgroup/manager/app.slice/borgmatic.service/cgroup.freeze && echo held
systemctl --user kill --kill-whom=main -s KILL 'unjank-run@borgmatic.service.service'
until grep -q 0 /sys/fs/cgroup/manager/app.slice/borgmatic.service/cgroup.freeze; do :; done
echo "goes on"
systemctl --user stop borgmatic.service
until [ -z "$(job)" ]; do :; done
setpriv --reuid=65534 --clear-groups env HOME=/run/adopt XDG_CONFIG_HOME=/run/adopt $UNJANK run --adopt-units --undo >/dev/null
ls $units
"#;
        let Some(output) = beside_systemd(script) else { return };
        let unit = "\"borgmatic.service\"";
        check(&output, &["idle", unit, "held", "goes on", "borgmatic.service"]);
    });
}

#[test]
fn root_adopts_no_unit_with_a_program_that_somebody_else_can_change() {
    in_time(|| {
        if !rustix::process::geteuid().is_root() {
            skip("another user's program is made by root");
            return;
        }
        if !has(&["unshare", "mount"]) {
            return;
        }
        // The machine's own units are out of sight.
        let script = r#"
set -eu
mount -t tmpfs -o mode=755 tmpfs /etc/systemd
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /etc/systemd/system
echo '[Service]' > /etc/systemd/system/man-db.service
try() {
    umask 000
    "$2" run --adopt-units >/run/said 2>&1 && echo "$1: adopted" || echo "$1: refused"
    umask 022
    # The machine may have other units that are known.
    ls /etc/systemd/system | grep -E '^(unjank-run|man-db.service.d)' || true
}
put() { mkdir -p $1; cp $UNJANK $1/unjank; }
put /run/home/bin
chown -R 65534 /run/home
try "a user's own" /run/home/bin/unjank
put /run/below/bin
chown 65534 /run/below
try "below a user's directory" /run/below/bin/unjank
put /run/open
chmod 777 /run/open
try "in an open directory" /run/open/unjank
put /run/sticky
chmod 1777 /run/sticky
try "in a directory for all" /run/sticky/unjank
put /run/writable
chmod 757 /run/writable/unjank
try "writable itself" /run/writable/unjank
put /run/group
chmod 775 /run/group
try "writable by a group" /run/group/unjank
mkdir /run/link
ln -s /run/home/bin/unjank /run/link/unjank
try "a link to a user's" /run/link/unjank
put /run/good
try good /run/good/unjank
cd /etc/systemd/system
stat -c '%a %n' unjank-run@.service man-db.service.d man-db.service.d/60-unjank.conf
grep ExecStart unjank-run@.service
# One that was made before, for a program that is not trusted now.
sed -i s,/run/good,/run/home/bin, unjank-run@.service
/run/good/unjank run --adopt-units
grep ExecStart unjank-run@.service
cat /run/said >&2
"#;
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .env("UNJANK", env!("CARGO_BIN_EXE_unjank"))
            .output()
            .unwrap();
        let start = "ExecStart=\"/run/good/unjank\" run --attach %i";
        let wanted = [
            "a user's own: refused",
            "below a user's directory: refused",
            "in an open directory: refused",
            "in a directory for all: refused",
            "writable itself: refused",
            "writable by a group: refused",
            "a link to a user's: refused",
            "good: adopted",
            "man-db.service.d",
            "unjank-run@.service",
            "644 unjank-run@.service",
            "755 man-db.service.d",
            "644 man-db.service.d/60-unjank.conf",
            start,
            "made /etc/systemd/system/unjank-run@.service",
            "It takes effect after: systemctl daemon-reload",
            start,
        ];
        check(&output, &wanted);
    });
}
