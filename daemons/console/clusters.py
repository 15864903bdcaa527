"""The clusters of one console: a session each, what is known of it, and what may be done to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mq.client.options import ClientOptions
from mq.daemons.console.guarded_session import (
    Check,
    GuardedSession,
    LimitedSession,
    of_changer,
    of_reader,
    reads_only,
)
from mq.daemons.console.permissions import Permission

if TYPE_CHECKING:
    from mq.daemons.console.collector.snapshot import Snapshot
    from mq.daemons.console.security.roles import User


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """Where a cluster is: from the start-up file, never from a browser."""

    name: str
    name_servers: str
    options: ClientOptions
    read_only: bool = False


class Cluster:
    """A cluster that the console shows. ``session`` sends nothing that would change something."""

    def __init__(self, source: ClusterSource) -> None:
        self.source = source
        self.name = source.name
        self.read_only = source.read_only
        self._session = LimitedSession(source.name_servers, source.options)
        self.session = GuardedSession(self._session, reads_only)
        self.collector: Any = None  # set by the daemon where they are started
        self.history: Any = None

    def refuse(self, refused: Callable[[str], str | None]) -> None:
        """Connect to no address that this gives a reason against: whoever registers at a name
        server chooses where we connect to."""
        self._session.refused = refused

    @property
    def snapshot(self) -> "Snapshot":
        """The newest snapshot; before the first one an empty one, whose ``at`` is 0."""
        snapshot: Snapshot = self.collector.snapshot
        return snapshot

    def broker_address(self, name: str, broker_id: int = 0) -> str | None:
        """host:port of a broker that the snapshot knows; None for any other."""
        for row in self.snapshot.brokers:
            if row.name == name and row.id == broker_id:
                return row.address
        return None

    async def open(self) -> None:
        """Connect when asked to; nothing is sent yet."""
        await self._session.open()
        self.session.share(self._session)

    async def close(self) -> None:
        """End the connections. Safe to call again."""
        await self._session.close()

    def reading(self, user: "User") -> GuardedSession:
        """A session for what this user may see."""
        return of_reader(self._session, user, self.name)

    def changing(self, user: "User", needs: Permission, check: Check) -> GuardedSession:
        """A session for what this user may change and ``check`` lets through: for the changes
        engine alone."""
        return of_changer(self._session, user, self.name, needs, check)
