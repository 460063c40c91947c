//! What `unjank setup` and `unjank undo` end in a session that systemd runs, and what they leave running.

use crate::fixture::in_time;
use crate::fixture::systemd::beside_systemd;

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
