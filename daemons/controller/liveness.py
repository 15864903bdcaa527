"""Liveness: the heartbeats of brokers, each of which every controller receives.

A broker is alive from its first heartbeat until none has arrived for its timeout, or until the
connection of its last heartbeat is closed: a killed process closes it at once. A broker without a
heartbeat since the start of this controller may be alive for `GRACE` seconds, so that a controller
that starts after its brokers does not elect new masters. Source: DefaultBrokerHeartbeatManager,
whose entries keep their first connection and their highest offset forever; here the last heartbeat
counts.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from mq.client.machine import clock
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Overloaded
from mq.protocol.headers.controller import BrokerHeartbeatRequestHeader

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT = 10.0  # seconds, the default of brokers
GRACE = DEFAULT_TIMEOUT
# Limit of known brokers: any client can send a heartbeat.
MOST_BROKERS = 10_000
_LONGEST_TIMEOUT = 3600.0
_USUAL_INTERVAL = 1.0  # default interval of brokers' heartbeats in seconds
_LATE = 1.5  # intervals without a heartbeat
LOWEST_PRIORITY = 2**31 - 1

# The name of a replica set, and a broker id.
Key = tuple[str, int]


@dataclass
class LastHeartbeat:
    """The last heartbeat of a broker."""

    address: str
    channel: Channel
    heard: float  # by the monotonic clock
    timeout: float  # seconds
    epoch: int
    max_offset: int
    priority: int  # the lowest is elected first
    interval: float | None = None  # seconds between its last two heartbeats, None after the first

    @property
    def is_prompt(self) -> bool:
        """Whether its next heartbeat is not late."""
        silence = clock.monotonic() - self.heard
        return self.interval is None or silence <= _LATE * max(self.interval, _USUAL_INTERVAL)

    def rank(self) -> tuple[int, int, int]:
        """The sort key in an election, the best last."""
        return self.epoch, self.max_offset, -self.priority


class Liveness:
    """The heartbeats of brokers. ``on_death`` is called with the name and id of each broker that
    has ended or sends no heartbeats.
    """

    def __init__(self, on_death: Callable[[str, int], None]) -> None:
        self._on_death = on_death
        self._live: dict[Key, LastHeartbeat] = {}
        self._of_channel: dict[Channel, set[Key]] = {}
        self._dead: set[Key] = set()
        self._started = clock.monotonic()

    def __len__(self) -> int:
        return len(self._live)

    def heard(self, header: BrokerHeartbeatRequestHeader, channel: Channel) -> None:
        """Register a heartbeat. Raises Overloaded at the limit of brokers."""
        assert header.broker_id is not None
        key = (header.broker_name, header.broker_id)
        priority = header.election_priority
        if key not in self._live and len(self._live) >= MOST_BROKERS:
            raise Overloaded("MOST_BROKERS", f"{MOST_BROKERS} brokers send heartbeats already")
        millis = header.heartbeat_timeout_mills
        timeout = DEFAULT_TIMEOUT if millis is None else millis / 1000
        before, now = self._live.get(key), clock.monotonic()
        self._live[key] = LastHeartbeat(
            address=header.broker_addr,
            channel=channel,
            heard=now,
            timeout=min(max(timeout, 0.1), _LONGEST_TIMEOUT),
            epoch=-1 if header.epoch is None else header.epoch,
            max_offset=-1 if header.max_offset is None else header.max_offset,
            priority=LOWEST_PRIORITY if priority is None else priority,
            interval=None if before is None else now - before.heard,
        )
        self._dead.discard(key)
        if before is not None and before.channel is channel:
            return
        if before is not None:
            self._of_channel.get(before.channel, set()).discard(key)
        if channel not in self._of_channel:
            channel.on_close.append(self._closed)
        self._of_channel.setdefault(channel, set()).add(key)
        if before is None:
            log.info("broker %s of %s is alive, at %s", key[1], key[0], header.broker_addr)

    def get(self, name: str, broker_id: int) -> LastHeartbeat | None:
        """The last heartbeat of a live broker, None if it is not alive."""
        live = self._live.get((name, broker_id))
        if live is None or clock.monotonic() - live.heard > live.timeout:
            return None
        return live

    def is_alive(self, name: str, broker_id: int) -> bool:
        return self.get(name, broker_id) is not None

    def may_live(self, name: str, broker_id: int) -> bool:
        """Whether a broker is alive, or has not had the time to send a heartbeat."""
        if self.is_alive(name, broker_id):
            return True
        unheard = (name, broker_id) not in self._dead
        return unheard and clock.monotonic() - self._started < GRACE

    def expire(self) -> None:
        """Expire brokers whose heartbeats have stopped."""
        now = clock.monotonic()
        for key, live in list(self._live.items()):
            if now - live.heard > live.timeout:
                log.warning(
                    "broker %d of %s at %s has sent no heartbeat for %.1f s",
                    key[1],
                    key[0],
                    live.address,
                    now - live.heard,
                )
                self._of_channel.get(live.channel, set()).discard(key)
                self._died(key)

    def _closed(self, channel: Channel) -> None:
        for key in self._of_channel.pop(channel, ()):
            log.warning("the connection of broker %d of %s is closed", key[1], key[0])
            self._died(key)

    def _died(self, key: Key) -> None:
        self._live.pop(key, None)
        if len(self._dead) < MOST_BROKERS:
            self._dead.add(key)
        self._on_death(*key)
