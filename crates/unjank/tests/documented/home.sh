# Fills the home in which the lines of the documentation run. $WAITS is tests/peer/bus_waits.c as a program.
set -eu
cd "$HOME"
mkdir -p .config Downloads Taxes Pictures src tests .local/bin .local/share/applications bin .local/share/bash-completion/completions
printf 'all:\n\ttrue\n' >src/Makefile
git init -q .
for name in "Downloads/a b.iso" Downloads/small.txt Taxes/2025.pdf Pictures/dog.png notes.txt report.pdf; do echo text >"$name"; done
printf '[x]\na=1\n' >.config/kdeglobals
tar cf app.tar Taxes Pictures
printf '#!/bin/sh\nexit 0\n' | tee build start-and-quit >/dev/null
printf '#!/bin/sh\nexec ./backup-ui backup\n' >tests/start
printf 'called org.example.Backup.Start within 200ms\nno calls where slower-than:1s\n' >rules.txt
chmod +x build start-and-quit tests/start
cp "$WAITS" backup-ui
cp "$WAITS" app
cp /bin/sleep plasmashell
# What is in the profile's databases: a site and its directory of keyfiles.
mkdir -p site.d
printf '[org/example]\nfont='"'"'Sans 10'"'"'\n' >site.d/00-site
printf "[/]\nfont='Sans 12'\n" >terminal.ini
cat >.local/share/applications/org.kde.kate.desktop <<'D'
[Desktop Entry]
Type=Application
Name=Kate
GenericName=Text Editor
Exec=true %U
MimeType=text/plain;text/html;image/png;inode/directory;
Keywords=editor;
D
update-desktop-database "$XDG_DATA_HOME/applications"
unjank recent add --app org.kde.kate notes.txt Taxes/2025.pdf
unjank recent add --app org.kde.okular report.pdf
unjank recent sync
unjank settings write /org/gnome/desktop/interface/font-name "'Sans 11'"
unjank settings write /org/gnome/terminal/profile "'dark'"
for number in $(seq 20); do unjank settings write "/org/example/$number" "$number"; done
cp .config/dconf/user .config/dconf/user~0
