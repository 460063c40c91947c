//! polkit decides, where it is there.
#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]
#![allow(clippy::disallowed_methods, reason = "a test stands for programs")]

use std::path::Path;
use std::process::{Command, Stdio};

use crate::stage::{ANN, BOB, Daemon, Stage, skip, wait_until};

/// The daemon of polkit, where distributions have it.
const DAEMONS: [&str; 3] =
    ["/usr/lib/polkit-1/polkitd", "/usr/libexec/polkitd", "/usr/lib/policykit-1/polkitd"];

const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=@dir@/bus</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_destination="*" eavesdrop="false"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
"#;

/// Ann may; who is not named may after a password.
const RULES: &str = r#"polkit.addRule(function(action, subject) {
    if (action.id == "org.unjank.recorder.trace" && subject.user == "@ann@") return polkit.Result.YES;
});
"#;

/// A system bus with the real polkit, which reads our action from the sources. Who runs nowhere else is its user.
fn people(dir: &Path) -> Option<(Daemon, Daemon)> {
    let daemon = DAEMONS.into_iter().find(|daemon| Path::new(daemon).exists());
    let has = |program: &str| Path::new(program).exists();
    let (Some(daemon), true, true) = (daemon, has("/usr/bin/dbus-daemon"), has("/usr/bin/unshare"))
    else {
        skip("no polkitd, dbus-daemon or unshare");
        return None;
    };
    let write = |name: &str, text: String| std::fs::write(dir.join(name), text).unwrap();
    write("bus.conf", BUS.replace("@dir@", &dir.display().to_string()));
    for folder in ["actions", "rules"] {
        std::fs::create_dir(dir.join(folder)).unwrap();
    }
    let action = include_str!("../../setup/templates/polkit/org.unjank.recorder.policy");
    write("actions/org.unjank.recorder.policy", action.to_owned());
    // Nobody here is known by a name: polkit takes users by their numbers.
    write("rules/10-test.rules", RULES.replace("@ann@", "unjank-test-ann"));
    let names = std::fs::read_to_string("/etc/passwd").unwrap();
    write(
        "passwd",
        format!(
            "{names}unjank-test-ann:x:{ANN}:{ANN}::/:/bin/sh\nunjank-test-bob:x:{BOB}:{BOB}::/:/bin/sh\n"
        ),
    );
    let bus = Command::new("dbus-daemon")
        .arg(format!("--config-file={}/bus.conf", dir.display()))
        .arg("--nofork")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let bus = Daemon(bus);
    wait_until("there is a bus", || dir.join("bus").exists());
    // The directories are where polkit looks for them in a mount namespace of its own alone.
    let script = r#"set -e
mount --bind "$1/actions" /usr/share/polkit-1/actions
mount --bind "$1/rules" /etc/polkit-1/rules.d
mount --bind "$1/passwd" /etc/passwd
exec "$2" --no-debug"#;
    let polkit = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(dir)
        .arg(daemon)
        .env("DBUS_SYSTEM_BUS_ADDRESS", format!("unix:path={}/bus", dir.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Some((bus, Daemon(polkit)))
}

#[test]
fn polkit_decides_who_is_served() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let address = format!("unix:path={}/bus", dir.path().display());
    // polkit answers root about others; by its name only where the service is a user of systemd's.
    let Some(stage) = Stage::set_as(0, &["--bus", &address]) else { return };
    let Some((bus, polkit)) = people(dir.path()) else { return };
    // The service asks when somebody comes; until polkit has its name nobody is let in but by the group.
    wait_until("polkit answers", || {
        stage.play(BOB, "denied", "")[0].contains("polkit wants a password")
    });
    assert_eq!(stage.play(ANN, "denied", ""), ["let in"]);
    let said = stage.play(BOB, "denied", "");
    assert!(
        said[0].contains("org.unjank.recorder.trace; unjank trace --backend bpf asks for it"),
        "{said:?}"
    );
    assert_eq!(stage.play(0, "denied", ""), ["let in"]);
    // Without polkit the group counts again.
    drop(polkit);
    wait_until("the bus knows that it is gone", || stage.play(BOB, "denied", "") == ["let in"]);
    drop(bus);
    assert_eq!(stage.play(BOB, "denied", ""), ["let in"]);
}
