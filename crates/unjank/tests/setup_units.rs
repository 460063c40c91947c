//! What `unjank setup` and `unjank undo` end in a session that systemd runs, and what they leave running.

use crate::fixture::systemd::beside_systemd;
use crate::fixture::{has, in_time};

/// Runs a script beside a manager; compares what it says.
fn says(script: &str, wanted: &[&str]) {
    let functions = r#"
quiet() { "$@" >/run/said 2>&1 || { cat /run/said >&2; exit 1; }; }
bus() { dbus-send --session --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.$1 string:$2; }
serves() { bus GetConnectionUnixProcessID "$1" 2>/dev/null | sed -n 's/.*uint32 //p'; }
main() { systemctl --user show --value -p MainPID "$1"; }
"#;
    let Some(output) = beside_systemd(&format!("{functions}{script}")) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.lines().collect::<Vec<_>>(), wanted, "{output:?}");
}

#[test]
fn the_daemon_of_the_lists_in_memory_goes_on_without_the_part_listing_and_after_an_upgrade() {
    in_time(|| {
        says(
            r#"
unit=unjank-recents.service
quiet $UNJANK setup recents listing
until [ "$(main $unit)" != 0 ] && [ "$(serves org.unjank.Session1)" = "$(main $unit)" ]; do :; done
first=$(main $unit)
quiet $UNJANK undo listing
systemctl --user is-active $unit
[ "$(main $unit)" = "$first" ] && echo "the same"
# Another version takes the place of its program.
cp $HOME/.local/bin/unjankd $HOME/.local/bin/new
mv $HOME/.local/bin/new $HOME/.local/bin/unjankd
quiet $UNJANK setup listing
systemctl --user is-active $unit
[ "$(main $unit)" != "$first" ] && echo "a new one"
until [ "$(serves org.unjank.Session1)" = "$(main $unit)" ]; do :; done
# With both parts it ends.
quiet $UNJANK undo
until [ -z "$(serves org.unjank.Session1)" ]; do :; done
systemctl --user -q is-active $unit || echo "ended"
ls -A $HOME/.local/bin 2>/dev/null
"#,
            &["active", "the same", "active", "a new one", "ended"],
        );
    });
}

#[test]
fn host_commands_that_run_are_not_ended_by_undo_or_an_upgrade() {
    in_time(|| {
        if !has(&["pgrep", "pkill", "setsid"]) {
            return;
        }
        says(
            r#"
host=$HOME/.local/bin/unjank-host
on() {
    quiet $UNJANK setup host
    systemctl --user start unjank-host.service
}
runs() { pgrep -fx "sleep $1" >/dev/null && echo "$1 runs"; }
told() { grep -o 'runs host commands\|systemctl --user stop unjank-host.service' /run/said; }
on
$host -- sleep 987650 >/dev/null 2>&1 &
until runs 987650 >/dev/null; do :; done
# A program of another version is there.
cp $HOME/.local/bin/unjankd $HOME/.local/bin/new
mv $HOME/.local/bin/new $HOME/.local/bin/unjankd
quiet $UNJANK setup host
told
runs 987650
quiet $UNJANK undo host
told
runs 987650
pkill -fx 'sleep 987650'
wait $! || true
# What a command has left behind.
on
$host -- sh -c 'setsid sleep 987651 >/dev/null 2>&1 </dev/null &'
quiet $UNJANK undo host
told
runs 987651
pkill -fx 'sleep 987651'
until ! pgrep -fx 'sleep 987651' >/dev/null; do :; done
on
quiet $UNJANK undo host
systemctl --user is-active unjank-host.service || true
[ -z "$(serves org.freedesktop.Flatpak)" ] && echo "ended"
"#,
            &[
                "runs host commands",
                "systemctl --user stop unjank-host.service",
                "987650 runs",
                "runs host commands",
                "systemctl --user stop unjank-host.service",
                "987650 runs",
                "runs host commands",
                "systemctl --user stop unjank-host.service",
                "987651 runs",
                "inactive",
                "ended",
            ],
        );
    });
}
