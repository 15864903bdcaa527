"""Consumers that are members of a group: deliver what `Reader` pulled, and send failures back."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack, cast

from mq.client.consumer.member import Member
from mq.client.consumer.options import ConsumeKeywords, ConsumeOptions
from mq.client.consumer.push.concurrent import ConcurrentConsumption
from mq.client.consumer.push.listener import make_call
from mq.client.consumer.push.ordered import OrderedConsumption
from mq.client.consumer.push.workers import Workers
from mq.client.consumer.requests import ConsumerRequests
from mq.client.consumer.send_back import send_back, send_dead_letter
from mq.client.errors import ClientError, ConnectError, RequestTimeout, RouteNotFound
from mq.client.hooks import ConsumeOutcome
from mq.client.offsets.local_offsets import LocalOffsetStore
from mq.client.offsets.offset_store import Offsets, OffsetStore
from mq.client.options import ClientOptions, refuse, take
from mq.client.producer.producer import trace_dispatcher
from mq.client.pull.consume_hooks import consume_hooks
from mq.client.pull.process_queue import ProcessQueue
from mq.client.pull.pulling import PullSettings
from mq.client.reader.reader import Reader
from mq.client.reader.settings import ReaderSettings
from mq.client.snode.sessions import session_for
from mq.client.trace.hooks import ConsumeTrace
from mq.client.transport.session import Session
from mq.client.transport.tasks import Opening
from mq.protocol.bodies import ConsumeType, MessageQueue
from mq.protocol.message import StoredMessage

log = logging.getLogger(__name__)

_BROADCASTING_INSTANCE = "DEFAULT"  # must survive a restart, as in Java


class Consumer:
    """A member of a consumer group. An async context manager.

    The members of a group divide the queues of a topic among them; Java's consumers can be members
    of the same group. Messages are either passed to `listener`, of which `concurrency` calls run at
    a time, or iterated:

        async with Consumer("127.0.0.1:9876", "billing", {"Orders": "paid"}) as consumer:
            async for message in consumer:
                ...

    A loop has finished a message when it asks for the next one. If a loop is left early, its last
    message is delivered to the next loop. Messages are never lost, but they may be redelivered
    after a crash, or when a queue passes from one member to another.

    With `broadcasting` every member gets every message. Offsets are kept in a file, and messages
    that the listener failed to consume are not redelivered.
    """

    consume_type: ClassVar[ConsumeType] = ConsumeType.CONSUME_PASSIVELY

    def __init__(
        self,
        session: Session | str | Sequence[str],
        group: str,
        subscriptions: Mapping[str, str],
        options: ConsumeOptions | None = None,
        *,
        client: ClientOptions | None = None,
        **keywords: Unpack[ConsumeKeywords],
    ) -> None:
        """`session` is the addresses of name servers, or an open session to share.

        `subscriptions` are expressions by topic: "*", tags as "a || b", or one of
        `expression_type`. `options` and `client` configure the consumer, and keywords that name
        their fields override them; `client` defaults to the options of a shared session.
        Raises IllegalName for group or topic, ValueError for an expression that cannot be parsed,
        ClientError for an invalid address, and for `ordered` without a listener or with two.
        """
        given = cast("dict[str, Any]", keywords)
        options = take(options or ConsumeOptions(), given)
        self._check(options)
        self.call = make_call(
            *(options.listener, options.batch_listener, options.batch),
            *(options.ordered, options.concurrency),
        )
        if options.broadcasting and not isinstance(session, Session):
            client = take(client or ClientOptions(), given)
            client = replace(client, instance=client.instance or _BROADCASTING_INSTANCE)
        self.concurrency = options.concurrency
        self.ordered = options.ordered
        self.broadcasting = options.broadcasting
        self.session, client = session_for(session, client, given)
        refuse(self, given)
        self._member = Member(
            *(self.session, group, subscriptions, options, client, self.consume_type),
            owns_session=self.session is not session,
            retries=not options.broadcasting,
            broadcasting=options.broadcasting,
        )
        self.namespace = self._member.namespace
        self.group = self._member.group
        self.subscriptions = self._member.subscriptions
        self._max_reconsume_times = options.tries
        self.trace = self._make_trace(options.trace) if options.trace else None
        hooks = client.hooks if self.trace is None else [*client.hooks, self.trace]
        self._hooks = consume_hooks(hooks, self.group)
        self.reader = self._make_reader(options)
        self._requests = self._make_requests()
        self._consumption = self._make_consumption(options)
        # by id() of a message that a loop has not finished
        self._in_progress: dict[int, ProcessQueue] = {}
        self._workers = Workers(self.session, self.group, self._work, self._fail)
        self._opening = Opening()
        self._failure: BaseException | None = None
        self._closing = False
        self._closed = asyncio.Event()

    def _check(self, options: ConsumeOptions) -> None:
        """Refuse options that this kind of consumer does not support. Raises ClientError."""

    def _make_requests(self) -> ConsumerRequests:
        return ConsumerRequests(
            self._member,
            self.reader,
            self.call,
            ordered=self.ordered,
            concurrency=self.concurrency,
        )

    def _make_trace(self, topic: bool | str) -> ConsumeTrace:
        dispatcher = trace_dispatcher(self.session, self.group, "CONSUME", topic)
        host = self.session.client_id.partition("@")[0]
        return ConsumeTrace(dispatcher, self.group, host, self.namespace)

    def _make_reader(self, options: ConsumeOptions) -> Reader:
        return self._member.make_reader(
            options.offsets or self._own_offsets(options.offset_directory),
            self._reader_settings(options),
            self._hooks,
            on_ready=self._enqueue,
            on_failure=self._fail,
        )

    def _reader_settings(self, options: ConsumeOptions) -> ReaderSettings:
        return ReaderSettings(
            ordered=options.ordered,
            broadcasting=options.broadcasting,
            strategy=options.strategy,
            commit_interval=self._member.commit_interval,
            limits=options.flow_limits,
            pushed=self.consume_type is ConsumeType.CONSUME_PUSH,
            pulls=PullSettings(
                batch=options.pull_batch,
                commits=not options.broadcasting,
                namespace=self.namespace,
            ),
        )

    def _make_consumption(
        self, options: ConsumeOptions
    ) -> ConcurrentConsumption | OrderedConsumption:
        if options.ordered:
            return OrderedConsumption(
                self.group,
                self.reader.counts,
                self._give_up,
                locks=not options.broadcasting,
                batch=options.batch,
                suspension=options.suspension,
                max_reconsume_times=options.tries,
                hooks=self._hooks,
            )
        return ConcurrentConsumption(
            self.group,
            self.reader.counts,
            None if options.broadcasting else self._send_back,
            batch=options.batch,
            timeout=options.consume_timeout,
            hooks=self._hooks,
        )

    def _own_offsets(self, directory: str | Path) -> Offsets:
        if self.broadcasting:
            return LocalOffsetStore(directory, self.session.client_id, self.group)
        return OffsetStore(self.session, self.group)

    async def open(self) -> None:
        """Join the group and start to pull. Safe to call again, unless the consumer was closed.

        The first messages of a queue arrive once the other members have noticed this one. A topic
        that does not exist yet, or that no name server knows at the moment, is consumed as soon as
        it has a route. Raises ClientError for a consumer that was closed.
        """
        await self._opening.closing.settle()
        if self._closing:  # it would take queues without delivering their messages
            raise ClientError("a closed consumer cannot be opened again: create a new one")
        await self._opening.open(self._begin)

    async def _begin(self) -> None:
        await self._member.open()
        self._requests.register()
        await asyncio.gather(*map(self._find_topic, self.subscriptions.chosen))
        if self.trace is not None:
            await self.trace.dispatcher.open()
        await self._member.join()
        self.reader.start()
        if self.call is None:
            return
        self._workers.start(self.concurrency)
        if isinstance(self._consumption, ConcurrentConsumption):
            self._member.keep(self._consumption.expire())

    async def _find_topic(self, topic: str) -> None:
        try:
            await self.session.route(topic)
        except (RouteNotFound, ConnectError, RequestTimeout) as error:
            log.warning("group %s waits for a topic: %s", self.group, error)

    async def close(self, *, grace: float = 10.0) -> None:
        """Stop pulling, give listeners `grace` seconds to finish, commit, and leave the group.

        It completes even if the caller is cancelled. If an async listener calls it, it starts to
        close and returns at once, so that the listener can finish its message.
        """
        if self._workers.includes_current():
            self._opening.closing.begin(lambda: self._close(grace))
        else:
            await self._opening.closing.run(lambda: self._close(grace))

    async def _close(self, grace: float) -> None:
        if self._closed.is_set():
            return
        self._closing = True
        self._workers.close()
        await self._opening.close(lambda: self._end(grace))

    async def _end(self, grace: float) -> None:
        try:
            await self.reader.stop()
            self._consumption.close()
            await self._workers.end(grace)
            if self.call is not None:
                self.call.close()
            self._member.cancel()
            await self.reader.release()
            if self.trace is not None:
                await self.trace.dispatcher.close()
            # Even if `open` did not complete: brokers may have received a heartbeat.
            await self._member.leave()
        finally:
            self._requests.leave()
            await self._member.close()
            self._closed.set()

    async def wait_closed(self) -> None:
        """Wait until the consumer is closed; raise the error that ended it, if any."""
        await self._closed.wait()
        if self._failure is not None:
            raise self._failure

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that this member owns now, including the group's retry queue."""
        return sorted(self.reader.held)

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[StoredMessage]:
        """Yield messages until the consumer is closed. Several loops may run concurrently."""
        if self.call is not None or not isinstance(self._consumption, ConcurrentConsumption):
            raise ClientError("this consumer gives its messages to a listener")
        while (ready := await self._consumption.next()) is not None:
            held, (message,) = ready
            self._in_progress[id(message)] = held
            began = None if self._hooks is None else self._hooks.begin(held.queue, [message])
            outcome = ConsumeOutcome.FAILED
            try:
                yield message
                # Reached only when the loop asks for the next message, not when it is left.
                if held.holds(message):
                    outcome = ConsumeOutcome.SUCCESS
                    held.finish(message)
                    self.reader.counts[held.queue.topic].consumed += 1
            finally:
                self._in_progress.pop(id(message), None)
                if self._hooks is not None and began is not None:
                    self._hooks.end(began, outcome)
                if held.holds(message):  # the next loop gets it
                    self._consumption.enqueue(held, [message])
        if self._failure is not None:
            raise self._failure

    async def retry_later(self, message: StoredMessage, delay_level: int = 0) -> None:
        """Send back a message that the loop is processing; the group receives it again later.

        A `delay_level` of 0 lets the broker choose (10 s at first, longer each time), 1 to 18 are
        the broker's levels, and -1 makes the message a dead letter at once. Raises ClientError for
        a message that no loop is processing and with `broadcasting`, and whatever a send raises.
        """
        held = self._in_progress.get(id(message))
        if held is None:
            raise ClientError("only a message that a loop is processing can be sent back")
        if self.broadcasting:
            raise ClientError("messages cannot be sent back with broadcasting")
        await self._send_back(held, message, delay_level)
        held.finish(message)
        self.reader.counts[held.queue.topic].failed += 1

    def pause(self) -> None:
        """Stop pulling. Messages already pulled are still consumed."""
        self.reader.pause(True)

    def resume(self) -> None:
        """Pull again after `pause`."""
        self.reader.pause(False)

    async def commit(self) -> None:
        """Commit the offset of each queue now. Raises the first error of any broker."""
        for error in await self.reader.commit(again=True):
            raise error

    def _enqueue(self, held: ProcessQueue, messages: list[StoredMessage]) -> None:
        self._consumption.enqueue(held, messages)

    async def _send_back(
        self, held: ProcessQueue, message: StoredMessage, delay_level: int
    ) -> None:
        await send_back(
            self.session,
            self.group,
            held.queue,
            message,
            delay_level=delay_level,
            max_reconsume_times=self._max_reconsume_times,
            namespace=self.namespace,
        )

    async def _give_up(self, message: StoredMessage) -> None:
        await send_dead_letter(
            self.session, self.group, message, self._max_reconsume_times, self.namespace
        )

    async def _work(self) -> None:
        if self.call is not None:
            await self._consumption.work(self.call)

    def _fail(self, error: BaseException) -> None:
        """Close after an error that must end the program, and pass it to `wait_closed`."""
        log.error("group %s: the consumer stops: %r", self.group, error)
        if self._failure is None and not self._closing:
            self._failure = error
            self._opening.closing.begin(lambda: self._close(0.0))
