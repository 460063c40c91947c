# Values that only the program knows.
_unjank_keys() {
    local -a found
    found=(${(f)"$(_call_program keys unjank settings complete "''" ${(q)PREFIX:-/} 2>/dev/null)"})
    compadd -S '' -- $found
}

_unjank_directories() {
    local -a found
    found=(${(f)"$(_call_program directories unjank settings complete / ${(q)PREFIX:-/} 2>/dev/null)"})
    compadd -S '' -- $found
}

_unjank_apps() {
    local -a found
    found=(${${(f)"$(_call_program apps unjank apps list 2>/dev/null)"}%% *})
    compadd -- $found
}

