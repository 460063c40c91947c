
# Values that only the program knows, and the words of a command that another one runs.
function __unjank_runs_a_command
    set -l words (commandline -opc)
    contains -- "$words[2]" run host trace bus recent bench; and contains -- -- $words[3..-1]
end

function __unjank_complete_command
    set -l words (commandline -opc) (commandline -ct)
    set -l at (contains -i -- -- $words)
    complete -C (string join ' ' -- (string escape -- $words[(math $at + 1)..-2]) $words[-1])
end

function __unjank_settings
    set -l words (commandline -opc)
    test (count $words) -ge 3; and test "$words[2]" = settings; and contains -- "$words[3]" $argv
end

function __unjank_path
    set -l beginning (commandline -ct)
    test -n "$beginning"; or set beginning /
    unjank settings complete "$argv[1]" $beginning 2>/dev/null
end

complete -c unjank -f -n __unjank_runs_a_command -a '(__unjank_complete_command)'
complete -c unjank -f -n '__unjank_settings read write reset watch history blame' -a '(__unjank_path "")'
complete -c unjank -f -n '__unjank_settings list list-locks dump load' -a '(__unjank_path /)'
complete -c unjank -f -n '__fish_seen_subcommand_from apps; and __fish_seen_subcommand_from show' -a '(unjank apps list 2>/dev/null | string split -f 1 " ")'
