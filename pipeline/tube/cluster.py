"""Access of a read's driver to a TubeMQ cluster: partitions and their offsets.

Only the holder of a partition can query its offsets. The driver holds each one for the duration of
the query, while no task of its query does, and does not change the group's offsets.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from mq.client.errors import BadAnswer, ConnectError, MQError, RequestTimeout
from mq.client.tube.balance_consumer import TubeBalanceConsumer
from mq.client.tube.errors import (
    GroupDiffers,
    GroupForbidden,
    NotAuthenticated,
    StandbyMaster,
    TubeError,
)
from mq.pipeline.cluster import Bounds
from mq.pipeline.declared import wrong
from mq.pipeline.errors import BrokerDown, ClusterAway, KeyRefused, OptionError, Unknown
from mq.pipeline.offsets import Queue
from mq.pipeline.tube.background import Background
from mq.pipeline.tube.offsets import TubePartition
from mq.pipeline.tube.options import TubeReadOptions
from mq.pipeline.tube.partition_group import hold, member
from mq.protocol.tube.codes import UNDEFINED, Code

T = TypeVar("T")

log = logging.getLogger(__name__)

# Answers are reused for this time: Spark asks a waiting query a hundred times a second for the ends
# of its topics.
_FRESH_SECONDS = 0.2

# Another client of the group has other topics or filters, possibly this query before a restart with
# others: Spark kills its driver's process, and masters forget it after half a minute.
_LEAVING = (Code.CLIENT_INCONSISTENT_TOPICSET, Code.CLIENT_INCONSISTENT_FILTERSET)
_LEAVING_PAUSE = 1.0  # seconds

_SILENT = (ConnectError, RequestTimeout, BadAnswer)


class TubeCluster:
    """Queries a cluster; a context manager, or closed by `close`. It reconnects after a failure."""

    def __init__(self, options: TubeReadOptions) -> None:
        self._options = options
        self._background: Background | None = None
        self._parts = AsyncExitStack()
        self._consumer: TubeBalanceConsumer | None = None
        self._answered = False
        self._begins: dict[str, int] = {}
        self._bounds: dict[Queue, Bounds] = {}
        self._asked: float | None = None
        # partitions whose broker does not answer, which was logged
        self._left_out: set[str] = set()

    def __enter__(self) -> "TubeCluster":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group. Safe to call again."""
        if self._background is not None:
            background, self._background = self._background, None
            try:
                background.run(self._leave())
            finally:
                background.close()

    def bounds(self) -> dict[Queue, Bounds]:
        """Return the readable partitions of the topics, each with its bounds in the index.

        After the retries of the options it raises OptionError for masters that do not answer and
        for what they refuse, and BrokerDown for a broker that does not answer; if data loss is
        allowed, its partitions are left out instead. Raises PartitionOccupied if a partition is not
        free in time.
        """
        if self._asked is None or time.monotonic() - self._asked >= _FRESH_SECONDS:
            self._bounds = self._with_retries(self._ask)
            self._asked = time.monotonic()
        return dict(self._bounds)

    def place(self, offsets: Mapping[Queue, int]) -> None:
        """Set the group's offsets to the start of a query. Raises what `bounds` raises."""
        keys = {TubePartition(*queue).key: at for queue, at in offsets.items()}
        self._with_retries(
            lambda last: self._each(keys, lambda key: self._place(key, keys[key]), last)
        )

    def _with_retries(self, ask: Callable[[bool], Coroutine[Any, Any, T]]) -> T:
        pause = self._options.retry_pause_ms / 1000
        tries_left = self._options.retries
        deadline = time.monotonic() + self._options.occupied_ms / 1000
        while True:
            try:
                if self._background is None:
                    self._background = Background()
                return self._background.run(ask(not tries_left))
            except (*_SILENT, TubeError) as error:
                refused = self._refused(error)
                self.close()
                if getattr(error, "code", None) in _LEAVING and time.monotonic() < deadline:
                    log.warning("waiting until members of an earlier query have left: %s", error)
                    time.sleep(_LEAVING_PAUSE)
                    continue
                # If masters never answered, the address is assumed to be wrong: no retry.
                if refused is not None and not (tries_left and self._answered):
                    raise refused from None
                if not tries_left:
                    raise
                log.warning("TubeMQ: retrying in %g s: %s", pause, error)
                time.sleep(pause)
                pause *= 2
                tries_left -= 1

    async def _ask(self, last: bool) -> dict[Queue, Bounds]:
        consumer = await self._joined()
        known = await consumer.partitions()
        keys = sorted(key for key, readable in known.items() if readable)
        there = {TubePartition.parse(key).topic for key in keys}
        absent = sorted(set(self._options.topics) - there)
        if absent and not last:
            raise TubeError(Code.NOT_FOUND, f"no broker has topic {absent[0]} to be read")
        if absent and (self._options.fail_on_data_loss or not there):
            raise Unknown("topic", f"no broker has {absent[0]} to be read", "orders,refunds")
        found = await self._each(keys, self._bounds_of, last)
        return {TubePartition.parse(key): at for key, at in found.items()}

    async def _joined(self) -> TubeBalanceConsumer:
        if self._consumer is None:
            parts = AsyncExitStack()
            self._consumer = await parts.enter_async_context(member(self._options))
            self._parts = parts
            self._answered = True
        return self._consumer

    async def _leave(self) -> None:
        self._consumer = None
        await self._parts.aclose()

    async def _each(
        self, keys: Iterable[str], work: Callable[[str], Coroutine[Any, Any, T]], last: bool
    ) -> dict[str, T]:
        """Run a function for all partitions concurrently. Raises the error of any of them.

        With `last` it raises BrokerDown for brokers that do not answer, or leaves them out.
        """
        keys = list(keys)
        results = await asyncio.gather(*map(work, keys), return_exceptions=True)
        found: dict[str, T] = {}
        for key, result in zip(keys, results, strict=True):
            if not isinstance(result, BaseException):
                found[key] = result
                self._left_out.discard(key)
            elif not last or not _is_silence(result):
                raise result
            elif self._options.fail_on_data_loss:
                partition = TubePartition.parse(key)
                raise BrokerDown(partition.broker_name, partition.topic, str(result)) from None
            elif key not in self._left_out:
                self._left_out.add(key)
                log.warning("skipping partition %s: %s", key, result)
        return found

    async def _bounds_of(self, key: str) -> Bounds:
        """The oldest offset is queried once: it is for queries that begin there."""
        consumer = await self._joined()
        try:
            now = await hold(consumer, key, self._options)
            if now.most == UNDEFINED:
                raise BadAnswer(key, "the broker did not return the end of the partition")
            if key not in self._begins:
                await consumer.disconnect(key)
                self._begins[key] = (await hold(consumer, key, self._options, 0)).offset
                await consumer.disconnect(key)
                await hold(consumer, key, self._options, now.offset)
        finally:
            await consumer.disconnect(key)
        return Bounds(min(self._begins[key], now.most), now.most)

    async def _place(self, key: str, offset: int) -> None:
        consumer = await self._joined()
        await hold(consumer, key, self._options, offset)
        await consumer.disconnect(key)

    def _refused(self, error: MQError) -> OptionError | None:
        """Return the error of the option that caused a master's refusal or silence."""
        kind = TubeReadOptions
        if isinstance(error, NotAuthenticated):
            return wrong(kind, "aclFile", str(error), KeyRefused)
        if isinstance(error, GroupForbidden | GroupDiffers):
            reason = (
                f"{error}; a query needs a group of its own, which no consumer uses and no other "
                "query that runs at the same time"
            )
            return wrong(kind, "group", reason)
        if isinstance(error, TubeError) and error.code == Code.TOPIC_NOT_DEPLOYED:
            return wrong(kind, "topic", str(error), Unknown)
        if self._consumer is None and isinstance(error, (*_SILENT, StandbyMaster)):
            return wrong(kind, "masters", str(error), ClusterAway)
        return None


def _is_silence(error: BaseException) -> bool:
    return isinstance(error, _SILENT) or (isinstance(error, TubeError) and error.retriable)
