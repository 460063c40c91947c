# What a person does with gsettings; each command's output and exit status count.
run() { printf '$ %s\n' "$*"; "$@" 2>&1; printf '= %s\n' "$?"; }
S=org.gnome.desktop.interface
run gsettings get $S clock-format
run gsettings writable $S clock-format
run gsettings range $S clock-format
run gsettings set $S clock-format 12h
run gsettings get $S clock-format
run gsettings set $S clock-format nonsense
run gsettings set $S cursor-size 48
run gsettings set $S cursor-size "'no number'"
run gsettings get $S cursor-size
run gsettings set $S text-scaling-factor 1.25
run gsettings get $S text-scaling-factor
run gsettings set $S font-name "Sans 11 'quoted' \"twice\" ünïcødé"
run gsettings get $S font-name
run gsettings set org.gnome.desktop.input-sources sources "[('xkb', 'us'), ('xkb', 'de+nodeadkeys')]"
run gsettings get org.gnome.desktop.input-sources sources
run gsettings set org.gnome.desktop.input-sources sources "[]"
run gsettings get org.gnome.desktop.input-sources sources
run gsettings set org.gnome.desktop.app-folders folder-children "['one', 'two']"
for folder in one two; do
    P=org.gnome.desktop.app-folders.folder:/org/gnome/desktop/app-folders/folders/$folder/
    run gsettings set $P name "folder $folder"
    run gsettings set $P apps "['a.desktop', 'b.desktop']"
    run gsettings list-recursively $P
done
run dconf dump /
run gsettings reset $S clock-format
run gsettings reset $S clock-format
run gsettings get $S clock-format
run gsettings reset-recursively $S
run gsettings list-recursively $S
run gsettings reset-recursively org.gnome.desktop.app-folders.folder:/org/gnome/desktop/app-folders/folders/one/
run dconf dump /
run gsettings set org.example.Missing key 1
run gsettings get $S missing-key
