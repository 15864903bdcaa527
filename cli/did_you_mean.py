"""Suggestions for unknown commands and options.

Users know the words of other tools: kubectl puts the verb first, nats has `ls` and `rm`, rpk
`consume`, kcat letters for modes, kafka-topics.sh flags. The suggestions show mq's words; the
foreign ones are not accepted, because an accepted form must be kept forever.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from mq.cli import catalog, command_table

_NOUNS = {
    "consumer": "group",
    "consumergroup": "group",
    "subscription": "group",
    "stream": "topic",
    "node": "broker",
    "server": "broker",
    "nameserver": "namesrv",
    "ns": "namesrv",
    "messages": "message",
    "msg": "message",
    "profile": "context",
    "deadletter": "dlq",
    "policy": "acl",
    "policies": "acl",
    "lag": "group",
    "configuration": "config",
}

# The verbs of mq for those of other tools, the best first.
_VERBS = {
    "ls": ("list", "print"),
    "status": ("status", "describe", "list"),
    "metadata": ("describe", "list"),
    "offsets": ("lag",),
    "resetoffsets": ("seek",),
    "alterconfig": ("update",),
    "addpartitions": ("update",),
    "show": ("describe", "status", "show", "get", "list"),
    "info": ("describe", "status", "show", "get", "list"),
    "view": ("describe", "status", "show", "get", "list"),
    "get": ("list", "get", "show"),
    "describe": ("describe", "status", "show"),
    "report": ("lag", "stats", "list"),
    "rm": ("delete", "remove"),
    "remove": ("delete", "remove"),
    "del": ("delete", "remove"),
    "drop": ("delete", "remove"),
    "delete": ("delete", "remove"),
    "add": ("create", "add", "set"),
    "new": ("create", "add"),
    "make": ("create", "add"),
    "put": ("set", "send"),
    "alter": ("update", "set"),
    "edit": ("update", "set"),
    "change": ("update", "set"),
    "modify": ("update", "set"),
    "config": ("config", "set"),
    "reset": ("seek", "reset"),
    "rewind": ("seek",),
    "select": ("use",),
    "switch": ("use",),
    "consume": ("tail",),
    "read": ("tail", "print"),
    "sub": ("tail",),
    "subscribe": ("tail",),
    "watch": ("tail", "top"),
    "follow": ("tail",),
    "logs": ("tail",),
    "produce": ("send",),
    "publish": ("send",),
    "pub": ("send",),
    "write": ("send",),
    "check": ("health",),
    "members": ("members",),
    "clients": ("members", "connections"),
    "connections": ("members", "connections"),
    "peek": ("print",),
    "search": ("find",),
    "query": ("find",),
    "resend": ("resend",),
    "retry": ("resend",),
}

# The meaning of a single word; the first existing command is used.
_ALONE = {
    "pub": ("produce", "message send"),
    "publish": ("produce", "message send"),
    "produce": ("produce", "message send"),
    "send": ("produce", "message send"),
    "sub": ("tail",),
    "subscribe": ("tail",),
    "consume": ("tail",),
    "cat": ("tail",),
    "logs": ("tail",),
    "follow": ("tail",),
    "ls": ("topic list",),
    "lag": ("group list",),
    "health": ("cluster health",),
    "status": ("cluster list",),
    "info": ("cluster describe", "cluster list"),
    "reset": ("group seek",),
    "seek": ("group seek",),
    "export": ("message export",),
    "import": ("message import",),
    "copy": ("message copy",),
    "find": ("message find",),
    "plan": ("topic plan",),
    "contexts": ("context list",),
}

# Pairs of words that are not a noun and a verb in either order.
_PAIRS = {
    ("config", "usecontext"): "context use",
    ("config", "getcontexts"): "context list",
    ("config", "currentcontext"): "context show",
    ("security", "user"): "user list",
    ("security", "acl"): "acl list",
}

_SERVERS = frozenset(
    f"--{name}"
    for name in "bootstrap-server bootstrap-servers brokers server servers namesrv host".split()
) | {"-b", "-s"}
_WITH_SECRETS = ("user ", "account ", "console ")
_FEW = 6  # the largest number of options in a hint
# Options that only some kinds of commands have.
_KINDS = {
    "--watch": "only for commands that change nothing and end by themselves",
    "--dry-run": "this command changes nothing",
    "--yes": "this command asks nothing",
    "--format": "only for commands that show messages; for rows use -o or --columns",
}

# Options of other tools in the place of a command.
_OPTIONS = {
    "-L": ("cluster describe", "cluster list"),
    "-C": ("tail",),
    "-P": ("produce", "message send"),
    "-G": ("group members",),
    "-Q": ("topic status",),
    "--list": ("topic list",),
    "--create": ("topic create",),
    "--delete": ("topic delete",),
    "--alter": ("topic update",),
    "--describe": ("topic describe", "topic status"),
    "--reset-offsets": ("group seek",),
}


def commands(words: Sequence[str]) -> list[str]:
    """Return commands that the words may mean, the nearest first, with the rest of the words."""
    first = catalog.fold(words[0])
    if len(words) > 1 and not words[1].startswith("-"):
        if by_words := _two_words(words):
            return by_words
        second = catalog.fold(words[1])
        found: list[str] = []
        # `mq list topics` for topicList, `mq ofset export` for offset export.
        for joined in (f"{first} {second}", first + second, second.removesuffix("s") + first):
            found += get_close_matches(joined, catalog.WRITTEN, 2, 0.8)
        if found:
            return _different(found)
    if alone := _ALONE.get(first):
        return _written(alone, words[1:])[:1]
    if catalog.subcommands(_noun(first)) and _noun(first) != first:
        return _written([f"{_noun(first)} list"], ())
    return _different(get_close_matches(first, catalog.WRITTEN, 6, 0.7))


def _different(keys: Iterable[str]) -> list[str]:
    """Return up to three names of different commands."""
    by_command: dict[str, str] = {}
    for key in keys:
        by_command.setdefault(catalog.BY_NAME[key][1], catalog.WRITTEN[key])
    return list(by_command.values())[:3]


def option(words: Sequence[str]) -> list[str]:
    """Return the command that an option in the place of a command may mean.

    It may be an option of another tool (`-L` of kcat), or of a later command (`-t Orders tail`).
    """
    flag, equals, value = words[0].partition("=")
    if flag in _SERVERS:
        after = list(words[1:] if equals else words[2:]) or ["COMMAND"]
        address = value or (words[1] if len(words) > 1 else "HOST:9876")
        if after[0].startswith("-") and (inner := option(after)):
            after = inner
        return [" ".join(["-n", address, *after])]
    for index, word in enumerate(words):  # kcat -t Orders -C
        if meant := _written(_OPTIONS.get(word, ()), [*words[:index], *words[index + 1 :]]):
            return meant[:1]
    if near := get_close_matches(flag, command_table.SHARED_OPTIONS, 1, 0.75):
        return [" ".join([*near, *words[1:]])]
    for index in range(1, len(words)):
        if found := catalog.find(words[index:]):
            end = index + found[2]
            return [" ".join([*words[index:end], *words[:index], *words[end:]])]
    return []


def with_surplus(command: str, surplus: Sequence[str]) -> list[str]:
    """Return what a command with a word that it does not accept may mean: `consumer list`."""
    return [] if " " in command else _two_words([command, *surplus])


_NO_PROXY = "mq has no gRPC proxy; Java's proxy of release 5 works with its brokers"


def absent(word: str) -> str:
    """Return the hint for a command of other tools that mq does not have, or ""."""
    return _NO_PROXY if catalog.fold(word) in ("proxy", "mqproxy") else ""


def flag(given: str, flags: Sequence[str], own: Sequence[str], called: str) -> str:
    """Return the hint for an option that the command `called` does not have.

    `flags` are all its options, `own` its own ones as users write them: `-t/--topic`.
    """
    name = given.partition("=")[0]
    if called == "broker" and name in ("--enable-proxy", "--enableProxy", "--proxyConfigPath"):
        return _NO_PROXY
    if name in _SERVERS and name.startswith("--"):
        return "for name servers use -n HOST:9876"
    if name.lstrip("-") in ("json", "yaml", "csv", "table", "markdown"):
        return f"for formats use -o: -o {name.lstrip('-')}"
    if name in _KINDS:
        return _KINDS[name]
    see = f"see: mq {called} --help"
    if near := get_close_matches(name, [flag for flag in flags if len(flag) > len("-x")], 2, 0.7):
        return f"did you mean {' or '.join(near)}? {see}"
    return f"its options are {', '.join(own)}; {see}" if 0 < len(own) <= _FEW else see


def halves(word: str, second: str, rest: Sequence[str]) -> list[str]:
    """Return commands that start with `word`, for an unknown second word."""
    inner = catalog.subcommands(word)
    if by_words := _two_words([word, second, *rest]):
        return by_words
    seconds = {name.partition(" ")[2]: name for name in inner}
    near = get_close_matches(second.lower(), seconds, 3, 0.6)
    return [seconds[half] for half in near][:3]


def groups(word: str) -> list[str]:
    """Return groups of commands that a word may mean, if no command is as near."""
    known = {**dict.fromkeys(catalog.GROUPS), **dict.fromkeys(catalog.WRITTEN)}
    found = get_close_matches(catalog.fold(word), known, 1, 0.75)
    return [name for name in found if name in catalog.GROUPS and name not in catalog.WRITTEN]


def _two_words(words: Sequence[str]) -> list[str]:
    """Return `group describe billing` for `describe group billing` and `group info billing`."""
    if _noun(catalog.fold(words[0])) == "group" and catalog.fold(words[1]) in ("group", "groups"):
        words = words[1:]  # `consumer group list`
        if len(words) == 1:
            return ["group list"]
    first, second, rest = words[0], words[1], words[2:]
    pair = _PAIRS.get((catalog.fold(first), catalog.fold(second)))
    found = [] if pair is None else _written([pair], rest)
    for noun, verb in ((first, second), (second, first)):
        verb = catalog.fold(verb)
        plural = noun.lower().endswith("s")
        verbs = _VERBS.get(verb, (verb,))
        if verb == "get" and not plural and rest:  # kubectl's `get topics`, and `get topic Orders`
            verbs = (*_VERBS["describe"], *verbs)
        found += _written([f"{_noun(catalog.fold(noun))} {item}" for item in verbs], rest)
    if not found and _noun(catalog.fold(first)) == "topic":  # rpk topic produce
        found = _written(_ALONE.get(catalog.fold(second), ()), rest)
    return list(dict.fromkeys(found))[:1]


def _noun(word: str) -> str:
    """Return the noun as mq has it: in the singular, and one of its own words."""
    for form in (word, word.removesuffix("s")):
        if form in _NOUNS:
            return _NOUNS[form]
    return word if catalog.subcommands(word) else word.removesuffix("s")


def _written(names: Iterable[str], rest: Sequence[str]) -> list[str]:
    """Return the existing ones of the names, with the words that follow."""
    there = [catalog.WRITTEN.get(catalog.key_of(name)) for name in names]
    from shlex import quote

    found = []
    for name in filter(None, there):
        shown = [*map(quote, rest)]
        if name.startswith(_WITH_SECRETS):  # an option's value may be a secret
            shown = shown[: next((at for at, word in enumerate(rest) if word[:1] == "-"), None)]
            shown += ["…"] if len(shown) < len(rest) else []
        found.append(" ".join([name, *shown]))
    return found
