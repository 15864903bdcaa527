"""Pull loops: one queue again and again, as long as it has room."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from mq.client.errors import (
    ConnectError,
    MQError,
    RouteNotFound,
    SubscriptionNotExist,
    SubscriptionNotLatest,
    TopicNotExist,
)
from mq.client.hook_calls import ConsumeHooks
from mq.client.machine import clock
from mq.client.missing_topics import MissingTopics
from mq.client.namespace import without_namespace
from mq.client.offsets import Offsets
from mq.client.process_queue import ProcessQueue
from mq.client.pull_consumer import Puller, PullResult, PullStatus
from mq.client.pull_failures import PullFailures, errors_of_who_is_away
from mq.client.queue_locks import is_locked
from mq.client.running_info import ConsumeCounts
from mq.client.session import Session
from mq.client.snode.pushes import PushOutcome
from mq.client.subscription import Subscriptions
from mq.protocol.message import StoredMessage
from mq.protocol.names import RETRY_PREFIX
from mq.protocol.properties import PropertyKey

log = logging.getLogger(__name__)

LONG_POLL_SECONDS = 15.0  # how long a broker may hold a pull (brokerSuspendMaxTimeMillis)
PULL_RETRY_SECONDS = 3.0  # pullTimeDelayMillsWhenException
RECONNECT_SECONDS = 1.0
RECONNECT_SOON_SECONDS = 0.1  # to a snode, the first time
LOCK_RETRY_SECONDS = 1.0


class PullSettings(NamedTuple):
    """How queues are pulled, the same for all of a consumer."""

    batch: int = 32  # messages per pull
    locked: bool = False  # only while the queue's lock is ours
    commits: bool = True  # offsets travel with pulls; not where members have their own
    lite: bool = False  # as Java's lite pull consumers: each pull carries its subscription
    namespace: str | None = None


class Pulling:
    """Pulls queues for one group; `on_ready` gets what comes."""

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
        """`heartbeat` sends one to a broker that has forgotten us.

        `on_moved` hears that a queue has lost its end, or was made anew, and the offset from which
        its messages are others than those that were pulled. `offsets` tell of one that was made
        anew.
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
        self._absences = MissingTopics(session, group, offsets)
        self._away = errors_of_who_is_away(offsets)
        # Without `hooks`, for these hear of what is taken: what is looked at comes again.
        self._puller = Puller(session, group, lite=settings.lite)

    async def run(self, held: ProcessQueue, counts: ConsumeCounts) -> None:
        """Pull until cancelled, or until the queue turns out to end before where we are."""
        try:
            while await self._pull_once(held, counts):
                pass
        finally:
            self._failures.forget(held.queue)

    async def _pull_once(self, held: ProcessQueue, counts: ConsumeCounts) -> bool:
        """Pull once the queue has room; False when it is to be taken anew.

        One whose topic is absent is pulled without: until it is there nothing is committed.
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
                is_another = await self._absences.is_another(held, result, asked)
                if is_another:
                    self._on_moved(held, result.min_offset)
                    return False
                if is_another is None:
                    self._puller.prefer_master(held.queue)
                    await asyncio.sleep(PULL_RETRY_SECONDS)
                    return True
                if not held.may_take:
                    return True  # it comes again when there is room
            elif is_unseen and await self._absences.is_other(held, result, asked):
                self._on_moved(held, result.min_offset)
                return False
            return self._accept(held, result, asked)
        except asyncio.CancelledError:  # who holds a pull answers it when the topic is deleted
            if not is_unseen:
                held.seen_at = clock.monotonic()
            raise
        except TopicNotExist as error:
            if await self._is_of_master(held, error):
                await self._absences.wait(held, started)
            else:
                await self._recover(held, error)
        except MQError as error:
            await self._recover(held, error)
        except Exception as error:  # whatever it is, the queue is ours and nobody else pulls it
            self._failures.failed(held.queue, error, unexpected=True)
            await asyncio.sleep(PULL_RETRY_SECONDS)
        return True

    async def place(self, held: ProcessQueue) -> int | None:
        """How far a queue is, as `look` says."""
        found = await self.look(held)
        return None if found is None else found[0]

    async def look(self, held: ProcessQueue) -> tuple[int, bool] | None:
        """How far a queue is that nobody has pulled from for a while, as it is to be committed, or
        given up, and whether it is what it was; None where its topic is absent, or its broker can
        be reached and does not tell.

        It is at the beginning where its topic is another one by now, and not behind an end that it
        has lost.
        """
        try:
            return await self._look(held)
        except TopicNotExist:
            return None
        except MQError as error:
            if isinstance(error, self._away) and not held.is_absent:
                return held.commit_offset, True
            log.warning("group %s leaves %s without its offset: %s",
                        self._group, held.queue, error)  # fmt: skip
            return None

    async def _look(self, held: ProcessQueue) -> tuple[int, bool]:
        """As `look`. Raises MQError."""
        self._puller.prefer_master(held.queue)
        asked = held.next_offset
        look = self._absences.is_replaced if held.is_absent else self._absences.is_other
        result = await self._pull(held, looks=True)
        if await look(held, result, asked):
            return result.min_offset, False
        held.absent_pause = 0.0
        if result.status is PullStatus.OFFSET_ILLEGAL and result.next_offset < asked:
            return min(held.commit_offset, _lost_from(held, result)), False
        held.note_pull()  # not before: until it has begun anew it is looked at again
        return held.commit_offset, True

    async def _pull(
        self, held: ProcessQueue, *, waits: bool = True, looks: bool = False
    ) -> PullResult:
        """With `looks` to see what is there only: of all queues of a member at once, perhaps, and
        also at a broker that was restarted, and knows no subscription of the group yet."""
        subscription = self._subscriptions.of(held.queue.topic)
        waits = waits and not looks and not held.is_absent
        commits = self._settings.commits and waits  # else it may be in another topic
        return await self._puller.pull(
            held.queue,
            held.next_offset,
            self._subscriptions.tags(held.queue.topic),
            max_count=1 if looks else self._settings.batch,
            wait=LONG_POLL_SECONDS if waits else 0.0,
            commit_offset=held.commit_offset if commits else None,
            subscription=subscription.sub_string if self._settings.lite or looks else None,
            sub_version=self._subscriptions.version,
            expression_type=subscription.expression_type,
            by_class=subscription.class_filter_mode,
        )

    def offer(self, held: ProcessQueue, message: StoredMessage, counts: ConsumeCounts) -> bool:
        """Take a message that was pushed, or leave it to a pull; whether it was taken."""
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
        self._hand_on(held, messages, pushes.min_offset, held.next_offset)
        return True

    def _kept(self, held: ProcessQueue, messages: list[StoredMessage]) -> list[StoredMessage]:
        """Those that the hooks do not sort out. Ask before `next_offset` moves on: one that ends
        the program would have what lies before that committed."""
        return messages if self._hooks is None else self._hooks.kept(held.queue, messages)

    def _accept(self, held: ProcessQueue, result: PullResult, asked: int) -> bool:
        """Take what was pulled from the offset `asked` on; False when the queue is to be taken
        anew. What has been pushed meanwhile is left out."""
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "group %s, %s: offset %d is not in the queue (%d to %d), going on at %d",
                *(self._group, held.queue, asked),
                *(result.min_offset, result.max_offset, result.next_offset),
            )
            if result.next_offset < asked:
                self._on_moved(held, _lost_from(held, result))
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
        self._hand_on(held, kept, result.min_offset, result.max_offset)
        return True

    def _hand_on(
        self, held: ProcessQueue, messages: list[StoredMessage], min_offset: int, max_offset: int
    ) -> None:
        if not messages:
            return
        namespace = self._settings.namespace
        least, most = str(min_offset), str(max_offset)
        for message in messages:
            properties = message.properties
            properties[PropertyKey.MIN_OFFSET] = least  # of the queue, as Java's consumers
            properties[PropertyKey.MAX_OFFSET] = most  # have it (PullAPIWrapper)
            original = properties.get(PropertyKey.RETRY_TOPIC)
            if original and message.topic.startswith(RETRY_PREFIX):
                message.topic = original
            if namespace is not None:
                message.topic = without_namespace(namespace, message.topic)
        held.add(messages)
        self._on_ready(held, messages)

    async def _is_of_master(self, held: ProcessQueue, error: TopicNotExist) -> bool:
        """Whether a topic is not there. A replica may not have it yet: the master is asked next."""
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
                # A snode closes the connection of who is slow, and knows us again in a moment.
                await asyncio.sleep(RECONNECT_SOON_SECONDS)
                return
            await asyncio.sleep(RECONNECT_SECONDS)
            await self._heartbeat(error.address)  # a broker that was restarted does not know us
        else:
            await asyncio.sleep(PULL_RETRY_SECONDS)


def _lost_from(held: ProcessQueue, result: PullResult) -> int:
    """Where a queue begins anew that has lost its end: what is in hand has offsets that new
    messages will have, too, or have got since."""
    anew_from = result.next_offset if held.pushes is None else held.pushes.anew_from
    return int(min(result.next_offset, anew_from))
