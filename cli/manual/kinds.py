"""The completion of an option's value: by its metavar, else by its name, never by command.

A kind is the name of a list in `mq.cli.completion.names` (topics, groups, …), or `files`,
`directories`, `commands`, or `one:a|b` for a fixed choice, or empty for anything else.
"""

_BY_METAVAR = {
    "TOPIC": "topics",
    "TOPIC[,…]": "topics",
    "GROUP": "groups",
    "GROUP[,…]": "groups",
    "CLUSTER": "clusters",
    "BROKER": "brokers",
    "KEY": "keys",
    "CONTEXT": "contexts",
    "JOB": "jobs",
    "COMMAND": "commands",
    "COMMAND…": "commands",
    "FILE": "files",
    "PATH": "files",
    "DIR": "directories",
    "DIRECTORY": "directories",
}

# The metavars NAME and HOST:PORT are ambiguous: then the name of the option decides.
_BY_NAME = {
    "topic": "topics",
    "topicname": "topics",
    "topics": "topics",
    "group": "groups",
    "groupname": "groups",
    "consumergroup": "groups",
    "srcgroup": "groups",
    "destgroup": "groups",
    "cluster": "clusters",
    "clustername": "clusters",
    "broker": "brokers",
    "brokername": "brokers",
    "brokeraddr": "addresses",
    "brokeraddress": "addresses",
    "namesrvaddr": "nameServers",
    "context": "contexts",
}


def kind_of(flags: tuple[str, ...], metavar: str, *, is_flag: bool) -> str:
    """Return the kind of an option's values."""
    if is_flag:
        return ""
    if metavar in _BY_METAVAR:
        return _BY_METAVAR[metavar]
    for flag in flags:
        found = _BY_NAME.get(flag.lstrip("-").replace("-", "").lower())
        if found and flag.startswith("--"):
            return found
    choices = metavar.split("|")
    if len(choices) > 1 and all(choice.replace("-", "").isalnum() for choice in choices):
        return f"one:{metavar}"
    return ""
