# Completion of rullama for fish. The program itself lists what fits, from its options.
function __rullama_complete
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    set -l current (commandline -ct)
    set -l answer ($program __complete $words "$current" 2>/dev/null)
    if test "$answer[1]" = files
        __fish_complete_path "$current"
    end
    set -e answer[1]
    for line in $answer
        echo $line
    end
end
complete -c rullama -f -a '(__rullama_complete)'
