"""The commands of `mq` by name: the look-up, near misses, second names, and titles of groups.

`mq --help` and the look-up of a name need no more than this and `command_table`, so that only the
called command's module is imported.
"""

from mq.cli import command_table

GROUPS = command_table.GROUPS

TITLES = {
    "topic": "Topics",
    "broker": "Brokers",
    "cluster": "Clusters",
    "consumer": "Consumer groups",
    "message": "Messages",
    "dlq": "Dead letters",
    "offset": "Offsets",
    "namesrv": "Name servers",
    "connection": "Connections",
    "producer": "Producers",
    "queue": "Queues",
    "stats": "Statistics",
    "acl": "Accounts of 4.9",
    "bench": "Measurements",
    "spark": "Jobs on Spark",
    "tube": "TubeMQ",
    "store": "Stores on the disk",
    "ha": "Replication",
    "controller": "Controllers and containers",
    "export": "Exports",
    "auth": "Users and policies of 5.x",
    "context": "Contexts",
    "console": "Accounts of the console",
    "systemd": "Units for systemd",
    "tool": "This command",
    "daemon": "Daemons",
}


def fold(name: str) -> str:
    """The form in which names are compared: `update-topic`, `updatetopic` and `updateTopic`.

    Java compares without case too (MQAdminStartup.findSubCommand).
    """
    return name.replace("-", "").replace("_", "").lower()


# Second names that mqadmin has for commands (SubCommand.commandAlias).
ALIASES = {
    "getAccessConfigSubCommand": "getAclConfig",
    "deleteAccessConfig": "deleteAclConfig",
}

_SECOND_NAMES = {fold(alias): fold(name) for alias, name in ALIASES.items()}
_BY_NAME = {fold(name): (group, name) for group, names in GROUPS.items() for name in names}
_PREFIXES = {key.split(" ")[0] for key in _BY_NAME if " " in key}


def find(words: list[str]) -> tuple[str, str, int] | None:
    """Return (group, name, words used) of the command that `words` begin with, or None."""
    if not words:
        return None
    first = fold(words[0])
    first = _SECOND_NAMES.get(first, first)
    if first in _PREFIXES and len(words) > 1:
        for count in (3, 2):  # `mq console user add` is user-add
            rest = words[1:count]
            found = _BY_NAME.get(f"{first} {fold(''.join(rest))}")
            if found is not None and not any(word.startswith("-") for word in rest):
                return (*found, min(count, len(words)))
        if first not in _BY_NAME or not words[1].startswith("-"):
            return None
    found = _BY_NAME.get(first)
    return None if found is None else (*found, 1)


def subcommands(word: str) -> list[str]:
    """The commands of two words that begin with `word`: `context` has `context add` and others."""
    prefix = fold(word) + " "
    return [name for key, (_, name) in _BY_NAME.items() if key.startswith(prefix)]


def near_misses(words: list[str]) -> list[str]:
    """Names that the words may have been meant to be, the nearest first."""
    from difflib import get_close_matches

    first = fold(words[0])
    found: list[str] = []
    if len(words) > 1 and not words[1].startswith("-"):
        second = fold(words[1])
        # `mq topic list` and `mq list topics` for topicList, `mq ofset export` for offset export.
        for joined in (first + second, second.removesuffix("s") + first, f"{first} {second}"):
            found += get_close_matches(joined, _BY_NAME, 2, 0.8)
    found = found or get_close_matches(first, _BY_NAME, 3, 0.65)
    return [_BY_NAME[key][1] for key in dict.fromkeys(found)][:3]


def near_groups(word: str) -> list[str]:
    """Groups that a word may have been meant to be, where no command is as near."""
    from difflib import get_close_matches

    found = get_close_matches(fold(word), [*GROUPS, *_BY_NAME], 1, 0.75)
    return [name for name in found if name in GROUPS and name not in _BY_NAME]


def kebab(name: str) -> str:
    """The name in kebab-case: `update-topic`; `clean-expired-cq` of `cleanExpiredCQ`."""
    words = ""
    for index, letter in enumerate(name):
        before, after = name[index - 1 : index], name[index + 1 : index + 2]
        # Of several capitals, one that a small letter follows begins the next word.
        if letter.isupper() and (before.islower() or (before.isupper() and after.islower())):
            words += "-"
        words += letter.lower()
    return words


def module_name(name: str) -> str:
    """The module in `mq.cli.commands` that holds a command."""
    return command_table.MODULES[name]


def function_name(name: str) -> str:
    """The name of the function that is the command: `update_topic`, `context_add`."""
    return kebab(name).replace("-", "_").replace(" ", "_").lstrip("_")
