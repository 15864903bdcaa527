"""Namespaces: let several users of one cluster use the same topic and group names. No I/O.

Brokers call the topic "Orders" of namespace "shop" "shop%Orders", and the retry topic of its group
"billing" "%RETRY%shop%billing". A client with that namespace sees the names without it
(NamespaceUtil).
"""

from mq.protocol.names import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    is_system_topic,
)

_SEPARATOR = "%"


def with_namespace(namespace: str | None, name: str) -> str:
    """Return the full name of a topic or group. System names and full names are unchanged."""
    if not namespace or not name or _is_system(name):
        return name
    prefix, rest = _split(name)
    if rest.startswith(namespace + _SEPARATOR):
        return name
    return f"{prefix}{namespace}{_SEPARATOR}{rest}"


def without_namespace(namespace: str | None, name: str) -> str:
    """Return the name within the namespace. Names of other namespaces are unchanged."""
    if not namespace or not name or _is_system(name):
        return name
    prefix, rest = _split(name)
    return prefix + rest.removeprefix(namespace + _SEPARATOR)


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name


def _is_system(name: str) -> bool:
    return is_system_topic(name) or name.startswith(SYSTEM_GROUP_PREFIX)
