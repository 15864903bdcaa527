"""The completion script for fish."""

from mq.cli.manual.specs import (
    Argument,
    Spec,
    first_words,
    global_specs,
    second_words,
    shared_sets,
    specs,
)

_HEAD = """\
# Completion of mq for fish. Written by `mq manual`: make manual.
#
# It contains commands and options; names of topics, groups and so on come from `mq __complete`.
"""

_CODE = """\
function __mq_values -a kind prefix value # prints the candidates for a value
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

function __mq_takes_value -a flag # whether it takes a value, by the options that follow
    for spec in $argv[2..-1]
        set -l parts (string split '|' -m 3 -- $spec)
        if test "$parts[2]" = 1; and contains -- $flag (string split , -- $parts[1])
            return 0
        end
    end
    return 1
end

# Completes the current word: an option, its value, or a word that no option precedes.
# Arguments: the words after the command, then --, then its options and arguments.
function __mq_complete_word
    set -l split (contains -i -- '--mq--' $argv)
    set -l words
    test $split -gt 1; and set words $argv[1..(math $split - 1)]
    set -l specs $argv[(math $split + 1)..-1]
    set -l current (commandline -ct)
    set -l flag ''
    set -l prefix ''
    set -l value $current
    if string match -qr '^--[^=]+=' -- $current
        set flag (string split -m 1 = -- $current)[1]
        set prefix "$flag="
        set value (string split -m 1 = -- $current)[2]
    else if test (count $words) -gt 0
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
    if string match -q -- '-*' $current
        for spec in $specs
            set -l parts (string split '|' -m 3 -- $spec)
            string match -q -- 'argument:*' $parts[1]; and continue
            for name in (string split , -- $parts[1])
                printf '%s\\t%s\\n' $name $parts[4]
            end
        end
        return
    end
    set -l index 0
    set -l given
    set -l is_value 0
    for word in $words
        if test $is_value = 1
            set is_value 0
        else if string match -q -- '-?*' $word
            set -a given (string split -m 1 = -- $word)[1]
            string match -q -- '*=*' $word; or begin
                __mq_takes_value $word $specs; and set is_value 1
            end
        else
            set index (math $index + 1)
        end
    end
    for spec in $specs
        set -l parts (string split '|' -m 3 -- $spec)
        string match -q -- 'argument:*' $parts[1]; or continue
        set -l taken 0
        for name in (string split , -- (string replace 'argument:' '' -- $parts[1]))
            contains -- $name $given; and set taken 1
        end
        test $taken = 1; and continue
        if test $index = 0; or test "$parts[2]" = +
            __mq_values (string replace -a ';' '|' -- $parts[3]) '' "$value"
            return
        end
        set index (math $index - 1)
    end
end

function __mq_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l at 2
    while test (count $words) -ge $at; and string match -q -- '-?*' $words[$at]
        if not string match -q -- '*=*' $words[$at]
            __mq_takes_value $words[$at] (__mq_globals); and set at (math $at + 1)
        end
        set at (math $at + 1)
    end
    set -l many (count $words)
    if test $many -lt $at
        # The value of an option before the command is missing, or an option is incomplete.
        if test (math $many + 1) -lt $at; or string match -q -- '-*' $current
            __mq_complete_word $words[2..-1] '--mq--' (__mq_globals)
        else
            __mq_first
        end
        return
    end
    set -l key (string lower -- $words[$at] | string replace -ra '[-_]' '')
    if test $key = help
        __mq_first
        return
    end
    set at (math $at + 1)
    set -l second $words[$at]
    test $many -lt $at; and set second $current
    if contains -- $key $__mq_halves; and not string match -q -- '-*' "$second"
        if test $many -lt $at
            __mq_second $key
            return
        end
        set key "$key "(string lower -- $second | string replace -ra '[-_]' '')
        set at (math $at + 1)
    end
    set -l rest
    test $many -ge $at; and set rest $words[$at..-1]
    set -l specs
    if test (count $rest) -gt 0
        set specs (__mq_options "$key $rest[1]")
    end
    if test -z "$specs"
        set specs (__mq_options $key)
    end
    __mq_complete_word $rest '--mq--' $specs
end

# -k: keep the order; names of the system are last.
complete -c mq -f -k -a '(__mq_complete)'
"""


def script() -> str:
    """Return completions/fish/mq.fish."""
    halves = second_words()
    lines = [_HEAD, f"set -g __mq_halves {' '.join(halves)}", "", "function __mq_first"]
    lines += [_printed(name, words) for name, words in first_words()]
    lines += ["end", "", "function __mq_second -a word", "    switch $word"]
    for word, others in halves.items():
        lines.append(f"        case {word}")
        lines += [f"        {_printed(name, words)}" for name, words in others]
    lines += ["    end", "end", ""]
    lines.append(
        "# An option is a line: flags|1 if it takes a value|kind|help. A positional argument is "
        "one,"
    )
    lines.append("# too: argument:flags that replace it|+ if it takes all others|kind|.")
    found = specs()
    sets = shared_sets(found)
    lines.append("function __mq_globals")
    lines += [f"    echo {_quoted(_line(option))}" for option in global_specs()]
    lines += ["end", ""]
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
        for argument in command.arguments:
            lines.append(f"            echo {_quoted(_argument(argument))}")
    lines += ["    end", "end", "", _CODE]
    return "\n".join(lines)


def _printed(name: str, words: str) -> str:
    return f"    printf '%s\\t%s\\n' {_quoted(name)} {_quoted(words)}"


def _line(option: Spec) -> str:
    kind = option.kind.replace("|", ";")
    return f"{','.join(option.flags)}|{int(option.takes_value)}|{kind}|{option.help}"


def _argument(word: Argument) -> str:
    """Return a line for an argument: its flags after `argument:`; + if it takes all remaining
    words.
    """
    kind = word.kind.replace("|", ";")
    return f"argument:{','.join(word.flags)}|{'+' if word.repeated else '-'}|{kind}|"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
