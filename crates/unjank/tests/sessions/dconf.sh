# What a person does with dconf; each command's output and exit status count.
run() { printf '$ %s\n' "$*"; "$@" 2>&1; printf '= %s\n' "$?"; }
run dconf read /a/b
run dconf write /a/b "'text'"
run dconf write /a/b "'text'"
run dconf read /a/b
run dconf write /a/n "uint32 7"
run dconf write /a/d 0.1
run dconf write /a/list "[1, 2, 3]"
run dconf write /a/empty "@as []"
run dconf write /a/maybe "just 'x'"
run dconf write /a/tuple "(1, 'two', <3.0>, byte 0x04)"
run dconf write /a/dict "{'k': <1>, 'l': <'m'>}"
run dconf write /a/bytes "b'bytes\\n'"
run dconf write /a/path "objectpath '/x/y'"
run dconf write /a/wrong "[1, 'two']"
run dconf write /a/wrong "nonsense"
run dconf write a/b 1
run dconf write /a/ 1
run dconf write /a//b 1
run dconf list /
run dconf list /a/
run dconf list /a
run dconf dump /
run dconf dump /a/
run dconf reset /a/b
run dconf reset /a/b
run dconf reset /a/
run dconf reset -f /a/sub/
run dconf write /a/sub/x/y 1
run dconf write /a/sub/z true
run dconf reset -f /a/sub/
run dconf dump /
printf '[/]\nroot=1\n[p]\none=1\ntwo=2\n[p/q]\nthree=%s\n' "'3'" | run dconf load /loaded/
run dconf dump /loaded/
printf '[p]\none=broken value\n' | run dconf load /loaded/
printf 'no group\n' | run dconf load /loaded/
printf '[p]\ntwo=22\n' | run dconf load /loaded/
run dconf dump /loaded/
run dconf reset -f /
run dconf dump /
i=0; while [ $i -lt 40 ]; do dconf write /many/k$i "$i"; i=$((i + 1)); done
run dconf list /many/
run dconf dump /many/
run dconf reset -f /many/
run dconf list /
run dconf write /many/again "'there'"
run dconf dump /
