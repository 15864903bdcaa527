"""One call of a route: who asks what of which cluster."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import cached_property
from pathlib import Path
from typing import Any

from mq.client.admin import Admin
from mq.client.session import Session
from mq.daemons.console.clusters import Cluster
from mq.daemons.console.locale import Texts
from mq.daemons.console.permissions import Permission
from mq.daemons.console.security.roles import User

#: Writes a line of the audit: the call, what was done, to what, with what.
Note = Callable[["Call", str, str, Mapping[str, object]], None]


def no_note(call: "Call", what: str, target: str, parameters: Mapping[str, object]) -> None:
    """Where nobody keeps an audit: calls that tests make."""


@dataclass(frozen=True)
class Call:
    """What a page's function gets.

    ``path`` has the parameters of the path and ``query`` those of the query, read; ``now`` is in ms
    since 1970. ``client`` is the address of who asks. Through ``caller`` and ``admin`` go requests
    that change nothing, as far as the user may: all others raise Forbidden.
    """

    cluster: Cluster
    path: Mapping[str, str]
    query: Mapping[str, Any]
    user: User
    texts: Texts
    now: int
    zone: tzinfo = UTC
    client: str = ""
    id: str = ""  # of the request: errors and the audit have it
    note: Note = no_note
    audit_path: Path | None = None

    def text(self, message: str, **values: object) -> str:
        """A text in the language of who asks, with %(name)s replaced."""
        return self.texts.gettext(message, **values)

    def number_text(self, singular: str, plural: str, number: int, **values: object) -> str:
        """The same of a text that depends on a number, which is %(num)d."""
        return self.texts.ngettext(singular, plural, number, **values)

    def may(self, needs: Permission, *, topic: str = "", group: str = "") -> bool:
        """Whether to offer it: the user may do so in this cluster, and something may be changed
        there at all; of a topic or group, if one is named."""
        if needs > Permission.BODIES and self.cluster.read_only:
            return False
        return self.user.may(self.cluster.name, needs, topic=topic, group=group)

    def viewed(self, target: str, what: str, **parameters: object) -> None:
        """Have the audit tell that the user has seen ``what`` ("body", "download", "search in
        bodies", "export") of ``target``, before it is shown. Raises CannotWrite if it cannot."""
        self.note(self, what, target, parameters)

    def sees_topic(self, name: str) -> bool:
        """Whether lists may show this topic to the user."""
        return self.may(Permission.READ, topic=name)

    def sees_group(self, name: str) -> bool:
        """Whether lists may show this group to the user."""
        return self.may(Permission.READ, group=name)

    @cached_property
    def caller(self) -> Session:
        """The cluster, for reading, as far as the user may."""
        return self.cluster.reading(self.user)

    @cached_property
    def admin(self) -> Admin:
        """Administrative calls that read."""
        return Admin(self.caller)
