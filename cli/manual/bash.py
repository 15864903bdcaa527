"""The completion for bash."""

from mq.cli.manual.specs import Spec, first_words, second_words, shared_sets, specs

_HEAD = """\
# Completion of mq for bash 4 and later. Written by `mq manual`: make manual.
#
# Commands and options stand here; names of topics, groups and so on come from `mq __complete`.
"""

_CODE = """\
_mq_candidates() { # kind: what can stand for a value
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
        mapfile -t _mq_words < <(
            command "${COMP_WORDS[0]/#\\~/$HOME}" __complete "$kind" "${words[@]:1:cword-1}" \\
                "$_mq_value" 2>/dev/null
        )
        ;;
    esac
}

_mq_command_names() { # words: those that begin with the current one, in any case and in kebab-case
    local name
    for name in "$@"; do
        if [[ $_mq_value == *-* ]]; then
            name=$(sed 's/[A-Z]/-&/g; s/^-//' <<<"$name")
            name=${name,,}
        fi
        [[ ${name,,} == "${_mq_value,,}"* ]] && COMPREPLY+=("$name")
    done
}

_mq() {
    local IFS=$' \\t\\n' line=${COMP_LINE:0:COMP_POINT} key='' argument='' flag='' spec name cut
    local -a words _mq_words=() _mq_specs=()
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=('')
    local -i cword=$((${#words[@]} - 1)) first=2
    local _mq_value=${words[cword]} prefix=''
    COMPREPLY=()
    if ((cword < 2)); then
        _mq_command_names "${_mq_first[@]}"
        return
    fi
    key=${words[1],,}
    key=${key//[-_]/}
    if [[ -n ${_mq_second[$key]} ]]; then
        if ((cword == 2)); then
            _mq_command_names ${_mq_second[$key]}
            return
        fi
        key+=" ${words[2],,}"
        first=3
    elif [[ $key == help ]]; then
        _mq_command_names "${_mq_first[@]}"
        return
    fi
    if ((cword <= first)) || ! _mq_options "$key ${words[first]}"; then
        _mq_options "$key"
    fi
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
                for name in "${_mq_words[@]}"; do
                    [[ $name == "$_mq_value"* ]] && COMPREPLY+=("$prefix$name")
                done
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
    elif [[ -n $argument ]]; then
        _mq_candidates "$argument"
        for name in "${_mq_words[@]}"; do
            [[ $name == "$_mq_value"* ]] && COMPREPLY+=("$name")
        done
        _mq_trim "$_mq_value"
    fi
}

_mq_trim() { # word: bash takes what follows : and = for a word of its own
    local cut=${1%"${1##*[:=]}"}
    if [[ -n $cut && $COMP_WORDBREAKS == *[:=]* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"$cut"}")
    fi
}

complete -F _mq mq
"""


def script() -> str:
    """completions/bash/mq."""
    found = specs()
    sets = shared_sets(found)
    lines = [_HEAD]
    lines.append(f"_mq_first=({' '.join(name for name, _ in first_words())})")
    lines.append("declare -gA _mq_second=(")
    for word, others in second_words().items():
        lines.append(f"    [{word}]='{' '.join(name for name, _ in others)}'")
    lines.append(")")
    for options, name in sets.items():
        lines.append(f"{name}=({' '.join(map(_spec, options))})")
    lines += ["", "_mq_options() { # command: sets _mq_specs and argument", "    case $1 in"]
    for command in found:
        shared = f'"${{{sets[command.shared]}[@]}}"'
        keys = "|".join(map(_quoted, (command.key, *command.second_keys)))
        lines.append(f"    {keys})")
        lines.append(f"        _mq_specs=({' '.join([*map(_spec, command.own), shared])})")
        if command.argument:
            lines.append(f"        argument='{command.argument}'")
        lines.append("        ;;")
    lines += ["    *) return 1 ;;", "    esac", "}", "", _CODE]
    return "\n".join(lines)


def _spec(option: Spec) -> str:
    """`-t,--topic=topics`: the = says that it takes a value."""
    return _quoted(",".join(option.flags) + (f"={option.kind}" if option.takes_value else ""))


def _quoted(word: str) -> str:
    safe = word.replace(",", "").replace("=", "").replace("-", "").replace(":", "")
    return word if safe.isascii() and safe.isalnum() else f"'{word}'"
