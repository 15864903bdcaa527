"""Polls for messages, as a member of a group or from queues that the caller assigns."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Self, Unpack, cast

from mq.client.admin.offsets import OffsetAdmin
from mq.client.consumer.member import Member
from mq.client.consumer.options import PollKeywords, PollOptions
from mq.client.consumer.requests import MemberRequests
from mq.client.errors import ClientError, MQError
from mq.client.hooks import ConsumeContext, ConsumeOutcome
from mq.client.namespace import with_namespace
from mq.client.offsets.offset_store import Offsets, OffsetStore
from mq.client.options import ClientOptions, refuse, take
from mq.client.pull.consume_hooks import consume_hooks
from mq.client.pull.process_queue import FlowLimits, ProcessQueue
from mq.client.pull.pulling import PullSettings
from mq.client.reader.settings import ReaderSettings
from mq.client.routing.routes import read_queues
from mq.client.snode.sessions import session_for
from mq.client.transport.session import Session
from mq.client.transport.tasks import Opening, is_meant
from mq.protocol.bodies import ConsumeType, MessageQueue
from mq.protocol.message import StoredMessage

log = logging.getLogger(__name__)

TOPIC_CHECK_SECONDS = 30.0  # DefaultLitePullConsumer.topicMetadataCheckIntervalMillis

#: Called when the queues of a topic have changed: `(topic, queues)`.
TopicListener = Callable[[str, list[MessageQueue]], Any]


class TopicWatch:
    """The topics that have listeners."""

    def __init__(self, group: str, queues: Callable[[str], Awaitable[list[MessageQueue]]]) -> None:
        """`queues` returns the current queues of a topic; `group` is for the log."""
        self._group = group
        self._queues = queues
        self._watched: dict[str, tuple[list[MessageQueue], list[TopicListener]]] = {}

    async def add(self, topic: str, listener: TopicListener) -> None:
        """Add a listener for changes from now on. Raises what finding the queues raises."""
        queues = await self._queues(topic)
        _, listeners = self._watched.setdefault(topic, (queues, []))
        listeners.append(listener)

    async def run(self) -> None:
        """Check periodically until cancelled."""
        while True:
            await asyncio.sleep(TOPIC_CHECK_SECONDS)
            for topic, (before, listeners) in list(self._watched.items()):
                try:
                    now = await self._queues(topic)
                except MQError as error:
                    log.warning(
                        "group %s: cannot check the queues of %s: %s", self._group, topic, error
                    )
                    continue
                if now != before:
                    self._watched[topic] = now, listeners
                    for listener in listeners:
                        try:
                            listener(topic, now)
                        # user code; other listeners must still be called
                        except BaseException as error:
                            if is_meant(error):
                                raise
                            log.exception(
                                "group %s: a listener of topic %s failed", self._group, topic
                            )


class LitePullConsumer:
    """Polls for messages (DefaultLitePullConsumer). An async context manager.

    With subscriptions it is a member of its group, which divides the queues among its members:

        async with LitePullConsumer("127.0.0.1:9876", "reports", {"Orders": "*"}) as consumer:
            for message in await consumer.poll(timeout=5):
                ...

    Without subscriptions it reads the queues passed to `assign`. Messages returned by `poll` count
    as consumed at the next `poll`, at `commit`, and when the block is left without an error. With
    `auto_commit` offsets are committed at each interval (`Intervals.offsets`, 5 seconds by default)
    and at the end; otherwise only by `commit`.
    """

    def __init__(
        self,
        session: Session | str | Sequence[str],
        group: str,
        subscriptions: Mapping[str, str] | None = None,
        options: PollOptions | None = None,
        *,
        client: ClientOptions | None = None,
        **keywords: Unpack[PollKeywords],
    ) -> None:
        """Create a consumer.

        Args:
            session: the addresses of name servers, or an open session to share.
            group: the consumer group.
            subscriptions: expressions by topic: "*", tags as "a || b", or one of `expression_type`.
            options, client: configure the consumer; keywords that name their fields override them.
                `client` defaults to the options of a shared session.

        Raises:
            IllegalName: the name of the group or of a topic is not allowed.
            ValueError: an expression cannot be parsed.
            ClientError: an address is invalid.
        """
        given = cast("dict[str, Any]", keywords)
        options = take(options or PollOptions(), given)
        self.session, client = session_for(session, client, given)
        refuse(self, given)
        self._member = Member(
            *(self.session, group, subscriptions or {}, options, client),
            ConsumeType.CONSUME_ACTIVELY,
            owns_session=self.session is not session,
            retries=False,
        )
        self.namespace = self._member.namespace
        self.group = self._member.group
        self.subscriptions = self._member.subscriptions
        self._auto_commit = options.auto_commit
        self._assigns = not self.subscriptions.chosen
        self._hooks = consume_hooks(client.hooks, self.group)
        self.offsets: Offsets = options.offsets or OffsetStore(self.session, self.group)
        self.reader = self._member.make_reader(
            self.offsets,
            self._reader_settings(options),
            self._hooks,
            on_ready=self._enqueue,
            on_failure=self._fail,
        )
        self._requests = MemberRequests(self._member, self.reader)
        self._admin = OffsetAdmin(self.session)
        self._ready: deque[tuple[ProcessQueue, list[StoredMessage]]] = deque()
        self._news = asyncio.Event()
        self._watch = TopicWatch(self.group, self.queues)
        self._opening = Opening()
        self._open = False
        self._failure: BaseException | None = None
        # The messages that `poll` returned last; the caller processes them until the next poll.
        self._returned: tuple[ProcessQueue, list[StoredMessage]] | None = None
        # the hooks' context of these messages
        self._began: tuple[ConsumeContext, float] | None = None

    def _reader_settings(self, options: PollOptions) -> ReaderSettings:
        return ReaderSettings(
            commits=options.auto_commit,
            strategy=options.strategy,
            commit_interval=self._member.commit_interval,
            limits=options.limits or FlowLimits(),
            pulls=PullSettings(
                batch=options.pull_batch, commits=False, lite=True, namespace=self.namespace
            ),
        )

    async def open(self) -> None:
        """Start to pull; waits first for a close that is running. Safe to call again.

        Raises RouteNotFound for a topic that does not exist.
        """
        await self._opening.open(self._begin)

    async def _begin(self) -> None:
        await self._member.open()
        self._open = True
        self._requests.register()
        for topic in self.subscriptions.chosen:
            await self.session.route(topic)
        await self._member.join()
        self._member.keep(self._watch.run())
        self.reader.start(rebalance=not self._assigns)

    async def close(self) -> None:
        """Stop pulling, commit with `auto_commit`, and leave the group. Safe to call again.

        The messages that `poll` returned last are not committed; call `commit` first if they are
        consumed.
        """
        await self._opening.closing.run(lambda: self._opening.close(self._end))

    async def _end(self) -> None:
        try:
            if self._open:
                self._open = False
                self._news.set()
                self._end_hooks(ConsumeOutcome.FAILED)
                self._member.cancel()
                await self.reader.stop()
                await self.reader.release()
                await self._member.leave()
        finally:
            self._requests.leave()
            await self._member.close()

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that this consumer reads now."""
        return sorted(self.reader.held)

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: object, *exc: object) -> None:
        if kind is None and self._auto_commit:
            self._finish_returned()
        await self.close()

    async def poll(self, timeout: float = 5.0) -> list[StoredMessage]:
        """Return messages of one queue, or [] if none arrive within `timeout` seconds.

        Raises ClientError if the consumer is not open, and the error that ended its pulling.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        self._finish_returned()
        while True:
            if self._failure is not None:
                raise self._failure
            if not self._open:
                raise ClientError("the consumer is not open: use `async with`")
            messages = self._take()
            if messages:
                return messages
            self._news.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                return []

    def _take(self) -> list[StoredMessage]:
        """Return the first available messages of a queue that is not paused."""
        paused: list[tuple[ProcessQueue, list[StoredMessage]]] = []
        try:
            while self._ready:
                held, messages = self._ready.popleft()
                # also after a paused queue, or they would stay until it is resumed
                if held.dropped:
                    continue
                if held.paused:
                    paused.append((held, messages))
                    continue
                self._returned = held, messages
                if self._hooks is not None:
                    self._began = self._hooks.begin(held.queue, messages)
                self.reader.counts[held.queue.topic].consumed += len(messages)
                return messages
            return []
        finally:
            self._ready.extendleft(reversed(paused))

    def _finish_returned(self) -> None:
        if self._returned is not None:
            held, messages = self._returned
            self._returned = None
            for message in messages:
                held.finish(message)
            self._end_hooks(ConsumeOutcome.SUCCESS)

    def _end_hooks(self, outcome: ConsumeOutcome) -> None:
        if self._hooks is not None and self._began is not None:
            began, self._began = self._began, None
            self._hooks.end(began, outcome)

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues from now on.

        A queue whose offset is not available now is read as soon as it is. Raises ClientError for a
        consumer with subscriptions, and RouteNotFound for a topic that does not exist.
        """
        if not self._assigns:
            raise ClientError("the group assigns the queues of a consumer with subscriptions")
        wanted = set(queues)
        for topic in {queue.topic for queue in wanted}:
            await self.session.route(topic)
        await self._member.heartbeats.beat_new()
        await self.reader.assign(wanted)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of `topic`, in order. Raises RouteNotFound."""
        topic = with_namespace(self.namespace, topic)
        return read_queues(topic, await self.session.route(topic))

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at `offset` of a queue, dropping its pulled messages.

        Raises ClientError for a queue that is not assigned or an offset outside it, and the errors
        of the request to its broker.
        """
        least, most = await self._min_offset(queue), await self._max_offset(queue)
        if not least <= offset <= most:
            raise ClientError(f"offset {offset} is not in {queue}, which has {least} to {most}")
        await self.reader.seek(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the oldest retained message. Raises what `seek` raises."""
        await self.reader.seek(queue, await self._min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue at the end of the queue, with future messages. Raises what `seek` raises."""
        await self.reader.seek(queue, await self._max_offset(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling these queues and returning their messages from `poll`."""
        self._set_paused(queues, True)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Resume paused queues."""
        self._set_paused(queues, False)

    def _set_paused(self, queues: Iterable[MessageQueue], paused: bool) -> None:
        for queue in queues:
            self.reader.pause_queue(queue, paused)
        self._news.set()

    async def commit(self) -> None:
        """Commit everything that `poll` has returned. Raises the first error of any broker."""
        self._finish_returned()
        for error in await self.reader.commit(again=True):
            raise error

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of the group in `queue`; None if there is none."""
        return await self.offsets.committed(queue)

    async def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """Return the offset of the first message of `queue` stored at `timestamp` (ms) or later."""
        address = await self._master(queue)
        return await self._admin.search_offset(address, queue.topic, queue.queue_id, timestamp)

    async def on_queues_changed(self, topic: str, listener: TopicListener) -> None:
        """Call `listener` within 30 seconds after the queues of `topic` change.

        Raises RouteNotFound.
        """
        await self._watch.add(topic, listener)

    async def _min_offset(self, queue: MessageQueue) -> int:
        return await self._admin.min_offset(await self._master(queue), queue.topic, queue.queue_id)

    async def _max_offset(self, queue: MessageQueue) -> int:
        return await self._admin.max_offset(await self._master(queue), queue.topic, queue.queue_id)

    async def _master(self, queue: MessageQueue) -> str:
        return await self.session.master_address(queue.topic, queue.broker_name)

    def _enqueue(self, held: ProcessQueue, messages: list[StoredMessage]) -> None:
        self._ready.append((held, messages))
        self._news.set()

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._news.set()
