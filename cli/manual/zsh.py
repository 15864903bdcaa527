"""The completion for zsh."""

from mq.cli.manual.specs import Spec, first_words, second_words, shared_sets, specs

_HEAD = """\
#compdef mq
# Completion of mq for zsh. Written by `mq manual`: make manual.
#
# Commands and options stand here; names of topics, groups and so on come from `mq __complete`.
"""

_CODE = """\
_mq_live() { # options of compadd, kind: the names there are now
    local -a names
    names=(${(f)"$(command ${~words[1]} __complete $@[-1] "${(@)words[2,CURRENT-1]}" "$PREFIX" \\
        2>/dev/null)"})
    compadd "${(@)@[1,-2]}" -a names
}

_mq() {
    local key argument
    local -a options
    if ((CURRENT == 2)); then
        _mq_first
        return
    fi
    key=${${(L)words[2]}//[-_]/}
    if [[ $key == help ]]; then
        _mq_first
        return
    fi
    if (($+_mq_halves[$key])); then
        if ((CURRENT == 3)); then
            _mq_second $key
            return
        fi
        key+=" ${(L)words[3]}"
        _mq_options "$key ${words[4]}" || _mq_options $key || return
        # As _arguments sees it the command is one word.
        words=("${words[1]}" "${(@)words[4,-1]}")
        ((CURRENT -= 2))
    else
        _mq_options $key || return
        words=("${words[1]}" "${(@)words[3,-1]}")
        ((CURRENT -= 1))
    fi
    _arguments : $options
}

_mq "$@"
"""


def script() -> str:
    """completions/zsh/_mq."""
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
    for options, name in sets.items():
        lines += [f"{name}=("]
        lines += [f"    {spec}" for option in options for spec in _specs(option)]
        lines += [")", ""]
    lines += ["_mq_options() { # command: sets options", "    case $1 in"]
    for command in found:
        keys = "|".join(f"'{key}'" for key in (command.key, *command.second_keys))
        lines += [f"    {keys})", "        options=("]
        for option in command.own:
            lines += [f"            {spec}" for spec in _specs(option)]
        lines.append(f"            ${sets[command.shared]}")
        if command.argument:
            lines.append(f"            '::argument:{_action(command.argument)}'")
        lines += ["        )", "        ;;"]
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


def _action(kind: str) -> str:
    if kind.startswith("one:"):
        return f"({kind[4:].replace('|', ' ')})"
    if kind in ("files", "directories"):
        return "_files" if kind == "files" else "_files -/"
    return f"_mq_live {kind}" if kind else " "


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
