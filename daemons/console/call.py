"""One call of a route: the user, the cluster and the parameters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import cached_property
from pathlib import Path
from typing import Any

from mq.client.admin import Admin
from mq.client.transport.session import Session
from mq.daemons.console.clusters import Cluster
from mq.daemons.console.locale import Texts
from mq.daemons.console.permissions import Permission
from mq.daemons.console.security.roles import User

# Writes a line of the audit: the call, the action, its target, its parameters.
Note = Callable[["Call", str, str, Mapping[str, object]], None]


def no_note(call: "Call", what: str, target: str, parameters: Mapping[str, object]) -> None:
    """Do nothing: for calls without an audit, in tests."""


@dataclass(frozen=True)
class Call:
    """The argument of a page's function.

    ``path`` has the parameters of the path and ``query`` the parsed ones of the query; ``now`` is
    in ms since 1970. ``client`` is the address of the browser or program. ``caller`` and ``admin``
    send requests that change nothing and that the user may send; for others they raise Forbidden.
    """

    cluster: Cluster
    path: Mapping[str, str]
    query: Mapping[str, Any]
    user: User
    texts: Texts
    now: int
    zone: tzinfo = UTC
    client: str = ""
    id: str = ""  # the request id, for errors and the audit
    note: Note = no_note
    audit_path: Path | None = None

    def text(self, message: str, **values: object) -> str:
        """Return a text in the user's language, with %(name)s replaced."""
        return self.texts.gettext(message, **values)

    def number_text(self, singular: str, plural: str, number: int, **values: object) -> str:
        """Return a text that depends on a number, which is %(num)d."""
        return self.texts.ngettext(singular, plural, number, **values)

    def may(self, needs: Permission, *, topic: str = "", group: str = "") -> bool:
        """Return whether to offer an action: the user may do it, and the cluster is not read-only.

        It may be restricted to a topic or group.
        """
        if needs > Permission.BODIES and self.cluster.read_only:
            return False
        return self.user.may(self.cluster.name, needs, topic=topic, group=group)

    def viewed(self, target: str, what: str, **parameters: object) -> None:
        """Record in the audit that the user sees ``what`` ("body", "download", "search in bodies",
        "export") of ``target``, before it is shown. Raises CannotWrite."""
        self.note(self, what, target, parameters)

    def sees_topic(self, name: str) -> bool:
        """Return whether lists may show this topic to the user."""
        return self.may(Permission.READ, topic=name)

    def sees_group(self, name: str) -> bool:
        """Return whether lists may show this group to the user."""
        return self.may(Permission.READ, group=name)

    @cached_property
    def caller(self) -> Session:
        """A session for reading, with the user's permissions."""
        return self.cluster.reading(self.user)

    @cached_property
    def admin(self) -> Admin:
        """Administrative calls for reading."""
        return Admin(self.caller)
