"""Users as a request sees them: their role in each cluster, and which topics and groups."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from mq.daemons.console.permissions import ROLES, Permission
from mq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX

EVERY = "*"  # all clusters that are not named


@lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    """`*` stands for any characters, `?` for one; all others for themselves."""
    parts = (".*" if c == "*" else "." if c == "?" else re.escape(c) for c in text)
    return re.compile("".join(parts), re.DOTALL)


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Whether one of the patterns is about this name."""
    return any(_pattern(one).fullmatch(name) for one in patterns)


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who asks. ``roles`` are names of roles by cluster, `*` for all others; a cluster
    that has none is not there for the user. A topic of retries or dead letters is its group's."""

    name: str
    roles: Mapping[str, str] = field(default_factory=dict)
    topics: tuple[str, ...] = ("*",)
    groups: tuple[str, ...] = ("*",)
    read_only: bool = False
    token: str = ""  # the name of the token, where a program asks

    def permission(self, cluster: str) -> Permission | None:
        """What the user may do in a cluster; None where it is not to be seen."""
        role = self.roles.get(cluster, self.roles.get(EVERY, ""))
        found = ROLES.get(role)
        if found is not None and self.read_only:
            return min(found, Permission.BODIES)
        return found

    def may(self, cluster: str, needs: Permission, *, topic: str = "", group: str = "") -> bool:
        """Whether the user may do this; of a topic or group, if one is named."""
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


#: Who asks a console without accounts, which only its own machine reaches.
LOCAL = User("local", {EVERY: "administrator"})
