"""The content of the brokers of a simulated TubeMQ cluster, read twice a second."""

from dataclasses import dataclass, field
from typing import Any

from mq.daemons.tube.broker.store.layout import HEAD, HEAD_SIZE, INDEX_SIZE
from mq.daemons.tube.broker.store.reading import ReadRequest, read
from mq.daemons.tube.broker.store.topic_store import TopicStore
from tests.simulation.cluster import Daemon
from tests.simulation.tube.cluster import SAVES_MS
from tests.simulation.tube.model import Key, Model, Stored, number_of
from tests.simulation.tube.workloads import Context

_LOOK = 0.5
_EVERYTHING = 1 << 30
# Offsets committed this many seconds before a kill are on the disk: a save starts in time and ends.
_SAVED = SAVES_MS / 1000 + 1.0
# If something else was wrong with the broker in this many seconds before, that is not promised.
_TROUBLE = 15.0


@dataclass
class _Seen:
    """The state that a start of a broker has shown."""

    app: Any = None
    content: dict[Key, list[Stored]] = field(default_factory=dict)
    read: dict[tuple[str, int], int] = field(default_factory=dict)  # end of the data read, by store


class Watch:
    """Reads all brokers."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._model: Model = context.model
        self._seen = {broker: _Seen() for broker in context.cluster.brokers}
        # Offsets of groups at a broker, with their times.
        self._history: dict[Daemon, list[tuple[float, dict[tuple[str, Key], int]]]] = {
            broker: [] for broker in context.cluster.brokers
        }
        self._stopped: set[Daemon] = set()  # after an orderly stop, until they serve again
        self._had_power_cut: set[Daemon] = set()
        self.troubles: dict[str, list[float]] = {}  # by the name of a broker
        for broker in context.cluster.brokers:
            broker.on_stopped = lambda daemon, app: self._was_stopped(daemon, app)

    def start(self) -> None:
        self.look()
        world = self._context.cluster.world
        world.at(world.now + _LOOK, self.start)

    def lost_power(self, broker: Any) -> None:
        """A broker that does not flush before it answers has lost power."""
        self._had_power_cut.add(broker)

    def look(self) -> None:
        for number, broker in enumerate(self._context.cluster.brokers, 1):
            app = broker.app
            if app is not None and not broker.stops_since:
                self._look_at(number, broker, app)

    def content(self) -> dict[Key, list[Stored]]:
        """The content at the last reading."""
        return {key: all_of for seen in self._seen.values() for key, all_of in seen.content.items()}

    # ------------------------------------------------------------------------------------------

    def _look_at(self, number: int, broker: Daemon, app: Any) -> None:
        seen, is_new = self._seen[broker], False
        try:
            if seen.app is not app:
                is_new = True
                fresh = _Seen(app)
                self._read(number, app, fresh)
                self._seen[broker] = seen = fresh
            else:
                self._read(number, app, seen)
        except OSError:
            return  # its disk does not answer now
        offsets = self._offsets(number, app)
        if is_new:
            self._begin(broker, offsets)
        else:
            self._check_goes_on(broker, offsets)
        self._history[broker].append((self._context.now, offsets))
        for (group, key), offset in offsets.items():
            self._model.committed(self._model.groups[group], key, offset, seen.content.get(key, []))

    def _read(self, number: int, app: Any, seen: _Seen) -> None:
        """Read new records. Raises OSError."""
        for name in app.serving.stores.names():
            for store_number, store in app.serving.stores.of_topic(name):
                place = name, store_number
                at = max(seen.read.get(place, 0), store.min_index)
                for partition, record in _records(store, at):
                    seen.content.setdefault((number, name, partition), []).append(record)
                    seen.read[place] = record.offset + INDEX_SIZE

    def _offsets(self, number: int, app: Any) -> dict[tuple[str, Key], int]:
        offsets = app.serving.offsets
        return {
            (group, (number, *key)): entry.offset
            for group in self._model.groups
            for key, entry in offsets.of_group(group).items()
            if not entry.is_new
        }

    # changes of offsets -----------------------------------------------------------------------

    def _check_goes_on(self, broker: Daemon, offsets: dict[tuple[str, Key], int]) -> None:
        before = self._history[broker][-1][1] if self._history[broker] else {}
        for (group, key), offset in before.items():
            now = offsets.get((group, key), -1)
            if now < offset and not self._may_be_lowered(broker):
                self._model.wrong(f"{group} was at {offset} of {key}, and is at {now}")

    def _may_be_lowered(self, broker: Daemon) -> bool:
        """Whether a power cut may have left less than a group had: its offset is then the end."""
        return broker in self._had_power_cut

    def _begin(self, broker: Daemon, offsets: dict[tuple[str, Key], int]) -> None:
        """A start: its groups are at the last save, or unchanged after an orderly stop."""
        was_calm = broker in self._stopped
        self._stopped.discard(broker)
        ended = broker.process.started if broker.process is not None else 0.0
        if broker.crashes and not was_calm:
            ended = min(ended, broker.crashes[-1])
        began = next((at for at, _ in self._history[broker]), ended)
        span = 0.0 if was_calm else _SAVED
        if any(ended - _TROUBLE <= at <= ended for at in self.troubles.get(broker.name, ())):
            span = ended - began + 1.0
        kept: dict[tuple[str, Key], int] = {}
        for at, then in self._history[broker]:
            if at <= ended - span:
                kept = then
        for (group, key), offset in kept.items():
            now = offsets.get((group, key), -1)
            if now < offset and not self._may_be_lowered(broker):
                self._model.wrong(
                    f"{group} was at {offset} of {key} in time for a save, and behind a start at "
                    f"{now}"
                )
        self._history[broker].clear()

    def _was_stopped(self, daemon: Daemon, app: Any) -> None:
        self._stopped.add(daemon)
        number = self._context.cluster.brokers.index(daemon) + 1
        if app is not None and hasattr(app, "serving"):
            offsets = self._offsets(number, app)
            self._history[daemon].append((self._context.now, offsets))


def _records(store: TopicStore, offset: int) -> list[tuple[int, Stored]]:
    """The records of a store from an offset of its index on, with their partitions.

    Raises OSError.
    """
    found: list[tuple[int, Stored]] = []
    while offset < store.max_index:
        # The data are read in their order, not by partition as the broker does.
        entry = bytes(store.index.read(offset, INDEX_SIZE))
        partition = int.from_bytes(entry[:4], "big")
        wish = ReadRequest(partition, offset, None, _EVERYTHING, INDEX_SIZE, joined=False)
        piece = b"".join(read(store, wish, wait=True).pieces)
        payload = piece[HEAD_SIZE:]
        found.append((partition, Stored(offset, _number(piece, payload))))
        offset += INDEX_SIZE
    return found


def _number(piece: bytes, payload: bytes) -> int:
    """The number of a record's message, -1 if it has none."""
    if len(piece) < HEAD_SIZE or HEAD.unpack_from(piece)[0] + 4 != len(piece):
        return -1
    if not HEAD.unpack_from(piece)[9] & 1:
        return number_of(payload)
    size = int.from_bytes(payload[:4], "big")  # of the attributes
    return number_of(payload[4 + size :])
