"""The clusters of one console: session, data and permissions of each."""

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
    """The location of a cluster: from the configuration, never from a browser."""

    name: str
    name_servers: str
    options: ClientOptions
    read_only: bool = False


class Cluster:
    """A cluster in the console. ``session`` sends no requests that change something."""

    def __init__(self, source: ClusterSource) -> None:
        self.source = source
        self.name = source.name
        self.read_only = source.read_only
        self._session = LimitedSession(source.name_servers, source.options)
        self.session = GuardedSession(self._session, reads_only)
        self.collector: Any = None  # set by the daemon if collectors are started
        self.history: Any = None

    def refuse(self, refused: Callable[[str], str | None]) -> None:
        """Connect to no address for which `refused` returns a reason.

        Any client that may register at a name server chooses addresses.
        """
        self._session.refused = refused

    @property
    def snapshot(self) -> "Snapshot":
        """The newest snapshot; before the first one an empty one, whose ``at`` is 0."""
        snapshot: Snapshot = self.collector.snapshot
        return snapshot

    def broker_address(self, name: str, broker_id: int = 0) -> str | None:
        """Return host:port of a broker in the snapshot; None for others."""
        for row in self.snapshot.brokers:
            if row.name == name and row.id == broker_id:
                return row.address
        return None

    async def open(self) -> None:
        """Open the session; nothing is sent yet."""
        await self._session.open()
        self.session.share(self._session)

    async def close(self) -> None:
        """Close the connections. Safe to call again."""
        await self._session.close()

    def reading(self, user: "User") -> GuardedSession:
        """Return a session for reading, with the permissions of this user."""
        return of_reader(self._session, user, self.name)

    def changing(self, user: "User", needs: Permission, check: Check) -> GuardedSession:
        """Return a session for changes that the user may make and ``check`` allows.

        Only the changes engine uses it.
        """
        return of_changer(self._session, user, self.name, needs, check)
