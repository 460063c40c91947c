//! Many clients at once: each of their commands runs, and none of those that run already is lost.

use super::fixture::{has, in_time, sandbox, setting};
use super::host_service::raw::{Host, SPAWN, until};
use session::host::log::Outcome;

/// Starts clients that wait for commands at once, and says how many of those ended as they should, and what the others said.
/// A proxy lets a few connections wait for it and turns the next ones away; that is tried again.
const SCRIPT: &str = r#"
    one() {
        while :; do
            said=$("$@" sh -c 'exit 7' 2>&1)
            status=$?
            case $said in *'Resource temporarily unavailable'*) ;; *) break ;; esac
        done
        [ $status = 7 ] || echo "status $status: $said" >&2
        exit $status
    }
    clients=$1; shift
    all=
    i=0
    while [ $i -lt $clients ]; do
        one "$@" &
        all="$all $!"
        i=$((i + 1))
    done
    right=0
    for each in $all; do
        wait $each
        [ $? != 7 ] || right=$((right + 1))
    done
    echo "right: $right" >&2
"#;

#[test]
fn the_commands_of_many_clients_at_once_all_run() {
    match setting("CLIENTS") {
        Some(clients) => all_run(clients),
        None => in_time(|| all_run(60)),
    }
}

fn all_run(clients: u64) {
    if !has(&["bwrap", "xdg-dbus-proxy"]) {
        return;
    }
    let count = clients.to_string();
    let Some(host) = Host::with_few_descriptors() else { return };
    let limit = host.spawn(&["sh", "-c", "ulimit -Sn"]).output().unwrap();
    assert_eq!(limit.stdout, b"128\n", "a command gets the limit that we began with");
    let mut long = host.spawn(&["sleep", "1000"]).spawn().unwrap();
    assert!(until(|| host.log().iter().any(|entry| {
        matches!(entry.outcome, Outcome::Began(_)) && entry.command[0] == "sleep"
    })));
    let ours = [env!("CARGO_BIN_EXE_unjank"), "host", "--"];
    for client in [&[SPAWN, "--host"][..], &ours] {
        let words = [&["sh", "-c", SCRIPT, "sh", &count], client].concat();
        let mut outside = host.bus.command(words[0]);
        outside.args(&words[1..]);
        let inside = sandbox::proxied(&host.bus, "org.unjank.Many", &words);
        for (mut command, place) in [Some(outside), inside]
            .into_iter()
            .zip(["host", "sandbox"])
            .filter_map(|(it, place)| Some((it?, place)))
        {
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                said.contains(&format!("right: {count}\n")),
                "{client:?} in the {place}: {said}"
            );
        }
    }
    assert!(long.try_wait().unwrap().is_none(), "a command of somebody else was lost");
    long.kill().unwrap();
    long.wait().unwrap();
}
