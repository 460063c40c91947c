# The units of the exports under the real systemd of an ordinary user: what they write, send and serve, and what they cannot.
# Runs as root in a mount, process and cgroup namespace of its own; $1 is the program, $2 a store, $3 the directory of the units, $4 a
# drop-in, $5 the address of a receiver.
set -eu
program=$1 store=$2 units=$3
umount -lR /sys/fs/cgroup 2>/dev/null || umount -l /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /home
# What the manager of the system makes for those of users.
mkdir -p /run/systemd/system /run/systemd/unit-root /run/systemd/mount-rootfs /run/systemd/inaccessible
mkdir -p /sys/fs/cgroup/session /sys/fs/cgroup/manager /run/user/1000 /run/programs /home/ann/.config/systemd/user /home/ann/.local/state/unjank
echo $$ >/sys/fs/cgroup/session/cgroup.procs
cp "$program" /run/programs/unjank-export
cp -R "$store" /home/ann/.local/state/unjank/hangs
for kind in service timer; do
    sed 's|@bindir@|/run/programs|' "$units/unjank-export@.$kind.in" >"/home/ann/.config/systemd/user/unjank-export@.$kind"
done
for name in otlp openmetrics; do
    sed 's|@bindir@|/run/programs|' "$units/unjank-export-$name.service.in" >"/home/ann/.config/systemd/user/unjank-export-$name.service"
done
mkdir "/home/ann/a lake"
chmod 700 /run/user/1000 /home/ann
chown -R 1000:1000 /run/user/1000 /home/ann /sys/fs/cgroup/session /sys/fs/cgroup/manager
chown 1000 /sys/fs/cgroup /sys/fs/cgroup/cgroup.procs
export XDG_RUNTIME_DIR=/run/user/1000 HOME=/home/ann LC_ALL=C.UTF-8 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus
unset XDG_STATE_HOME XDG_CONFIG_HOME XDG_DATA_HOME
person="setpriv --reuid=1000 --regid=1000 --clear-groups --inh-caps=-all"
$person dbus-daemon --session --systemd-activation --address=$DBUS_SESSION_BUS_ADDRESS --nofork --nopidfile >/dev/null 2>&1 &
until [ -S /run/user/1000/bus ]; do :; done
sh -c 'echo $$ >/sys/fs/cgroup/manager/cgroup.procs; exec "$@"' manager $person /lib/systemd/systemd --user >/run/log 2>&1 &
until $person systemctl --user is-system-running 2>/dev/null | grep -qE 'running|degraded'; do :; done
cd /home/ann
exec $person sh -eu -c '
service=$(systemd-escape --path --template=unjank-export@.service "$HOME/a lake")
timer=$(systemd-escape --path --template=unjank-export@.timer "$HOME/a lake")
# Where users may not make a namespace, the drop-in that docs/fleet.md has is needed, which is tried below.
unshare --user --mount true 2>/dev/null || echo "no user namespaces"
systemctl --user start "$service" || cat /run/log
systemctl --user show --value -p Result "$service"
find "a lake" -type f ! -name ".*" | sed "s|-[0-9a-f]*\.parquet|-U.parquet|; s|/[0-9a-f]\{16\}|/M|" | LC_ALL=C sort
# It runs again, with another option, and can write nowhere else.
mkdir -p ".config/systemd/user/$service.d"
printf "[Service]\nEnvironment=\"OPTIONS=--facts --machine desk-1\"\nExecStartPost=sh -c \"touch \\\\\"%%f/within\\\\\"; touch %%h/outside; true\"\n" >".config/systemd/user/$service.d/more.conf"
systemctl --user daemon-reload
systemctl --user start "$service" || cat /run/log
find . -name within -o -name outside
ls "a lake/facts"/*/ | sed "s|-[0-9a-f]*\.parquet|-U.parquet|" | grep desk
rm -r ".config/systemd/user/$service.d"
# The timer is switched on, knows its next day, and is taken back.
systemctl --user enable --now "$timer" 2>/dev/null
systemctl --user is-active "$timer"
systemctl --user show --value -p NextElapseUSecRealtime "$timer" | grep -c "[0-9]:[0-9]"
systemctl --user disable --now "$timer" 2>/dev/null
systemctl --user is-active "$timer" || true
# A directory that is missing is not made.
missing=$(systemd-escape --path --template=unjank-export@.service "$HOME/missing")
systemctl --user start "$missing" 2>/dev/null || test -e missing || echo "missing is not made"
# What docs/fleet.md has for systems whose users may not make a namespace.
mkdir -p ".config/systemd/user/unjank-export@.service.d"
printf "%s" "$0" >".config/systemd/user/unjank-export@.service.d/no-namespace.conf"
systemctl --user daemon-reload
systemctl --user start "$service" || cat /run/log
systemctl --user show --value -p Result "$service"
# Hangs are sent, and their counts served, in namespaces, then without them.
for round in confined free; do
    for name in otlp openmetrics; do
        unit=unjank-export-$name.service
        mkdir -p ".config/systemd/user/$unit.d"
        # A command of the unit sees what the unit itself does.
        printf "[Service]\nEnvironment=TO=$1 OPTIONS=--metrics\nStandardOutput=append:%%h/said-$name\nExecStartPost=sh -c \"touch %%h/outside-$name %%h/.local/state/unjank/hangs/outside-$name; true\"\n" >".config/systemd/user/$unit.d/test.conf"
        [ $round = confined ] || printf "%s" "$0" >".config/systemd/user/$unit.d/no-namespace.conf"
    done
    systemctl --user daemon-reload
    # With a record of what was sent the next round would send nothing.
    rm -rf .local/state/unjank/hangs-export said-otlp
    systemctl --user enable --now unjank-export-otlp.service unjank-export-openmetrics.service 2>/dev/null || cat /run/log
    until grep -q " metrics\.$" said-otlp; do :; done
    until [ -S "$XDG_RUNTIME_DIR/unjank-export/metrics.sock" ]; do :; done
    curl -s --unix-socket "$XDG_RUNTIME_DIR/unjank-export/metrics.sock" http://localhost/metrics | grep "^unjank_hangs_total"
    grep -o " 7 hangs" said-otlp
    systemctl --user is-active unjank-export-otlp.service unjank-export-openmetrics.service
    find . -name "outside*" | LC_ALL=C sort
    systemctl --user disable --now unjank-export-otlp.service unjank-export-openmetrics.service 2>/dev/null
    test -e "$XDG_RUNTIME_DIR/unjank-export" || echo "the socket is gone"
done
' "$4" "$5"
