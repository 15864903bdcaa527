"""Heartbeats to brokers: one loop per broker at which this consumer has partitions.

The first one follows after half an interval. A partition that the broker does not assign to this
consumer is removed; all partitions in the heartbeat are if the broker refuses the tokens (415). If
the broker does not answer, they stay: it reports their state when it is back. (Java removes them,
and waits until a master assigns them again.)
"""

import asyncio
import logging
from collections.abc import Callable

from mq.client.errors import MQError
from mq.client.tube.broker_calls import BrokerCalls
from mq.client.tube.errors import NotAuthenticated
from mq.client.tube.partitions import PartitionTable, RegisteredPartition
from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.strings import BrokerInfo, PartitionFailure

log = logging.getLogger(__name__)


class BrokerHeartbeats:
    """Keeps the partitions of a table alive at their brokers."""

    def __init__(
        self,
        calls: BrokerCalls,
        table: PartitionTable,
        interval: float,
        on_lost: Callable[[], None],
    ) -> None:
        self._calls = calls
        self._table = table
        self._interval = interval
        self._on_lost = on_lost
        self._loops: dict[BrokerInfo, asyncio.Task[None]] = {}

    def keep(self, broker: BrokerInfo) -> None:
        """Send heartbeats to a broker while this consumer has partitions there."""
        if broker not in self._loops:
            task = asyncio.get_running_loop().create_task(self._run(broker))
            self._loops[broker] = task

    async def close(self) -> None:
        tasks = list(self._loops.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self, broker: BrokerInfo) -> None:
        try:
            await asyncio.sleep(self._interval / 2)
            while held := self._table.of_broker(broker):
                try:
                    await self._beat(broker, held)
                except Exception:
                    log.exception("heartbeat to %s failed", broker)
                await asyncio.sleep(self._interval)
        finally:
            self._loops.pop(broker, None)

    async def _beat(self, broker: BrokerInfo, held: list[RegisteredPartition]) -> None:
        try:
            answer = await self._calls.heartbeat(broker, held)
        except NotAuthenticated as error:
            self._lose(held, str(error))
            return
        except MQError as error:
            log.warning("heartbeat to %s failed: %s", broker, error)
            return
        if not answer.hasPartFailure:
            return
        by_key = {one.key: one for one in held}
        for text in answer.failureInfo:
            try:
                failure = PartitionFailure.parse(text)
            except MalformedText as error:
                log.warning("%s sent an invalid partition failure: %s", broker, error)
                continue
            lost = by_key.get(str(failure.partition.key))
            if lost is not None:
                self._lose([lost], f"{failure.code}")

    def _lose(self, held: list[RegisteredPartition], reason: str) -> None:
        for one in held:
            if self._table.get(one.key) is one:  # and was not removed and added again meanwhile
                log.warning("%s was lost: %s", one.key, reason)
                self._table.remove(one.key)
        self._on_lost()
