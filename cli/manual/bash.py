"""The completion script for bash."""

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
# Completion of mq for bash 4 and later. Written by `mq manual`: make manual.
#
# It contains commands and options; names of topics, groups and so on come from `mq __complete`.
"""

_CODE = """\
_mq_candidates() { # kind: sets _mq_words to the candidates for a value
    local kind=$1
    case $kind in
    '') ;;
    one:*)
        kind=${kind#one:}
        _mq_words+=(${kind//|/ })
        ;;
    files) mapfile -t _mq_words < <(compgen -f -- "$_mq_value") && compopt -o filenames ;;
    directories) mapfile -t _mq_words < <(compgen -d -- "$_mq_value") && compopt -o filenames ;;
    *)
        local -a said=("${words[@]:1:cword-1}")
        live=1 _mq_value=${_mq_value//\\\\/}  # as _mq_offer quotes
        mapfile -t _mq_words < <(
            command "${COMP_WORDS[0]/#\\~/$HOME}" __complete "$kind" "${said[@]//\\\\/}" \\
                "$_mq_value" 2>/dev/null
        )
        ;;
    esac
}

_mq_offer() { # prefix: adds those of _mq_words that start with the current word
    local name
    for name in "${_mq_words[@]}"; do
        [[ $name == "$_mq_value"* ]] || continue
        # Names of others may be ;reboot or $(reboot).
        [[ -n $live ]] && printf -v name %q "$name"
        COMPREPLY+=("$1$name")
    done
}

_mq_command_names() { # words: adds those that match the current word, in any case and kebab-case
    local name
    for name in "$@"; do
        if [[ $_mq_value == *-* ]]; then
            name=$(sed 's/[A-Z]/-&/g; s/^-//' <<<"$name")
            name=${name,,}
        fi
        [[ ${name,,} == "${_mq_value,,}"* ]] && COMPREPLY+=("$name")
    done
}

_mq_takes_value() { # option: whether the next word is its value
    local spec
    for spec in "${_mq_specs[@]}"; do
        [[ $spec == *=* && ,${spec%%=*}, == *,"$1",* ]] && return 0
    done
    return 1
}

_mq_before() { # sets first to the index of the command, after the options before it
    local -a _mq_specs=("${_mq_globals[@]}")
    while ((first < cword)) && [[ ${words[first]} == -?* ]]; do
        [[ ${words[first]} != *=* ]] && _mq_takes_value "${words[first]}" && ((first++))
        ((first++))
    done
}

_mq_argument() { # sets argument: the kind of the current word if no option precedes it
    local -i index=0 at
    local spec name given=,
    for ((at = first; at < cword; at++)); do
        if [[ ${words[at]} == -?* ]]; then
            given+=${words[at]%%=*},
            [[ ${words[at]} != *=* ]] && _mq_takes_value "${words[at]}" && ((at++))
        else
            ((index++))
        fi
    done
    for spec in "${_mq_arguments[@]}"; do
        name=${spec%%=*}
        for name in ${name//,/ }; do
            [[ $given == *,"$name",* ]] && continue 2
        done
        if ((index == 0)) || [[ $spec == *=+* ]]; then
            argument=${spec#*=}
            argument=${argument#+}
            return
        fi
        ((index--))
    done
}

_mq() {
    local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT} key='' argument=''
    local flag='' live='' spec name cut
    local -a words _mq_words=() _mq_specs=() _mq_arguments=()
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=('')
    local -i cword=$((${#words[@]} - 1)) first=1
    local _mq_value=${words[cword]} prefix=''
    COMPREPLY=()
    _mq_before
    if ((cword <= first)); then
        if [[ $_mq_value == -* ]] || ((cword < first)); then
            _mq_specs=("${_mq_globals[@]}")
            first=1
            _mq_complete_word
        else
            _mq_command_names "${_mq_first[@]}"
        fi
        return
    fi
    key=${words[first],,}
    key=${key//[-_]/}
    ((first++))
    if [[ $key == help ]]; then
        _mq_command_names "${_mq_first[@]}"
        return
    fi
    if [[ -n ${_mq_second[$key]} && ${words[first]} != -* ]]; then
        if ((cword == first)); then
            _mq_command_names ${_mq_second[$key]}
            return
        fi
        name=${words[first],,}
        key+=" ${name//[-_]/}"
        ((first++))
    fi
    if ((cword <= first)) || ! _mq_options "$key ${words[first]}"; then
        _mq_options "$key"
    fi
    _mq_complete_word
}

_mq_complete_word() { # completes an option, its value, or a word, from _mq_specs and _mq_arguments
    if [[ $_mq_value == --*=* ]]; then
        flag=${_mq_value%%=*}
        prefix=$flag=
        _mq_value=${_mq_value#*=}
    elif ((cword > first)) && [[ ${words[cword - 1]} == -* ]]; then
        flag=${words[cword - 1]}
    fi
    if [[ -n $flag ]]; then
        for spec in "${_mq_specs[@]}"; do
            if [[ $spec == *=* && ,${spec%%=*}, == *,"$flag",* ]]; then
                _mq_candidates "${spec#*=}"
                _mq_offer "$prefix"
                _mq_trim "$prefix$_mq_value"
                return
            fi
        done
    fi
    if [[ $_mq_value == -* ]]; then
        for spec in "${_mq_specs[@]}"; do
            for name in ${spec%%=*}; do
                for name in ${name//,/ }; do
                    [[ $name == "$_mq_value"* ]] && COMPREPLY+=("$name")
                done
            done
        done
        return
    fi
    _mq_argument
    if [[ -n $argument ]]; then
        _mq_candidates "$argument"
        _mq_offer ''
        _mq_trim "$_mq_value"
    fi
}

_mq_trim() { # word: bash treats the part after : and = as a word
    local cut=${1%"${1##*[:=]}"}
    if [[ -n $cut && $COMP_WORDBREAKS == *[:=]* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"$cut"}")
    fi
}

# Keep the order: names of the system are last. bash 4.4 and later support it.
complete -o nosort -F _mq mq 2>/dev/null || complete -F _mq mq
"""


def script() -> str:
    """Return completions/bash/mq."""
    found = specs()
    sets = shared_sets(found)
    lines = [_HEAD]
    lines.append(f"_mq_first=({' '.join(name for name, _ in first_words())})")
    lines.append("declare -gA _mq_second=(")
    for word, others in second_words().items():
        lines.append(f"    [{word}]='{' '.join(name for name, _ in others)}'")
    lines.append(")")
    lines.append(f"_mq_globals=({' '.join(map(_spec, global_specs()))})")
    for options, name in sets.items():
        lines.append(f"{name}=({' '.join(map(_spec, options))})")
    lines += ["", "_mq_options() { # command: sets _mq_specs and _mq_arguments", "    case $1 in"]
    for command in found:
        shared = f'"${{{sets[command.shared]}[@]}}"'
        keys = "|".join(map(_quoted, (command.key, *command.second_keys)))
        lines.append(f"    {keys})")
        lines.append(f"        _mq_specs=({' '.join([*map(_spec, command.own), shared])})")
        if command.arguments:
            words = " ".join(map(_argument, command.arguments))
            lines.append(f"        _mq_arguments=({words})")
        lines.append("        ;;")
    lines += ["    *) return 1 ;;", "    esac", "}", "", _CODE]
    return "\n".join(lines)


def _spec(option: Spec) -> str:
    """Return `-t,--topic=topics`; = means that it takes a value."""
    return _quoted(",".join(option.flags) + (f"={option.kind}" if option.takes_value else ""))


def _argument(word: Argument) -> str:
    """Return `-t,--topic=topics`; + after = means that it takes all remaining words."""
    return _quoted(f"{','.join(word.flags)}={'+' if word.repeated else ''}{word.kind}")


def _quoted(word: str) -> str:
    safe = word.replace(",", "").replace("=", "").replace("-", "").replace(":", "")
    return word if safe.isascii() and safe.isalnum() else f"'{word}'"
