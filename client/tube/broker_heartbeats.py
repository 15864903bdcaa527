"""Heartbeats to brokers: one loop per broker that has partitions of ours.

The first comes after half an interval. A partition that the broker does not have as ours leaves;
all do that were sent if it does not take our tokens (415). If it does not answer, they stay: the
broker says what became of them when it is back. (Java lets them go, and waits until a master gives
them anew.)
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
        """See to a broker as long as it has partitions of ours."""
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
                    log.exception("the heartbeat to %s failed", broker)
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
            log.warning("the heartbeat to %s failed: %s", broker, error)
            return
        if not answer.hasPartFailure:
            return
        by_key = {one.key: one for one in held}
        for text in answer.failureInfo:
            try:
                failure = PartitionFailure.parse(text)
            except MalformedText as error:
                log.warning("%s said of a partition what cannot be read: %s", broker, error)
                continue
            lost = by_key.get(str(failure.partition.key))
            if lost is not None:
                self._lose([lost], f"{failure.code}")

    def _lose(self, held: list[RegisteredPartition], reason: str) -> None:
        for one in held:
            if self._table.get(one.key) is one:  # and has not left and come back meanwhile
                log.warning("%s is not ours any more: %s", one.key, reason)
                self._table.remove(one.key)
        self._on_lost()
