"""Queues whose topic their master does not have: kept until it is there again, or another one is.

A master may lack a topic for a moment only: a new one, say, whose table of topics is late. So what
is in hand stays, as does where one is, and it is asked again, ever more slowly. Until it is known
which topic is there nothing of the queue is committed, for it may be another of that name.
"""

import asyncio
import logging

from mq.client.admin.offsets import OffsetAdmin
from mq.client.errors import (
    BadAnswer,
    BrokerError,
    ConnectError,
    FlowControl,
    RequestTimeout,
    ServiceNotAvailable,
    SystemBusy,
    TopicNotExist,
)
from mq.client.machine import clock
from mq.client.offsets import Offsets, OffsetStore
from mq.client.process_queue import ProcessQueue
from mq.client.pull_consumer import Puller, PullResult, PullStatus
from mq.client.session import Session
from mq.protocol.bodies import MessageQueue
from mq.protocol.tags import ALL_TAGS

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 3.0  # pullTimeDelayMillsWhenException
LONGEST_PAUSE_SECONDS = 20.0  # as between two rebalances
CLOCKS_DIFFER_SECONDS = 60.0  # ours and a broker's, by so much at most

_LATER = (SystemBusy, ServiceNotAvailable, FlowControl)  # of a broker that tells a moment later


class MissingTopics:
    """The queues of one member whose topic is absent."""

    def __init__(self, session: Session, group: str, offsets: Offsets) -> None:
        self._session = session
        self._admin = OffsetAdmin(session)
        self._puller = Puller(session, group)
        self._of_master = Puller(session, group, master_only=True)
        self._group = group
        self._offsets = offsets
        # The first message of each queue when it was looked at last: its offset, and when stored.
        self._first: dict[MessageQueue, tuple[int, int]] = {}

    async def wait(self, held: ProcessQueue, asked: float) -> None:
        """The master, `asked` at that time (monotonic), has no such topic: wait before it is asked
        again, each time twice as long."""
        queue = held.queue
        if not held.is_absent:
            held.absent_pause = FIRST_PAUSE_SECONDS
            held.absent_since = clock.time() - (clock.monotonic() - asked)
            if isinstance(self._offsets, OffsetStore):
                self._offsets.begin_anew(queue)
            log.warning("group %s: broker %s has no topic %s any more",
                        self._group, queue.broker_name, queue.topic)  # fmt: skip
        pause = held.absent_pause
        held.absent_pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        await asyncio.sleep(pause)

    async def is_another(self, held: ProcessQueue, result: PullResult, asked: int) -> bool | None:
        """Whether the topic that has answered a pull from offset `asked` is another one of that
        name; None where that cannot be said yet, for a replica has answered that is behind.

        It is if it ends before where we are, if its broker has no offset of the group any more
        (ours removes those of a topic that is deleted, Java's may keep them), or if all that it has
        was stored later than what we have read in it or passed over. Otherwise the queue is absent
        no more. Raises what asking the broker raises: then it is absent still.
        """
        if result.max_offset < asked:
            return None if result.status is PullStatus.NO_MATCHED else True
        if await self.is_replaced(held, result, asked):
            return True
        held.absent_pause = 0.0
        queue = held.queue
        log.info("group %s: broker %s has topic %s again, queue %d goes on at offset %d",
                 self._group, queue.broker_name, queue.topic, queue.queue_id, asked)  # fmt: skip
        return False

    async def is_other(self, held: ProcessQueue, result: PullResult, asked: int) -> bool:
        """Whether times say so of a queue that nobody has pulled from for a while. Offsets are not
        asked for: a broker that was killed may have lost those that came last. Nor is the master
        where a replica has answered: it may be away, or have deleted more than that has.

        A clock that was put back tells the same of the messages before and after that: what had
        been there long before the last pull is no other topic's, so that nothing comes for ever.
        """
        held.absent_since = held.last_pull
        since = int((held.last_pull - CLOCKS_DIFFER_SECONDS) * 1000)
        try:
            return await self._begins_behind(held, result.min_offset, asked, since, result.address)
        except (TopicNotExist, *_LATER):
            raise
        except BrokerError as error:
            # Of a static topic the first messages may be at another broker, which is away.
            log.debug("group %s: %s goes on unlooked at: %s", self._group, held.queue, error)
            return False

    async def is_replaced(self, held: ProcessQueue, result: PullResult, asked: int) -> bool:
        """Whether offsets or times say that it is another topic that has answered a pull from
        offset `asked`. Raises what asking the broker raises."""
        if isinstance(self._offsets, OffsetStore) and await self._offsets.is_lost(held.queue):
            return True
        return await self._begins_behind(held, result.min_offset, asked)

    async def _begins_behind(
        self,
        held: ProcessQueue,
        min_offset: int,
        asked: int,
        since: int = 0,
        address: str = "",
    ) -> bool:
        """Whether the first message of a queue, at `min_offset`, was stored later than the last one
        that we have read, though its offset is no higher: both times are of the broker's clock. And
        later than `since` (ms). It is asked at `address`, or at the master.

        Where we have read none of those that there are, what lies before us was at the end already
        when we began, or was not for us: it was stored before the topic was absent, by our clock.

        A first message that was there before tells of no other topic: where the broker's clock was
        put back, or differs from ours, the queue would begin anew with each look. One that has told
        of another does so until that is begun with: it may be looked at twice before.
        """
        if held.last_read is not None and held.last_read[0] >= min_offset:
            latest = held.last_read[1]
        elif asked > min_offset:
            latest = int(held.absent_since * 1000)
        else:
            return False  # nothing lies before us, whichever it is
        first = min_offset, await self._first_stored(held.queue, min_offset, address)
        was_there = self._first.get(held.queue) == first and held.others_first != first
        self._first[held.queue] = first
        if was_there or first[1] <= max(latest, since):
            return False
        held.others_first = first
        return True

    async def _first_stored(self, queue: MessageQueue, min_offset: int, address: str) -> int:
        """When the first message was stored (ms), -1 if there is none."""
        puller = self._puller
        if not address:
            address = await self._session.master_address(queue.topic, queue.broker_name)
            puller = self._of_master
        try:
            return await self._admin.earliest_store_time(address, queue.topic, queue.queue_id)
        except (BadAnswer, BrokerError, ConnectError, RequestTimeout):
            # A Java proxy does not know that request, a snode does not pass it on to its broker,
            # and a Java broker (5.x) refuses it to an account that may only read: so it is read.
            first = await puller.pull(queue, min_offset, None, max_count=1, subscription=ALL_TAGS)
            return first.messages[0].store_timestamp if first.messages else -1
