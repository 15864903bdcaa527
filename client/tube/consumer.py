"""Consumption from TubeMQ as a member of a group, whose partitions the master assigns.

Heartbeats to brokers: one loop per broker at which this consumer has partitions.

The first one follows after half an interval. A partition that the broker does not assign to this
consumer is removed; all partitions in the heartbeat are if the broker refuses the tokens (415). If
the broker does not answer, they stay: it reports their state when it is back. (Java removes them,
and waits until a master assigns them again.)
"""

import asyncio
import logging
import weakref
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any, Self, Unpack, cast

from mq.client.errors import BadAnswer, ClientError, ConnectError, MQError, RequestTimeout
from mq.client.options import refuse, take
from mq.client.transport.tasks import Closing
from mq.client.tube.broker_calls import BrokerCalls
from mq.client.tube.errors import NotAuthenticated, TubeError
from mq.client.tube.master_link import ConsumerLink, GroupLink
from mq.client.tube.masters import Masters
from mq.client.tube.membership import Membership, Topics
from mq.client.tube.message import ConsumedOffset, TubeBatch, TubeMessage
from mq.client.tube.options import TubeConsumerKeywords, TubeConsumerOptions
from mq.client.tube.partitions import PartitionTable, RegisteredPartition
from mq.client.tube.reading import Reading
from mq.client.tube.rebalancing import PartitionTransfer, Rebalancing
from mq.client.tube.service import TubeService
from mq.protocol.tube.codes import Code
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


class _Loop:
    """An `async for` over messages. It is garbage collected when the loop is left: `break` is not
    reported otherwise.
    """

    __slots__ = ("__weakref__", "_next")

    def __init__(self, messages: AsyncIterator[TubeMessage]) -> None:
        self._next: Callable[[], Awaitable[TubeMessage]] = messages.__anext__

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[TubeMessage]:
        return self._next()


class _Delivered:
    """The messages of one reply that a loop was given."""

    __slots__ = ("batch", "is_finished", "loop")

    def __init__(self) -> None:
        self.batch: TubeBatch | None = None
        self.is_finished = False  # the last of them was given
        self.loop: Callable[[], _Loop | None]


class TubeReader:
    """The common part of both kinds of consumers: getting messages, confirming them, offsets."""

    kind = ""  # part of client ids

    def __init__(
        self,
        masters: str | Sequence[str],
        group: str,
        topics: Topics,
        options: TubeConsumerOptions | None = None,
        *,
        service: TubeService | None = None,
        **keywords: Unpack[TubeConsumerKeywords],
    ) -> None:
        """See the class. Raises ClientError for invalid arguments."""
        given = cast("dict[str, Any]", keywords)
        self._options = take(options or TubeConsumerOptions(), given)
        refuse(self, given)
        self._masters = Masters(masters)
        self._service = service or TubeService()
        self._owns_service = service is None
        self._member = Membership(self._service, group, topics, self._options)
        self._table = PartitionTable(lambda: self._reading.fill())
        self._calls = BrokerCalls(self._member)
        self._reading = Reading(self._member, self._calls, self._table, self._lost)
        self._heartbeats = BrokerHeartbeats(
            self._calls, self._table, self._options.heartbeat_interval, self._lost
        )
        self._handing = PartitionTransfer(
            self._member, self._calls, self._table, self._heartbeats.keep
        )
        self._link = self._make_link()
        self._index: int | None = None
        self._background: list[asyncio.Task[None]] = []
        self._starting: asyncio.Task[None] | None = None
        self._starters = 0  # callers that wait for it
        self._close_once = Closing()
        self._state = "new"
        self._given: dict[_Delivered, None] = {}  # what loops were given

    @abstractmethod
    def _make_link(self) -> ConsumerLink: ...

    @property
    def client_id(self) -> str:
        """The id of this consumer at masters and brokers; "" before it starts."""
        return self._member.client_id

    @property
    def counts(self) -> Mapping[str, int]:
        """Message counts: given, damaged (left out), unwanted (dropped by the client's filter)."""
        counts = self._reading.counts
        return {name: counts[name] for name in ("given", "damaged", "unwanted")}

    async def start(self) -> None:
        """Register at a master. Safe to call again while it runs.

        Raises the error of the last master: ConnectError, RequestTimeout, BadAnswer,
        GroupForbidden, GroupDiffers, or another TubeError; it may be called again then. Raises
        ClientError after a close.
        """
        if self._state == "closed":
            raise ClientError("the consumer was closed: create another one")
        if self._state == "running":
            return
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start())
        starting = self._starting
        self._starters += 1
        try:
            await asyncio.wait([starting])
        except asyncio.CancelledError:
            if self._starters == 1:  # no other caller waits for it
                starting.cancel()
                await asyncio.wait([starting])
            raise
        finally:
            self._starters -= 1
            if starting.done() and self._starting is starting:
                self._starting = None
        if starting.cancelled():
            raise ClientError("the consumer was closed before it had started")
        starting.result()

    #: The name in the other clients.
    open = start

    async def _start(self) -> None:
        if self._owns_service:
            await self._service.open()
        self._index = self._service.add(self)
        try:
            await self._service.names.watch(self._masters.hosts)
            member = self._member
            member.name(self._index, self._masters.current, member.group, self.kind)
            await self._link.register()
        except BaseException:
            self._service.remove(self._index)
            raise
        self._state = "running"
        create = asyncio.get_running_loop().create_task
        self._background += [create(work) for work in self._works()]

    def _works(self) -> list[Any]:
        return [self._link.run()]

    async def close(self) -> None:
        """Stop reading, give the partitions back, and leave the group. Safe to call again.

        Unconfirmed messages are redelivered, unless `rollback_unconfirmed` is off. Work in progress
        is waited for at most `close_wait` seconds, and so are the peers.
        """
        await self._close_once.run(self._close)

    async def _close(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        was_running = self._state == "running"
        self._state = "closed"
        code = Code.CLIENT_STOPPED if self._service.is_running else Code.SERVICE_STOPPED
        self._reading.close(code, "the consumer is closed")
        try:
            if was_running:
                await self._leave()
        finally:
            if self._index is not None:
                self._service.remove(self._index)
            if self._owns_service:
                await self._service.close()

    async def _leave(self) -> None:
        """Finish work in progress, then notify the brokers, then the master.

        In this order, as in Java: the next owner of a partition finds it free.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.close_wait):
                await self._settle()
                await self._reading.finish()
        await self._reading.abort()
        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        await self._heartbeats.close()
        try:
            async with asyncio.timeout(self._options.close_wait):
                await self._handing.give_all_back()
                await self._link.close()
        except TimeoutError:
            log.warning("%s: not all peers were notified before leaving", self.client_id)
        except MQError as error:
            log.warning("%s: cannot unregister at the master: %s", self.client_id, error)

    async def _settle(self) -> None:
        """Let background work end."""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: object, *exc: object) -> None:
        try:
            if kind is None:
                await self._settle_given(given for given in self._given if given.is_finished)
        finally:
            await self.close()

    async def get_message(self) -> TubeBatch:
        """Return the messages of one reply, of the partition whose turn it is.

        They must be confirmed, or the partition is not read further. Waits `ready_wait` seconds for
        a partition that is ready. A request without messages raises an error, as the original's
        GetMessage returns one; after all but a few codes (`retriable`) the caller may just repeat
        the call, above all after NothingToRead. `async for` does so. Raises TubeError,
        ConnectError, RequestTimeout, BadAnswer.
        """
        self._check_running()
        return await self._reading.get(self._options.ready_wait)

    async def confirm(self, batch: TubeBatch | str, *, consumed: bool = True) -> int:
        """Confirm messages, or a confirm context; without `consumed` they are redelivered.

        Returns the broker's offset after them; UNDEFINED if it returns none, or was not asked
        (`confirm_locally`). A cancellation of the caller does not stop it. Raises ConfirmTimeout if
        the messages can no longer be confirmed, and the errors of the request: then it is unknown
        whether they are redelivered.
        """
        self._check_running()
        context = batch if isinstance(batch, str) else batch.confirm_context
        return await self._reading.confirm(context, consumed)

    async def ask_offset(self, key: str) -> ConsumedOffset:
        """Query the broker of an owned partition for the group's offset and the partition's end.

        Messages that the broker has searched without a match count as passed. The partition is not
        read during the query. Raises TubeError: 404 for a partition that is not owned, 408 for one
        with unconfirmed messages; and the errors of the request.
        """
        self._check_running()
        return await self._reading.ask_offset(key)

    def current_offsets(self) -> dict[str, ConsumedOffset]:
        """Return this consumer's offset in each partition that it owns (GetCurConsumedInfo)."""
        return self._table.offsets()

    def __aiter__(self) -> AsyncIterator[TubeMessage]:
        """Iterate over messages until the consumer is closed. Several loops may run concurrently.

        The messages of a reply are confirmed when the next one after them is requested, or another
        loop starts after the last one, and when the consumer's `async with` block is left without
        an error at that point. If a loop is left in the middle of a reply, all its messages are
        redelivered, to the next loop. Retriable errors are not raised. Raises ClientError if the
        consumer is not started.
        """
        given = _Delivered()
        loop = _Loop(self._messages(given))
        given.loop = weakref.ref(loop)
        return loop

    async def _messages(self, given: _Delivered) -> AsyncIterator[TubeMessage]:
        self._check_running()
        await self._settle_given(left for left in self._given if left.loop() is None)
        while self._state == "running":
            try:
                batch = await self._reading.get(inf)
            except (ConnectError, RequestTimeout, BadAnswer) as error:
                log.warning("%s", error)
                continue
            except TubeError as error:
                if error.code in (Code.CLIENT_STOPPED, Code.SERVICE_STOPPED):
                    return
                if not error.retriable and error.code != Code.CERTIFICATE_FAILURE:
                    raise
                continue
            given.batch, given.is_finished = batch, False
            self._given[given] = None
            for message in batch.messages[:-1]:
                yield message
            given.is_finished = True
            yield batch.messages[-1]
            await self._settle_given((given,))

    async def _settle_given(self, loops: Iterable[_Delivered]) -> None:
        """Confirm replies whose last message was given to a loop; the others are redelivered."""
        for given in list(loops):
            self._given.pop(given, None)
            batch, given.batch = given.batch, None
            if batch is None or self._state != "running":
                continue
            try:
                await self._reading.confirm(batch.confirm_context, given.is_finished)
            except MQError as error:
                log.warning("%s: messages may be redelivered: %s", batch.partition_key, error)

    def _lost(self) -> None:
        """Handle the loss of a partition that the master did not take away."""
        self._link.report_soon()

    def _check_running(self) -> None:
        if self._state == "new":
            raise ClientError("the consumer is not started: use `async with`")

    def _expire(self) -> None:
        """Redeliver messages that were given too long ago."""
        oldest = asyncio.get_running_loop().time() - self._options.confirm_wait
        for held in self._table.expire(oldest):
            wait = self._options.confirm_wait
            log.warning("%s: not confirmed within %g s; redelivering messages", held.key, wait)


class TubeConsumer(TubeReader):
    """A member of a group to which the master assigns partitions. An async context manager.

        async with TubeConsumer("10.0.0.1:8715", "reports", {"orders": ["paid"]}) as consumer:
            async for message in consumer:
                ...

    `masters` are "host:port", several as a list or separated by commas. `topics` maps each topic to
    the wanted types of messages, or None for all; a list of topics or a single one is accepted,
    too. `options`, and keywords that name its fields, configure the consumer; `service` is shared
    with other clients.

    With `async for` messages are confirmed when the next ones are requested. Otherwise:

        batch = await consumer.get_message()
        ...
        await consumer.confirm(batch)

    Raises ClientError for invalid names, addresses and options.
    """

    _rebalancing: Rebalancing

    def _make_link(self) -> ConsumerLink:
        self._rebalancing = Rebalancing(
            self._member, self._table, self._handing, lambda: link.connected()
        )
        link = GroupLink(self._member, self._masters, self._table, self._rebalancing, self._expire)
        return link

    def _works(self) -> list[Any]:
        return [*super()._works(), self._rebalancing.run()]

    async def _settle(self) -> None:
        await self._rebalancing.idle()
