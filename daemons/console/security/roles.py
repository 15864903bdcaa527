"""Users in requests: their role in each cluster, and their topics and groups."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from mq.daemons.console.permissions import ROLES, Permission
from mq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX

EVERY = "*"  # all clusters that are not named


@lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    """Return the pattern: `*` matches any characters, `?` one; all others match themselves."""
    parts = (".*" if c == "*" else "." if c == "?" else re.escape(c) for c in text)
    return re.compile("".join(parts), re.DOTALL)


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Return whether one of the patterns matches this name."""
    return any(_pattern(one).fullmatch(name) for one in patterns)


@dataclass(frozen=True, slots=True)
class User:
    """The user of a request. ``roles`` are names of roles by cluster, `*` for all others; a cluster
    without a role is hidden from the user. A topic of retries or dead letters belongs to its
    group."""

    name: str
    roles: Mapping[str, str] = field(default_factory=dict)
    topics: tuple[str, ...] = ("*",)
    groups: tuple[str, ...] = ("*",)
    read_only: bool = False
    token: str = ""  # the name of the token, for programs

    def permission(self, cluster: str) -> Permission | None:
        """Return the user's permission in a cluster; None if the cluster is hidden."""
        role = self.roles.get(cluster, self.roles.get(EVERY, ""))
        found = ROLES.get(role)
        if found is not None and self.read_only:
            return min(found, Permission.BODIES)
        return found

    def may(self, cluster: str, needs: Permission, *, topic: str = "", group: str = "") -> bool:
        """Return whether the user has the permission, for a topic or group if given."""
        has = self.permission(cluster)
        if has is None or has < needs:
            return False
        groups = [group] if group else []
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
            if topic.startswith(prefix):
                groups.append(topic.removeprefix(prefix))
                topic = ""
        return (not topic or matches(self.topics, topic)) and all(
            matches(self.groups, one) for one in groups
        )


# The user of a console without accounts, which only its own machine can reach.
LOCAL = User("local", {EVERY: "administrator"})
