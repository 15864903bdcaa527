"""The completion for fish."""

from mq.cli.manual.specs import Spec, first_words, second_words, shared_sets, specs

_HEAD = """\
# Completion of mq for fish. Written by `mq manual`: make manual.
#
# Commands and options stand here; names of topics, groups and so on come from `mq __complete`.
"""

_CODE = """\
function __mq_values -a kind prefix value # what can stand for a value
    switch $kind
        case ''
        case 'one:*'
            printf "$prefix%s\\n" (string split '|' -- (string sub -s 5 -- $kind))
        case files
            __fish_complete_path $value
        case directories
            __fish_complete_directories $value
        case '*'
            set -l words (commandline -opc)
            command $words[1] __complete $kind $words[2..-1] "$value" 2>/dev/null \\
                | string replace -r '^' -- "$prefix"
    end
end

function __mq_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l first 2
    if test (count $words) -lt 2
        __mq_first
        return
    end
    set -l key (string lower -- $words[2] | string replace -ra '[-_]' '')
    if test $key = help
        __mq_first
        return
    end
    if contains -- $key $__mq_halves
        if test (count $words) -eq 2
            __mq_second $key
            return
        end
        set key "$key "(string lower -- $words[3])
        set first 3
    end
    set -l specs
    if test (count $words) -gt $first
        set specs (__mq_options "$key $words[4]")
    end
    if test -z "$specs"
        set specs (__mq_options $key)
    end
    set -l flag ''
    set -l prefix ''
    set -l value $current
    if string match -qr '^--[^=]+=' -- $current
        set flag (string split -m 1 = -- $current)[1]
        set prefix "$flag="
        set value (string split -m 1 = -- $current)[2]
    else if test (count $words) -gt $first
        set flag $words[-1]
    end
    if string match -q -- '-*' "$flag"
        for spec in $specs
            set -l parts (string split '|' -m 3 -- $spec)
            if test "$parts[2]" = 1; and contains -- $flag (string split , -- $parts[1])
                __mq_values (string replace -a ';' '|' -- $parts[3]) "$prefix" "$value"
                return
            end
        end
    end
    for spec in $specs
        set -l parts (string split '|' -m 3 -- $spec)
        if test "$parts[1]" = argument
            __mq_values $parts[3] '' "$value"
        else if string match -q -- '-*' $current
            for name in (string split , -- $parts[1])
                printf '%s\\t%s\\n' $name $parts[4]
            end
        end
    end
end

complete -c mq -f -a '(__mq_complete)'
"""


def script() -> str:
    """completions/fish/mq.fish."""
    halves = second_words()
    lines = [_HEAD, f"set -g __mq_halves {' '.join(halves)}", "", "function __mq_first"]
    lines += [_printed(name, words) for name, words in first_words()]
    lines += ["end", "", "function __mq_second -a word", "    switch $word"]
    for word, others in halves.items():
        lines.append(f"        case {word}")
        lines += [f"        {_printed(name, words)}" for name, words in others]
    lines += ["    end", "end", ""]
    lines += ["# An option is a line: flags|1 if it takes a value|kind|help."]
    found = specs()
    sets = shared_sets(found)
    for options, name in sets.items():
        lines.append(f"function _{name}")
        lines += [f"    echo {_quoted(_line(option))}" for option in options]
        lines += ["end", ""]
    lines += ["function __mq_options -a command", "    switch $command"]
    for command in found:
        keys = " ".join(f"'{key}'" for key in (command.key, *command.second_keys))
        lines.append(f"        case {keys}")
        lines += [f"            echo {_quoted(_line(option))}" for option in command.own]
        lines.append(f"            _{sets[command.shared]}")
        if command.argument:
            lines.append(f"            echo 'argument|1|{command.argument}|'")
    lines += ["    end", "end", "", _CODE]
    return "\n".join(lines)


def _printed(name: str, words: str) -> str:
    return f"    printf '%s\\t%s\\n' {_quoted(name)} {_quoted(words)}"


def _line(option: Spec) -> str:
    kind = option.kind.replace("|", ";")
    return f"{','.join(option.flags)}|{int(option.takes_value)}|{kind}|{option.help}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
