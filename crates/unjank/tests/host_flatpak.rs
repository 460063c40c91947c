//! Host commands from a real `flatpak run` beside a real systemd: a runtime and an application are built and installed by
//! flatpak, whose sandbox reaches the bus through its own proxy, from a scope that the manager made for it.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use crate::fixture;

use fixture::{has, in_time};

/// Builds a runtime of this machine's programs, and an application that may call the service, and installs both.
const INSTALL: &str = r#"
# Who may install what, flatpak asks on the bus of the system.
export DBUS_SYSTEM_BUS_ADDRESS=$DBUS_SESSION_BUS_ADDRESS XDG_DATA_DIRS=/usr/share:/var/lib/flatpak/exports/share:$XDG_DATA_HOME/flatpak/exports/share
mkdir -p built/runtime/usr/bin built/runtime/files built/runtime/var built/app/files built/app/export built/app/var/tmp
spawn=$(command -v flatpak-spawn || echo /usr/libexec/flatpak-xdg-utils/flatpak-spawn)
for program in /bin/sh /bin/cat /bin/sleep "$spawn"; do
    cp -L "$program" built/runtime/usr/bin
    for library in $(ldd "$program" | grep -oE '/[^ ]+'); do
        to=built/runtime/usr${library#/usr}
        mkdir -p "${to%/*}"
        cp -L "$library" "$to"
    done
done
platform="org.test.Platform/$(flatpak --default-arch)/1"
printf '[Runtime]\nname=org.test.Platform\nruntime=%s\nsdk=%s\n' $platform $platform > built/runtime/metadata
printf '[Application]\nname=org.test.App\nruntime=%s\nsdk=%s\ncommand=sh\n' $platform $platform > built/app/metadata
printf '[Session Bus Policy]\norg.freedesktop.Flatpak=talk\n' >> built/app/metadata
{
    flatpak build-export --runtime built/repository built/runtime 1
    flatpak build-export built/repository built/app 1
    flatpak --user remote-add --no-gpg-verify local file://$PWD/built/repository
    flatpak --user install -y --noninteractive local org.test.App//1
} >&2
unjankd --names flatpak --replace >&2 &
has='--session --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.NameHasOwner string:org.freedesktop.Flatpak'
until dbus-send $has | grep -q true; do :; done
in_sandbox() { flatpak run org.test.App -c "$1"; }
"#;

const COMMANDS: &str = r#"
group() { sed -n 's/^0:://p' | sed 's/-[0-9]*[.]scope/-N.scope/'; }
in_sandbox 'cat /proc/self/cgroup' | group
in_sandbox 'flatpak-spawn --host cat /proc/self/cgroup' | group
in_sandbox 'flatpak-spawn --host sh -c "exit 7"' || echo "ended with $?"
in_sandbox 'cat /etc/hosts' | cmp - /etc/hosts && echo "the hosts of this machine"

unjank host policy deny org.test.App id >&2
in_sandbox 'flatpak-spawn --host id' || echo "refused with $?"
in_sandbox 'flatpak-spawn --host echo allowed'
unjank host policy allow org.test.App echo >&2
in_sandbox 'flatpak-spawn --host ls' || echo "refused with $?"
in_sandbox 'flatpak-spawn --host echo allowed again'
rm .config/unjank/host-policy
# What happened is in the log a moment later.
until [ "$(unjank host log | grep -c echo)" = 2 ]; do :; done
unjank host log | awk '$2 == "org.test.App" { print $2, $3, $4 }'

# It ends with its client, however that ends.
in_sandbox 'flatpak-spawn --watch-bus --host sleep 987654 & until flatpak-spawn --host pgrep -fx "sleep 987654" >/dev/null; do :; done; kill -9 $!'
while pgrep -fx 'sleep 987654' >/dev/null; do :; done
echo "ended with its client"

printf 'tty >/dev/null && ps -o stat= -p $$ | grep -c +\n' > on-terminal
script -qec 'flatpak run org.test.App -c "flatpak-spawn --host sh /run/home/on-terminal"' /dev/null </dev/null | tr -d '\r'
"#;

#[test]
fn a_command_of_a_real_application_runs_on_the_host_as_the_policy_of_that_application_says() {
    if !has(&["flatpak", "dbus-send", "script", "ps"]) {
        return;
    }
    in_time(|| {
        let script = format!("{INSTALL}{COMMANDS}");
        let Some(output) = fixture::systemd::beside_systemd_of_a_person(&script) else { return };
        let text = String::from_utf8_lossy(&output.stdout);
        let said: Vec<&str> = text.lines().collect();
        let wanted = [
            "/manager/app.slice/app-flatpak-org.test.App-N.scope",
            "/session",
            "ended with 7",
            "the hosts of this machine",
            "refused with 1",
            "allowed",
            "refused with 1",
            "allowed again",
            "org.test.App 0 cat",
            "org.test.App 7 sh",
            "org.test.App refused id",
            "org.test.App 0 echo",
            "org.test.App refused ls",
            "org.test.App 0 echo",
            "ended with its client",
            "1",
        ];
        assert_eq!(said, wanted, "{}", String::from_utf8_lossy(&output.stderr));
    });
}
