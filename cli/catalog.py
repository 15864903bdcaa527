"""The commands of `mq` by name: lookup, aliases and titles of groups.

`mq --help` and the lookup of a name need only this module and `command_table`, so that only the
module of the called command is imported.
"""

from collections.abc import Sequence

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
    """Return the form in which names are compared: equal for `update-topic` and `updateTopic`.

    Java ignores case, too (MQAdminStartup.findSubCommand).
    """
    return name.replace("-", "").replace("_", "").lower()


# Aliases: those of mqadmin (SubCommand.commandAlias), then a noun and a verb for each name that
# mqadmin writes as one word. An alias takes the options of its command.
ALIASES = {
    "getAccessConfigSubCommand": "getAclConfig",
    "deleteAccessConfig": "deleteAclConfig",
    "topic list": "topicList",
    "topic create": "updateTopic",
    "topic update": "updateTopic",
    "topic delete": "deleteTopic",
    "topic route": "topicRoute",
    "topic status": "topicStatus",
    "topic clusters": "topicClusterList",
    "topic stats": "statsAll",
    "topic permission": "updateTopicPerm",
    "topic order": "updateOrderConf",
    "topic apply": "apply",
    "topic tail": "tail",
    "topic produce": "produce",
    "topic consume": "tail",
    "broker list": "clusterList",
    "broker status": "brokerStatus",
    "broker config": "getBrokerConfig",
    "broker set": "updateBrokerConfig",
    "broker lag": "brokerConsumeStats",
    "broker replication": "haStatus",
    "broker drain": "wipeWritePerm",
    "broker undrain": "addWritePerm",
    "cluster list": "clusterList",
    "cluster health": "doctor",
    "cluster latency": "clusterRT",
    "cluster top": "top",
    "group list": "consumerProgress",
    "group lag": "consumerProgress",
    "group create": "updateSubGroup",
    "group update": "updateSubGroup",
    "group delete": "deleteSubGroup",
    "group config": "getConsumerConfig",
    "group members": "consumerConnection",
    "group status": "consumerStatus",
    "group mode": "setConsumeMode",
    "group seek": "resetOffsetByTime",
    "group skip": "skipAccumulatedMessage",
    "group clone": "cloneGroupOffset",
    "message send": "sendMessage",
    "message produce": "produce",
    "message get": "queryMsgByUniqueKey",
    "message find": "queryMsgByKey",
    "message at": "queryMsgByOffset",
    "message print": "printMsg",
    "message tail": "tail",
    "message trace": "trace",
    "offset list": "consumerProgress",
    "offset reset": "resetOffsetByTime",
    "offset skip": "skipAccumulatedMessage",
    "offset clone": "cloneGroupOffset",
    "namesrv config": "getNamesrvConfig",
    "namesrv set": "updateNamesrvConfig",
    "kv set": "updateKvConfig",
    "kv delete": "deleteKvConfig",
    "producer list": "producer",
    "producer connections": "producerConnection",
    "queue show": "queryCq",
    "snode list": "snodeList",
    "controller list": "getControllerMetaData",
    "controller config": "getControllerConfig",
    "controller set": "updateControllerConfig",
    "controller elect": "electMaster",
    "account list": "getAclConfig",
    "account set": "updateAclConfig",
    "account delete": "deleteAclConfig",
    "acl list": "listAcl",
    "acl get": "getAcl",
    "acl create": "createAcl",
    "acl update": "updateAcl",
    "acl delete": "deleteAcl",
    "acl copy": "copyAcl",
    "user list": "listUser",
    "user get": "getUser",
    "user create": "createUser",
    "user update": "updateUser",
    "user delete": "deleteUser",
    "user copy": "copyUser",
}

# Groups of commands by the first word of their two-word names.
_GROUPS_OF = {"group": "consumer", "kv": "namesrv", "account": "acl", "user": "auth"}


def key_of(name: str) -> str:
    """Return the folded form of a name of one or two words."""
    return " ".join(map(fold, name.split(" ")))


BY_NAME = {key_of(name): (group, name) for group, names in GROUPS.items() for name in names}
_COMMANDS = {name: group for group, names in GROUPS.items() for name in names}
BY_NAME |= {key_of(alias): (_COMMANDS[name], name) for alias, name in ALIASES.items()}
# The spelling of each name, by its folded form.
WRITTEN = {key_of(name): name for name in (*_COMMANDS, *ALIASES)}
_PREFIXES = {key.split(" ")[0] for key in BY_NAME if " " in key}


def find(words: Sequence[str]) -> tuple[str, str, int] | None:
    """Return (group, name, words used) of the command that `words` begin with, or None."""
    found = _find(words)
    return None if found is None else (*BY_NAME[found[0]], found[1])


def called(words: Sequence[str]) -> str:
    """Return the name by which `words` call a command, as it is spelled: an alias or its own."""
    found = _find(words)
    assert found is not None
    return WRITTEN[found[0]]


def _find(words: Sequence[str]) -> tuple[str, int] | None:
    """Return the key in `BY_NAME` that `words` start with, and the number of words used."""
    if not words or words[0].startswith("-"):
        return None
    first = fold(words[0])
    if first in _PREFIXES and len(words) > 1:
        for count in (3, 2):  # `mq console user add` is user-add
            rest = words[1:count]
            key = f"{first} {fold(''.join(rest))}"
            if key in BY_NAME and not any(word.startswith("-") for word in rest):
                return key, min(count, len(words))
        # `mq producer HOST:PORT`, `mq broker KEY=VALUE`: the second word of a name has no such
        # sign.
        if first not in BY_NAME or not (words[1].startswith("-") or {":", "="} & {*words[1]}):
            return None
    return (first, 1) if first in BY_NAME else None


def aliases_of(name: str) -> list[str]:
    """Return the two-word aliases of a command, without old spellings of mqadmin."""
    return [alias for alias, its in ALIASES.items() if its == name and " " in alias]


def subcommands(word: str) -> list[str]:
    """Return the two-word names that start with `word`: `context add` and others for `context`."""
    prefix = fold(word) + " "
    return [name for key, name in WRITTEN.items() if key.startswith(prefix)]


def group_of(word: str) -> str | None:
    """Return the group of commands that a word names: `topic`; for `group` it is `consumer`."""
    folded = fold(word)
    group = _GROUPS_OF.get(folded, folded)
    return group if group in GROUPS else None


def summary(name: str) -> str:
    """Return the first line of the help of a command or alias."""
    group, own = BY_NAME[key_of(name)]
    return GROUPS[group][own]


def kebab(name: str) -> str:
    """Return the name in kebab-case: `update-topic`; `clean-expired-cq` for `cleanExpiredCQ`."""
    words = ""
    for index, letter in enumerate(name):
        before, after = name[index - 1 : index], name[index + 1 : index + 2]
        # In a run of capitals, one before a small letter starts the next word.
        if letter.isupper() and (before.islower() or (before.isupper() and after.islower())):
            words += "-"
        words += letter.lower()
    return words


def module_name(name: str) -> str:
    """Return the module in `mq.cli.commands` that holds a command."""
    return command_table.MODULES[name]


def function_name(name: str) -> str:
    """Return the name of the function that runs the command: `update_topic`, `context_add`."""
    return kebab(name).replace("-", "_").replace(" ", "_").lstrip("_")
