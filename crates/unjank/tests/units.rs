//! The units of systemd under the real manager of an ordinary user: they start, are confined as their files say, and do all
//! of their work there.
#![expect(clippy::disallowed_methods, reason = "fixtures need not be durable")]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::systemd::beside_systemd_of_a_person;
use crate::fixture::{has, in_time, setting};

/// How exposed each unit may be, as `systemd-analyze security` counts; `docs/packages.md` has the reasons.
const EXPOSURES: [(&str, f64); 9] = [
    ("unjank-index", 2.5),
    ("unjank-export@", 0.9),
    ("unjank-export-openmetrics", 0.8),
    // It connects to a Collector by the network.
    ("unjank-export-otlp", 1.5),
    ("unjank-dconf", 6.0),
    ("unjank-session", 6.1),
    // It looks at the user's programs, which a namespace of users would not let it do.
    ("unjank-hangs", 6.2),
    ("unjank-hang-notifications", 5.9),
    // Commands of the user run in it.
    ("unjank-host", 9.8),
];

fn template(unit: &str) -> PathBuf {
    let name = format!("../setup/templates/systemd/{unit}.service.in");
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The same of units of the system's manager. The recorder service opens events of its callers' threads, which counts as debugging.
const EXPOSURES_OF_SYSTEM: [(&str, f64); 1] = [("unjank-recorder", 0.9)];

#[test]
fn no_unit_is_more_exposed_than_is_written() {
    if !has(&["systemd-analyze"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let of_user = EXPOSURES.map(|(unit, most)| (unit, most, Some("--user")));
    let of_system = EXPOSURES_OF_SYSTEM.map(|(unit, most)| (unit, most, None));
    for (unit, most, manager) in of_user.into_iter().chain(of_system) {
        let file = dir.path().join(format!("{unit}.service"));
        let text = std::fs::read_to_string(template(unit)).unwrap();
        let text = text.replace("@bindir@", "/usr/bin").replace("@libdir@", "/usr/lib/unjank");
        std::fs::write(&file, text).unwrap();
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=true", "--no-pager"]).args(manager).arg(&file);
        let output = analyze.env("XDG_RUNTIME_DIR", dir.path()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let last = said.lines().last().unwrap_or_default();
        let figure = last.split(": ").nth(1).and_then(|rest| rest.split(' ').next());
        let exposure: f64 = figure.unwrap_or_default().parse().unwrap_or_else(|_| panic!("{said}"));
        assert!(exposure <= most, "{said}");
    }
}

#[test]
fn under_the_manager_of_a_user_confined_services_do_all_of_their_work() {
    // It takes half a minute (`ci/slow`).
    if setting("UNITS").is_none() {
        return;
    }
    in_time(|| {
        if !has(&["setpriv", "dconf", "gdbus"]) {
            return;
        }
        let script = r#"
unjank setup settings listing index >said 2>&1 || { cat said >&2; exit 1; }
# The bus starts the service for the client that comes with dconf, and records which program it was.
dconf write /t/key "'stored'"
dconf read /t/key
until unjank settings history 2>/dev/null | grep -o '  dconf, process'; do :; done
# Recent documents.
touch document.txt
unjank recent add document.txt
unjank recent list --json | grep -o 'document.txt' | head -n 1
gdbus call --session -d org.unjank.Session1 -o /org/unjank/Session1 -m org.freedesktop.DBus.Peer.Ping
for unit in unjank-dconf unjank-session; do
    process=$(systemctl --user show --value -p MainPID $unit.service)
    grep -E '^(NoNewPrivs|Seccomp):' /proc/$process/status | tr -d '\n\t'
    echo " $unit"
done
# The index is made in namespaces of its own, and holds for who is outside of them.
mkdir -p .local/share/applications
printf '[Desktop Entry]\nType=Application\nName=New\nExec=true\n' >.local/share/applications/new.desktop
systemctl --user start unjank-index.service
systemd-run --user --quiet --wait --pipe sh -c '
    before=$(stat -c %i,%Y .cache/unjank/index-*.gvdb)
    ~/.local/bin/unjank-index
    test "$before" = "$(stat -c %i,%Y .cache/unjank/index-*.gvdb)" && echo current'
systemctl --user show --value -p Result unjank-index.service
# The recorder follows programs, and is taken back.
unjank setup hangs >/dev/null
until systemctl --user -q is-active unjank-hangs.service; do :; done
until ls .local/state/unjank/hangs/00000001.hangs 2>/dev/null; do :; done
unjank hangs record 2>&1 | grep -o 'another recorder runs'
unjank undo hangs >/dev/null
systemctl --user -q is-active unjank-hangs.service || echo stopped
unjank hangs | tr '\n' ' ' | grep -o 'no interactive program did'
systemctl --user --failed --plain --no-legend
"#;
        let Some(output) = beside_systemd_of_a_person(script) else { return };
        let said = String::from_utf8_lossy(&output.stdout);
        let wanted = [
            "'stored'",
            "  dconf, process",
            "document.txt",
            "()",
            "NoNewPrivs:1Seccomp:2 unjank-dconf",
            "NoNewPrivs:1Seccomp:2 unjank-session",
            "current",
            "success",
            ".local/state/unjank/hangs/00000001.hangs",
            "another recorder runs",
            "stopped",
            "no interactive program did",
        ];
        assert_eq!(said.lines().collect::<Vec<_>>(), wanted, "{output:?}");
    });
}
