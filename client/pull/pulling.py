"""Pull loops: each pulls one queue repeatedly while it has room.

Failures are logged once although many queues of a broker keep failing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from mq.client.errors import (
    ConnectError,
    MQError,
    RequestTimeout,
    RouteNotFound,
    SubscriptionNotExist,
    SubscriptionNotLatest,
    TopicNotExist,
)
from mq.client.machine import clock
from mq.client.namespace import without_namespace
from mq.client.offsets.offset_store import Offsets, OffsetStore
from mq.client.pull.consume_hooks import ConsumeHooks
from mq.client.pull.missing_topics import MissingTopics
from mq.client.pull.process_queue import ConsumeCounts, ProcessQueue, is_locked
from mq.client.pull.pull_consumer import Puller, PullResult, PullStatus
from mq.client.pull.subscription import Subscriptions
from mq.client.snode.pushes import PushOutcome
from mq.client.transport.session import Session
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import StoredMessage
from mq.protocol.names import RETRY_PREFIX
from mq.protocol.properties import PropertyKey

log = logging.getLogger(__name__)

LONG_POLL_SECONDS = 15.0  # how long a broker may suspend a pull (brokerSuspendMaxTimeMillis)
PULL_RETRY_SECONDS = 3.0  # pullTimeDelayMillsWhenException
RECONNECT_SECONDS = 1.0
RECONNECT_SOON_SECONDS = 0.1  # to a snode, the first time
LOCK_RETRY_SECONDS = 1.0


class PullSettings(NamedTuple):
    """How a consumer's queues are pulled; the same for all of them."""

    batch: int = 32  # messages per pull
    locked: bool = False  # pull only while this member has the queue's lock
    commits: bool = True  # pulls carry offsets to commit; not if members keep their own
    lite: bool = False  # as Java's lite pull consumers: each pull carries its subscription
    namespace: str | None = None


class Pulling:
    """Pulls queues for one group and passes messages to `on_ready`."""

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: Subscriptions,
        settings: PullSettings,
        offsets: Offsets,
        *,
        heartbeat: Callable[[str], Awaitable[None]],
        on_ready: Callable[[ProcessQueue, list[StoredMessage]], None],
        on_moved: Callable[[ProcessQueue, int], None],
        hooks: ConsumeHooks | None = None,
    ) -> None:
        """`heartbeat` sends one to a broker that has evicted this client.

        `on_moved` is called when a queue lost its end or its topic was recreated, with the offset
        from which messages differ from those pulled before. `offsets` help to detect a recreated
        topic.
        """
        self._session = session
        self._group = group
        self._subscriptions = subscriptions
        self._settings = settings
        self._heartbeat = heartbeat
        self._on_ready = on_ready
        self._on_moved = on_moved
        self._hooks = hooks
        self._failures = PullFailures(group)
        self._missing_topics = MissingTopics(session, group, offsets)
        self._away = errors_when_unavailable(offsets)
        # Without `hooks`, which must see only delivered messages: those of a check are pulled
        # again.
        self._puller = Puller(session, group, lite=settings.lite)

    async def run(self, held: ProcessQueue, counts: ConsumeCounts) -> None:
        """Pull until cancelled, or until the queue turns out to end before the current offset."""
        try:
            while await self._pull_once(held, counts):
                pass
        finally:
            self._failures.forget(held.queue)

    async def _pull_once(self, held: ProcessQueue, counts: ConsumeCounts) -> bool:
        """Pull when the queue has room; False if the queue must be taken again.

        A queue whose topic is missing is pulled without room: nothing is committed until the topic
        is back.
        """
        if not held.is_absent:
            await held.wait_for_room()
            if held.pushes is not None:
                await held.pushes.wait_for_pull()
                await held.wait_for_room()
        if self._settings.locked and not is_locked(held):
            await asyncio.sleep(LOCK_RETRY_SECONDS)
            return True
        started = clock.monotonic()
        asked, is_unseen = held.next_offset, held.is_unseen
        try:
            result = await self._pull(held, waits=not is_unseen)
            counts.pulls += 1
            counts.pull_seconds += clock.monotonic() - started
            counts.pulled += len(result.messages)
            self._failures.succeeded(held.queue)
            if held.is_absent:
                is_another = await self._missing_topics.is_another(held, result, asked)
                if is_another:
                    self._on_moved(held, result.min_offset)
                    return False
                if is_another is None:
                    self._puller.prefer_master(held.queue)
                    await asyncio.sleep(PULL_RETRY_SECONDS)
                    return True
                if not held.may_take:
                    return True  # it is pulled again when there is room
            elif is_unseen and await self._missing_topics.is_other(held, result, asked):
                self._on_moved(held, result.min_offset)
                return False
            return self._accept(held, result, asked)
        except asyncio.CancelledError:  # a broker answers suspended pulls when the topic is deleted
            if not is_unseen:
                held.seen_at = clock.monotonic()
            raise
        except TopicNotExist as error:
            if await self._is_of_master(held, error):
                await self._missing_topics.wait(held, started)
            else:
                await self._recover(held, error)
        except MQError as error:
            await self._recover(held, error)
        except Exception as error:  # whatever it is, only this member pulls the queue
            self._failures.failed(held.queue, error, unexpected=True)
            await asyncio.sleep(PULL_RETRY_SECONDS)
        return True

    async def place(self, held: ProcessQueue) -> int | None:
        """Return the offset to commit for a queue, as `check` does."""
        found = await self.check(held)
        return None if found is None else found[0]

    async def check(self, held: ProcessQueue) -> tuple[int, bool] | None:
        """Check a queue that was not pulled recently before its offset is committed or it is
        revoked.

        Returns the offset to commit and whether the queue is unchanged; None if the topic is
        missing, or its broker is reachable but does not answer the question. The offset is the
        start of a queue whose topic was replaced, and not past an end that the queue has lost.
        """
        try:
            return await self._check(held)
        except TopicNotExist:
            return None
        except MQError as error:
            if isinstance(error, self._away) and not held.is_absent:
                return held.commit_offset, True
            log.warning("group %s leaves %s without committing its offset: %s",
                        self._group, held.queue, error)  # fmt: skip
            return None

    async def _check(self, held: ProcessQueue) -> tuple[int, bool]:
        """Do the work of `check`. Raises MQError."""
        self._puller.prefer_master(held.queue)
        asked = held.next_offset
        check = (
            self._missing_topics.is_replaced if held.is_absent else self._missing_topics.is_other
        )
        result = await self._pull(held, checks=True)
        if await check(held, result, asked):
            return result.min_offset, False
        held.absent_pause = 0.0
        if result.status is PullStatus.OFFSET_ILLEGAL and result.next_offset < asked:
            return min(held.commit_offset, _restart_offset(held, result)), False
        held.note_pull()  # not earlier: until the queue restarts it must be checked again
        return held.commit_offset, True

    async def _pull(
        self, held: ProcessQueue, *, waits: bool = True, checks: bool = False
    ) -> PullResult:
        """Pull a queue. With `checks` only check which messages are there.

        A check may cover all queues of a member at once, and a restarted broker that does not know
        the group's subscription yet.
        """
        subscription = self._subscriptions.of(held.queue.topic)
        waits = waits and not checks and not held.is_absent
        # otherwise the offset may belong to another topic
        commits = self._settings.commits and waits
        return await self._puller.pull(
            held.queue,
            held.next_offset,
            self._subscriptions.tags(held.queue.topic),
            max_count=1 if checks else self._settings.batch,
            wait=LONG_POLL_SECONDS if waits else 0.0,
            commit_offset=held.commit_offset if commits else None,
            subscription=subscription.sub_string if self._settings.lite or checks else None,
            sub_version=self._subscriptions.version,
            expression_type=subscription.expression_type,
            by_class=subscription.class_filter_mode,
        )

    def offer(self, held: ProcessQueue, message: StoredMessage, counts: ConsumeCounts) -> bool:
        """Accept a pushed message, or leave it to a pull; returns whether it was accepted."""
        pushes = held.pushes
        if pushes is None:
            return False
        offset = message.queue_offset
        if pushes.offer(offset, message.store_timestamp, held.next_offset) is PushOutcome.IGNORED:
            return False
        if not held.may_take or (self._settings.locked and not is_locked(held)):
            pushes.want_pull()
            return False
        tags = self._subscriptions.tags(held.queue.topic)
        fits = tags is None or not tags.tags or tags.matches(message.tags)
        message.broker_name = held.queue.broker_name
        messages = self._kept(held, [message] if fits else [])
        pushes.taken(message.store_timestamp)
        held.next_offset = offset + 1
        held.note_pull()
        counts.pulled += 1
        self._deliver(held, messages, pushes.min_offset, held.next_offset)
        return True

    def _kept(self, held: ProcessQueue, messages: list[StoredMessage]) -> list[StoredMessage]:
        """Return the messages that the hooks keep. Call this before `next_offset` advances: after a
        hook's error that ends the program, offsets before it would be committed.
        """
        return messages if self._hooks is None else self._hooks.kept(held.queue, messages)

    def _accept(self, held: ProcessQueue, result: PullResult, asked: int) -> bool:
        """Accept messages pulled from offset `asked`; False if the queue must be taken again.

        Messages that were pushed meanwhile are left out.
        """
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "group %s, %s: offset %d is not in the queue (%d to %d); continuing at %d",
                *(self._group, held.queue, asked),
                *(result.min_offset, result.max_offset, result.next_offset),
            )
            if result.next_offset < asked:
                self._on_moved(held, _restart_offset(held, result))
                return False
        messages = result.messages
        if held.next_offset > asked:
            messages = [one for one in messages if one.queue_offset >= held.next_offset]
        kept = self._kept(held, messages)
        held.next_offset = max(held.next_offset, result.next_offset)
        held.note_pull()
        if held.pushes is not None:
            newest = messages[-1].store_timestamp if messages else 0
            held.pushes.pulled(result.min_offset, newest)
        self._deliver(held, kept, result.min_offset, result.max_offset)
        return True

    def _deliver(
        self, held: ProcessQueue, messages: list[StoredMessage], min_offset: int, max_offset: int
    ) -> None:
        if not messages:
            return
        namespace = self._settings.namespace
        least, most = str(min_offset), str(max_offset)
        for message in messages:
            properties = message.properties
            properties[PropertyKey.MIN_OFFSET] = least  # of the queue, as in Java's consumers
            properties[PropertyKey.MAX_OFFSET] = most  # (PullAPIWrapper)
            original = properties.get(PropertyKey.RETRY_TOPIC)
            if original and message.topic.startswith(RETRY_PREFIX):
                message.topic = original
            if namespace is not None:
                message.topic = without_namespace(namespace, message.topic)
        held.add(messages)
        self._on_ready(held, messages)

    async def _is_of_master(self, held: ProcessQueue, error: TopicNotExist) -> bool:
        """Whether the topic is missing at the master. A slave may not have it yet; the master is
        asked next.
        """
        queue = held.queue
        self._puller.prefer_master(queue)
        try:
            return error.address == await self._session.master_address(
                queue.topic, queue.broker_name
            )
        except MQError:
            return False

    async def _recover(self, held: ProcessQueue, error: MQError) -> None:
        self._failures.failed(held.queue, error)
        if isinstance(error, ConnectError | RouteNotFound):
            self._session.outdate_route(held.queue.topic)
        if isinstance(error, SubscriptionNotExist | SubscriptionNotLatest | ConnectError):
            if held.pushes is not None and held.pushes.fails_first():
                # A snode closes the connection of a slow consumer, and accepts it again a moment
                # later.
                await asyncio.sleep(RECONNECT_SOON_SECONDS)
                return
            await asyncio.sleep(RECONNECT_SECONDS)
            await self._heartbeat(error.address)  # a restarted broker does not know this client
        else:
            await asyncio.sleep(PULL_RETRY_SECONDS)


def _restart_offset(held: ProcessQueue, result: PullResult) -> int:
    """Return the offset at which a queue that lost its end restarts: pulled messages have offsets
    that new messages will get, or already got.
    """
    restart_from = result.next_offset if held.pushes is None else held.pushes.restart_from
    return int(min(result.next_offset, restart_from))


class PullFailures:
    """The queues of a group whose pulls fail, and the failures already logged.

    One line is logged for each broker and kind of error while any of the broker's queues has it,
    and one when all of them can be pulled again.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._kinds: dict[MessageQueue, str] = {}
        self._logged: dict[str, set[str]] = {}  # kinds by broker

    def failed(self, queue: MessageQueue, error: Exception, *, unexpected: bool = False) -> None:
        """Record a failed pull; `unexpected` logs the traceback."""
        kind = type(error).__name__
        self._kinds[queue] = kind
        logged = self._logged.setdefault(queue.broker_name, set())
        if kind not in logged:
            logged.add(kind)
            log.warning(
                "group %s, broker %s: pulls fail, first of queue %d of %s: %s",
                *(self._group, queue.broker_name, queue.queue_id, queue.topic, error),
                exc_info=error if unexpected else None,
            )

    def succeeded(self, queue: MessageQueue) -> None:
        """Record that a pull did not fail."""
        if queue in self._kinds and self._forget(queue):
            log.info("group %s, broker %s: pulls succeed again", self._group, queue.broker_name)

    def forget(self, queue: MessageQueue) -> None:
        """Forget a queue that is no longer pulled."""
        if queue in self._kinds:
            self._forget(queue)

    def _forget(self, queue: MessageQueue) -> bool:
        """Remove a queue; returns whether none of its broker's queues fails any more."""
        del self._kinds[queue]
        if any(other.broker_name == queue.broker_name for other in self._kinds):
            return False
        del self._logged[queue.broker_name]
        return True


def errors_when_unavailable(offsets: Offsets) -> tuple[type[MQError], ...]:
    """Return the errors of an unavailable broker that do not prevent a commit.

    Such a broker cannot report whether it has the topic. Offsets kept at brokers are committed as
    usual only after a ConnectError; offsets kept elsewhere also after other failures.
    """
    if isinstance(offsets, OffsetStore):
        return (ConnectError,)
    return ConnectError, RequestTimeout, RouteNotFound
