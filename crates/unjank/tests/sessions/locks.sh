# A profile with a locked system database: writes to locked keys are refused, resets are not.
run() { printf '$ %s\n' "$*"; "$@" 2>&1; printf '= %s\n' "$?"; }
mkdir -p "$HOME/keys/locks"
printf '[l]\nlocked=1\nfree=2\n' >"$HOME/keys/00-base"
printf '/l/locked\n' >"$HOME/keys/locks/00-base"
run dconf compile "$HOME/system" "$HOME/keys" | sed "s|$HOME|HOME|g"
printf 'user-db:user\nfile-db:%s/system\n' "$HOME" >"$HOME/profile"
DCONF_PROFILE=$HOME/profile; export DCONF_PROFILE
run dconf read /l/locked
run dconf read /l/free
run dconf write /l/free 20
run dconf write /l/locked 10
run dconf read /l/free
run dconf read -d /l/free
run dconf read /l/locked
run dconf list-locks /l/
run dconf reset /l/locked
run dconf reset -f /l/
run dconf read /l/free
printf '[/]\nlocked=5\nfree=6\n' | run dconf load /l/
printf '[/]\nlocked=5\nfree=6\n' | run dconf load -f /l/
run dconf dump /l/
printf 'service-db:keyfile/kf\nfile-db:%s/system\n' "$HOME" >"$HOME/profile"
run dconf write /k/one 1
run dconf write /k/sub/two "'zwei'"
run dconf read /k/one
run dconf dump /
sed 's/^/text: /' "$XDG_CONFIG_HOME/dconf/kf.txt"
run dconf reset -f /k/sub/
sed 's/^/text: /' "$XDG_CONFIG_HOME/dconf/kf.txt"
printf 'service-db:shm/volatile\n' >"$HOME/profile"
run dconf write /v/one 1
run dconf read /v/one
run dconf dump /
run dconf reset /v/one
run dconf dump /
