"""The completion script for zsh."""

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
#compdef mq
# Completion of mq for zsh. Written by `mq manual`: make manual.
#
# It contains commands and options; names of topics, groups and so on come from `mq __complete`.
"""

_CODE = """\
_mq_live() { # options of compadd, kind: offers current names, those of the system last
    local -a names
    names=(${(f)"$(command ${~before[1]} __complete $@[-1] "${(@)before[2,-1]}" "$PREFIX" \\
        2>/dev/null)"})
    compadd "${(@)@[1,-2]}" -V names -a names
}

_mq_before() { # sets at to the index of the command, after the options before it
    local spec
    while ((at < CURRENT)) && [[ $words[at] == -?* ]]; do
        if [[ $words[at] != *=* ]] && (($+_mq_valued[$words[at]])); then
            ((at++))
        fi
        ((at++))
    done
}

_mq_words() { # adds the words that no option precedes, without those that options replace
    local spec name taken
    for spec in $arguments; do
        taken=0
        for name in ${(s:,:)${spec%%=*}}; do
            ((${words[(I)$name]} || ${words[(I)$name=*]})) && taken=1
        done
        ((taken)) || options+=("${spec#*=}")
    done
}

_mq() {
    local key
    local -i at=2
    local -a options arguments before=("${(@)words[1,CURRENT-1]}")
    _mq_before
    if ((CURRENT <= at)); then
        _arguments : $_mq_globals '1:command:_mq_first'
        return
    fi
    words=("${words[1]}" "${(@)words[at,-1]}")
    ((CURRENT -= at - 2))
    key=${${(L)words[2]}//[-_]/}
    if [[ $key == help ]]; then
        _mq_first
        return
    fi
    if (($+_mq_halves[$key])) && [[ $words[3] != -* ]]; then
        if ((CURRENT == 3)); then
            _mq_second $key
            return
        fi
        key+=" ${${(L)words[3]}//[-_]/}"
        _mq_options "$key ${words[4]}" || _mq_options $key || return
        # For _arguments the command is one word.
        words=("${words[1]}" "${(@)words[4,-1]}")
        ((CURRENT -= 2))
    else
        _mq_options "$key" || return
        words=("${words[1]}" "${(@)words[3,-1]}")
        ((CURRENT -= 1))
    fi
    _mq_words
    _arguments : $options
}

_mq "$@"
"""


def script() -> str:
    """Return completions/zsh/_mq."""
    lines = [_HEAD, "typeset -gA _mq_halves=("]
    halves = second_words()
    lines += [f"    {word} 1" for word in halves]
    lines += [")", "", "_mq_first() {", "    local -a names=("]
    lines += [f"        {_described(name, words)}" for name, words in first_words()]
    lines += ["    )", "    _describe -t commands command names -M 'm:{a-zA-Z}={A-Za-z}'", "}", ""]
    lines += ["_mq_second() {", "    local -a names", "    case $1 in"]
    for word, others in halves.items():
        lines += [f"    {word})", "        names=("]
        lines += [f"            {_described(name, words)}" for name, words in others]
        lines += ["        )", "        ;;"]
    lines += ["    esac", "    _describe -t commands command names", "}", ""]
    found = specs()
    sets = shared_sets(found)
    before = global_specs()
    valued = " ".join(
        f"{flag} 1" for option in before if option.takes_value for flag in option.flags
    )
    lines += [f"typeset -gA _mq_valued=({valued})", "_mq_globals=("]
    lines += [f"    {spec}" for option in before for spec in _specs(option)]
    lines += [")", ""]
    for options, name in sets.items():
        lines += [f"{name}=("]
        lines += [f"    {spec}" for option in options for spec in _specs(option)]
        lines += [")", ""]
    lines += ["_mq_options() { # command: sets options and arguments", "    case $1 in"]
    for command in found:
        keys = "|".join(f"'{key}'" for key in (command.key, *command.second_keys))
        lines += [f"    {keys})", "        options=("]
        for option in command.own:
            lines += [f"            {spec}" for spec in _specs(option)]
        lines.append(f"            ${sets[command.shared]}")
        lines.append("        )")
        if command.arguments:
            words = " ".join(map(_argument, command.arguments))
            lines.append(f"        arguments=({words})")
        lines.append("        ;;")
    lines += ["    *) return 1 ;;", "    esac", "}", "", _CODE]
    return "\n".join(lines)


def _described(name: str, words: str) -> str:
    return _quoted(f"{name}:{words}")


def _specs(option: Spec) -> list[str]:
    others = "*" if option.repeated else f"({' '.join(option.flags)})"
    help = option.help.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    found = []
    for flag in option.flags:
        if not option.takes_value:
            found.append(_quoted(f"{others}{flag}[{help}]"))
            continue
        equals = "=" if flag.startswith("--") else "+"
        metavar = option.metavar.replace(":", "\\:")
        found.append(_quoted(f"{others}{flag}{equals}[{help}]:{metavar}:{_action(option.kind)}"))
    return found


def _argument(word: Argument) -> str:
    """Return `-t,--topic=::TOPIC:_mq_live topics`: alternative flags, and a spec for _arguments."""
    metavar = word.metavar.replace(":", "\\:")
    place = f"*:{metavar}" if word.repeated else f"::{metavar}"
    return _quoted(f"{','.join(word.flags)}={place}:{_action(word.kind)}")


def _action(kind: str) -> str:
    if kind.startswith("one:"):
        return f"({kind[4:].replace('|', ' ')})"
    if kind in ("files", "directories"):
        return "_files" if kind == "files" else "_files -/"
    return f"_mq_live {kind}" if kind else " "


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
