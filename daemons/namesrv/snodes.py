"""The registered snodes, to which clients of proxies may connect."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from mq.client.machine import clock
from mq.daemons.dispatch import Overloaded
from mq.protocol.bodies import ClusterInfo, SnodeClusterInfo, SnodeData

log = logging.getLogger(__name__)

# Limit of registered snodes: each is in every reply that lists them.
MOST_SNODES = 10_000
MOST_SETTING = "snodes of one name server"
# Limit in characters of a name, a cluster's name or an address.
LONGEST_TEXT = 255


@dataclass(slots=True)
class _Live:
    data: SnodeData
    last_seen: float


class Snodes:
    """Snodes by name. One that no longer registers is evicted; Java keeps it forever."""

    def __init__(self, clock: Callable[[], float] = clock.monotonic) -> None:
        self._clock = clock
        self._live: dict[str, _Live] = {}

    def __len__(self) -> int:
        return len(self._live)

    def register(self, data: SnodeData) -> None:
        """Register a snode. Raises Overloaded at the limit."""
        known = self._live.get(data.snode_name)
        if known is None and len(self._live) >= MOST_SNODES:
            raise Overloaded(MOST_SETTING, f"[OVERLOAD]there are {MOST_SNODES} snodes")
        if known is None or known.data != data:
            log.info(
                "snode registered: %s at %s, cluster %s",
                data.snode_name,
                data.address,
                data.cluster_name,
            )
        self._live[data.snode_name] = _Live(data, self._clock())

    def expire(self, timeout: float) -> None:
        """Evict snodes that have not registered for `timeout` seconds."""
        oldest = self._clock() - timeout
        for name in [name for name, live in self._live.items() if live.last_seen < oldest]:
            log.warning("evicting snode %s: it has not registered for %.1f s", name, timeout)
            del self._live[name]

    def info(self, cluster: str | None = None) -> SnodeClusterInfo:
        """All snodes, or those of one cluster."""
        found = SnodeClusterInfo()
        for name, live in self._live.items():
            if cluster is None or live.data.cluster_name == cluster:
                found.snode_table[name] = live.data
                found.snode_cluster.setdefault(live.data.cluster_name, set()).add(name)
        return found

    def add_to(self, info: ClusterInfo) -> ClusterInfo:
        """Add the snodes to the brokers, if there are any."""
        if self._live:
            snodes = self.info()
            info.snode_table, info.snode_cluster = snodes.snode_table, snodes.snode_cluster
        return info
