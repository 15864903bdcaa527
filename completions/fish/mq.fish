# Completion of mq for fish: `mq __complete` prints the candidates.

function __mq_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l rows (command $words[1] __complete $words[2..-1] "$current" 2>/dev/null)
    set -l kind (string split -m 1 ' ' -- $rows[1])
    set -l prefix "$kind[2]"
    set -l value (string sub -s (math (string length -- "$prefix") + 1) -- "$current")
    switch "$kind[1]"
        case files
            set rows (__fish_complete_path "$value")
        case directories
            set rows (__fish_complete_directories "$value")
        case options
            set rows (string replace -r '=\t' '\t' -- $rows[2..-1])
        case '*'
            set rows $rows[2..-1]
    end
    for row in $rows
        printf '%s%s\n' "$prefix" $row
    end
end

# -k: keep the order; names of the system are last.
complete -c mq -f -k -a '(__mq_complete)'
