
# Values that only the program knows, and the words of a command that another one runs.
_unjank_whole() {
    local at choices='' current="${COMP_WORDS[COMP_CWORD]}"
    case "${COMP_WORDS[1]}" in
        run | host | trace | bus | recent | bench)
            for ((at = 2; at < COMP_CWORD; at++)); do
                if [[ ${COMP_WORDS[at]} == -- ]]; then
                    if declare -F _comp_command_offset >/dev/null; then
                        _comp_command_offset $((at + 1))
                    elif declare -F _command_offset >/dev/null; then
                        _command_offset $((at + 1))
                    else
                        mapfile -t COMPREPLY < <(compgen -A command -A file -- "$current")
                    fi
                    return
                fi
            done
            ;;
    esac
    case "${COMP_WORDS[1]} ${COMP_WORDS[2]} $current" in
        settings\ *\ -*) ;;
        settings\ read\ * | settings\ write\ * | settings\ reset\ * | settings\ watch\ * | settings\ history\ * | settings\ blame\ *)
            choices=$(unjank settings complete '' "${current:-/}" 2>/dev/null)
            ;;
        settings\ list\ * | settings\ list-locks\ * | settings\ dump\ * | settings\ load\ *)
            choices=$(unjank settings complete / "${current:-/}" 2>/dev/null)
            ;;
        apps\ show\ [!-]* | apps\ show\ )
            choices=$(unjank apps list 2>/dev/null | while read -r id _; do echo "$id"; done)
            ;;
    esac
    if [[ -n $choices && $COMP_CWORD -gt 2 ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$current")
        compopt -o nospace 2>/dev/null
        return
    fi
    _unjank "$@"
}
complete -F _unjank_whole -o bashdefault -o default unjank
