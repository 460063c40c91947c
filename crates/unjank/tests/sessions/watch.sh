# Watchers see each change once and in order, also the writer's own.
run() { printf '$ %s\n' "$*"; "$@" 2>&1; printf '= %s\n' "$?"; }
# A watcher is ready when it has reported a change of a key that is written until it has.
ready() { n=0; while ! grep -q "$2" "$1" && [ $n -lt 200 ]; do dconf write /ready "$n"; n=$((n + 1)); done; }
dconf watch / >"$HOME/watch.out" 2>&1 & WATCH=$!
ready "$HOME/watch.out" /ready
gsettings monitor org.gnome.desktop.interface >"$HOME/monitor.out" 2>&1 & MONITOR=$!
n=0; while [ ! -s "$HOME/monitor.out" ] && [ $n -lt 200 ]; do
    gsettings set org.gnome.desktop.interface cursor-size $((24 + n)); n=$((n + 1)); done
# What it says up to here may be all keys: libdconf does that if something changed before its watch was set up.
gsettings set org.gnome.desktop.interface cursor-size 777
ready "$HOME/monitor.out" 'cursor-size: 777'
dconf write /mark/begin true
run dconf write /w/a 1
run dconf write /w/a 1
run dconf write /w/b "'two'"
# A watcher reads the value when it is told, so it must have read this one before the next is written.
ready "$HOME/watch.out" /w/b
run dconf reset /w/a
run dconf reset /w/a
printf '[x]\na=1\nb=2\n[y]\nc=3\n' | run dconf load /w/
ready "$HOME/watch.out" /w/y/c
run dconf reset -f /w/x/
run dconf reset -f /w/x/
run gsettings set org.gnome.desktop.interface clock-format 12h
# The monitor reads the value when it is told, so it must have read this one before the next is written.
ready "$HOME/monitor.out" "clock-format: '12h'"
run gsettings set org.gnome.desktop.interface clock-format 12h
run gsettings reset org.gnome.desktop.interface clock-format
ready "$HOME/monitor.out" "clock-format: '24h'"
run dconf reset -f /w/
dconf write /mark/end true
ready "$HOME/watch.out" /mark/end
kill $WATCH $MONITOR
sed -n '/^\/mark\/begin/,/^\/mark\/end/p' "$HOME/watch.out" | awk '/^\/ready/ { skip = 1 } !skip { print } /^$/ { skip = 0 }'
sed '1,/cursor-size: 777/d' "$HOME/monitor.out" | grep clock-format
