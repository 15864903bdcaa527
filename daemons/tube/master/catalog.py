"""The records of a master, in memory and stored: memory always equals the disk.

    change   one at a time: a step reads the present records and returns the new ones; they are
             written, and then in effect
    doubt    if the outcome of a write is unknown, all are read again before the next change

A change that has begun continues even if its caller is cancelled.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from mq.client.machine import clock
from mq.daemons.tube.master.records import (
    BrokerConf,
    CatalogRecord,
    ClusterSettings,
    ConsumeControl,
    GroupControl,
    TopicControl,
    TopicDeploy,
    consume_key,
    deploy_key,
)
from mq.daemons.tube.master.storage import Changes, Key, NotActive, Storage, StorageError

log = logging.getLogger(__name__)

K = TypeVar("K", str, int)
R = TypeVar("R", bound=CatalogRecord)

# Limits for the records of a kind, and for the bytes of one: administrators make mistakes, too.
MOST_RECORDS = 100_000
MOST_BYTES = 512 * 1024


class ChangeRefused(Exception):
    """The reason that nothing was changed. ``code`` is one of TubeMQ's DataOpErrCode."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class DataCode:
    """The outcomes of changes (DataOpErrCode)."""

    SUCCESS = 200
    NOT_EXIST = 401
    EXISTED = 402
    UNCHANGED = 403
    UNCLEANED = 404
    CONDITION_LACK = 405
    ILLEGAL_STATUS = 406
    ILLEGAL_VALUE = 407
    CONFLICT_VALUE = 408
    STORE_ABNORMAL = 501
    STORE_NOT_MASTER = 511


class Catalog:
    """All records. ``on_change`` is called with those of each effective change."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._records: dict[str, dict[str, CatalogRecord]] = {}
        self._deployed: dict[str, dict[str, TopicDeploy]] = {}  # by topic, then broker's key
        self._of_broker: dict[int, dict[str, TopicDeploy]] = {}  # by topic
        self._consume_by_topic: dict[str, dict[str, ConsumeControl]] = {}  # then by key
        self._consume_by_group: dict[str, dict[str, ConsumeControl]] = {}
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()
        self._serial = 0
        self.is_known = False
        self.on_change: list[Callable[[Changes], None]] = []
        self.changes = 0

    # what is there --------------------------------------------------------------------------------

    @property
    def cluster(self) -> ClusterSettings:
        """The settings of the cluster, or the defaults."""
        found = self._one(ClusterSettings, ClusterSettings().key)
        return found if found is not None else ClusterSettings()

    def brokers(self) -> Iterator[BrokerConf]:
        """Yield all, by id."""
        yield from sorted(self._all(BrokerConf), key=lambda one: one.broker_id)

    def broker(self, broker_id: int) -> BrokerConf | None:
        return self._one(BrokerConf, str(broker_id))

    def deployed_topics(self) -> set[str]:
        """Return the names of topics on any broker, in any status."""
        return set(self._deployed)

    def deploy(self, broker_id: int, topic: str) -> TopicDeploy | None:
        return self._one(TopicDeploy, deploy_key(broker_id, topic))

    def of_broker(self, broker_id: int) -> list[TopicDeploy]:
        """Return the topics of a broker, by name."""
        found = self._of_broker.get(broker_id, {})
        return [found[topic] for topic in sorted(found)]

    def of_topic(self, topic: str) -> list[TopicDeploy]:
        """Return a topic on its brokers, by id."""
        return sorted(self._deployed.get(topic, {}).values(), key=lambda one: one.broker_id)

    def topic_control(self, topic: str) -> TopicControl | None:
        return self._one(TopicControl, topic)

    def topic_controls(self) -> list[TopicControl]:
        return sorted(self._all(TopicControl), key=lambda one: one.topic)

    def group_control(self, group: str) -> GroupControl | None:
        return self._one(GroupControl, group)

    def group_controls(self) -> list[GroupControl]:
        return sorted(self._all(GroupControl), key=lambda one: one.group)

    def consume_control(self, group: str, topic: str) -> ConsumeControl | None:
        return self._one(ConsumeControl, consume_key(group, topic))

    def consume_controls(self, topic: str = "", group: str = "") -> list[ConsumeControl]:
        """Return those of a topic, a group, both, or all."""
        found: Iterable[ConsumeControl]
        if topic and group:
            both = self.consume_control(group, topic)
            found = () if both is None else (both,)
        elif topic:
            found = self._consume_by_topic.get(topic, {}).values()
        elif group:
            found = self._consume_by_group.get(group, {}).values()
        else:
            found = self._all(ConsumeControl)
        return sorted(found, key=lambda one: (one.topic, one.group))

    def forbidden_topics(self, group: str) -> set[str]:
        """Return the topics that a group may not consume (getDisableTopicByGroupName)."""
        known = self._consume_by_group.get(group, {})
        return {one.topic for one in known.values() if not one.enabled}

    # what changes ---------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read all records. Raises StorageError."""
        async with self._lock:
            await self._load()

    async def settle(self) -> None:
        """Read them again if their stored state is unknown. Raises StorageError."""
        if self.is_known:
            return
        async with self._lock:
            if not self.is_known:  # a change was being stored, and now is
                await self._load()

    async def change(self, step: Callable[[], Changes]) -> Changes:
        """Make a change: `step` returns it, or raises ChangeRefused; it is called when no other
        change is
        in progress. Returns the change once it is stored.

        Raises ChangeRefused, also if it could not be stored.
        """
        outcome: list[Changes] = []
        task = asyncio.get_running_loop().create_task(self._change(step, outcome))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.shield(task)
        return outcome[0]

    async def finish(self) -> None:
        """Wait for changes in progress."""
        while self._running:
            await asyncio.wait(self._running)

    def next_serial(self) -> int:
        """Return a serial id, later than any before: milliseconds, as in TubeMQ."""
        self._serial = max(clock.milliseconds(), self._serial + 1)
        return self._serial

    async def _change(self, step: Callable[[], Changes], outcome: list[Changes]) -> None:
        async with self._lock:
            if not self.is_known:
                await self._load_again()
            changes = step()
            self._check_room(changes)
            if changes:
                self.is_known = False
                try:
                    await self._storage.keep(changes)
                except NotActive as error:
                    raise ChangeRefused(DataCode.STORE_NOT_MASTER, str(error)) from None
                except StorageError as error:
                    log.error("%s", error, extra={"failure": "metadata"})
                    raise ChangeRefused(
                        DataCode.STORE_ABNORMAL, f"the change is not confirmed: {error}"
                    ) from None
                self._take(changes)
                self.is_known = True
                self.changes += 1
                self._notify(changes)
            outcome.append(changes)

    def _check_room(self, changes: Changes) -> None:
        for (kind, key), record in changes.items():
            there = self._records.get(kind, {})
            if record is not None and key not in there and len(there) >= MOST_RECORDS:
                raise ChangeRefused(
                    DataCode.ILLEGAL_VALUE, f"there are {MOST_RECORDS} records of kind {kind}"
                )
            if record is not None and len(record.encode()) > MOST_BYTES:
                raise ChangeRefused(DataCode.ILLEGAL_VALUE, f"{kind} {key} is too large")

    async def _load_again(self) -> None:
        try:
            await self._load()
        except StorageError as error:
            raise ChangeRefused(DataCode.STORE_ABNORMAL, str(error)) from None

    async def _load(self) -> None:
        self.is_known = False
        found = await self._storage.load()
        before = self._keys()
        self._records, self._deployed, self._of_broker = {}, {}, {}
        self._consume_by_topic, self._consume_by_group = {}, {}
        loaded: dict[Key, CatalogRecord | None] = {(r.kind, r.key): r for r in found}
        self._take(loaded)
        self.is_known = True
        gone: dict[Key, CatalogRecord | None] = dict.fromkeys(before - loaded.keys())
        self._notify({**gone, **loaded})

    def _notify(self, changes: Changes) -> None:
        if changes:
            for notify in self.on_change:
                notify(changes)

    def _keys(self) -> set[Key]:
        return {(kind, key) for kind, of_kind in self._records.items() for key in of_kind}

    def _take(self, changes: Changes) -> None:
        for (kind, key), record in changes.items():
            of_kind = self._records.setdefault(kind, {})
            old = of_kind.pop(key, None)
            if isinstance(old, TopicDeploy):
                _forget(self._deployed, old.topic, old.key)
                _forget(self._of_broker, old.broker_id, old.topic)
            elif isinstance(old, ConsumeControl):
                _forget(self._consume_by_topic, old.topic, old.key)
                _forget(self._consume_by_group, old.group, old.key)
            if record is not None:
                of_kind[key] = record
                self._serial = max(self._serial, _serial(record))
            if isinstance(record, TopicDeploy):
                self._deployed.setdefault(record.topic, {})[record.key] = record
                self._of_broker.setdefault(record.broker_id, {})[record.topic] = record
            elif isinstance(record, ConsumeControl):
                self._consume_by_topic.setdefault(record.topic, {})[record.key] = record
                self._consume_by_group.setdefault(record.group, {})[record.key] = record

    def _one(self, kind: type[R], key: str) -> R | None:
        found = self._records.get(kind.kind, {}).get(key)
        assert found is None or isinstance(found, kind)
        return found

    def _all(self, kind: type[R]) -> Iterable[R]:
        for record in self._records.get(kind.kind, {}).values():
            assert isinstance(record, kind)
            yield record


def _forget(index: dict[K, dict[str, R]], name: K, key: str) -> None:
    """Remove a record from an index, and with the last one its name."""
    del index[name][key]
    if not index[name]:
        del index[name]


def _serial(record: CatalogRecord) -> int:
    audit = getattr(record, "audit", None)
    return audit.serial if audit is not None else 0
