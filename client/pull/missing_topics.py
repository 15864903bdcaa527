"""Queues whose master does not have their topic: kept until the topic exists again or was replaced.

A master may lack a topic only briefly, for instance when a new master receives the topic table
late. So pulled messages and the offset are kept, and the master is queried again with increasing
pauses. Until it is known which topic is there, no offset of the queue is committed, because it may
be another topic of the same name.
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
from mq.client.offsets.offset_store import Offsets, OffsetStore
from mq.client.pull.process_queue import ProcessQueue
from mq.client.pull.pull_consumer import Puller, PullResult, PullStatus
from mq.client.transport.session import Session
from mq.protocol.bodies import MessageQueue
from mq.protocol.tags import ALL_TAGS

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 3.0  # pullTimeDelayMillsWhenException
LONGEST_PAUSE_SECONDS = 20.0  # as between two rebalances
CLOCKS_DIFFER_SECONDS = 60.0  # the largest assumed difference between our clock and a broker's

# errors of a broker that can answer a moment later
_LATER = (SystemBusy, ServiceNotAvailable, FlowControl)


class MissingTopics:
    """The queues of one member whose topic is missing."""

    def __init__(self, session: Session, group: str, offsets: Offsets) -> None:
        self._session = session
        self._admin = OffsetAdmin(session)
        self._puller = Puller(session, group)
        self._of_master = Puller(session, group, master_only=True)
        self._group = group
        self._offsets = offsets
        # The first message of each queue at the last check: its offset and store time.
        self._first: dict[MessageQueue, tuple[int, int]] = {}

    async def wait(self, held: ProcessQueue, asked: float) -> None:
        """Handle the answer of a master, queried at `asked` (monotonic), that it has no such topic:
        sleep before the next query, each time twice as long.
        """
        queue = held.queue
        if not held.is_absent:
            held.absent_pause = FIRST_PAUSE_SECONDS
            held.absent_since = clock.time() - (clock.monotonic() - asked)
            if isinstance(self._offsets, OffsetStore):
                self._offsets.reset_first_commit(queue)
            log.warning("group %s: broker %s no longer has topic %s",
                        self._group, queue.broker_name, queue.topic)  # fmt: skip
        pause = held.absent_pause
        held.absent_pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        await asyncio.sleep(pause)

    async def is_another(self, held: ProcessQueue, result: PullResult, asked: int) -> bool | None:
        """Whether the topic that answered a pull at offset `asked` replaced the one of that name.

        Returns None if that is unknown, because a slave answered that lags. The topic was replaced
        if it ends before our offset, if its broker no longer has an offset of the group (our broker
        removes those of a deleted topic, Java's may keep them), or if all its messages were stored
        later than what was read or passed in the old one. Otherwise the queue is no longer missing.
        Raises the errors of the queries to the broker; the queue then stays missing.
        """
        if result.max_offset < asked:
            return None if result.status is PullStatus.NO_MATCHED else True
        if await self.is_replaced(held, result, asked):
            return True
        held.absent_pause = 0.0
        queue = held.queue
        log.info("group %s: broker %s has topic %s again; queue %d continues at offset %d",
                 self._group, queue.broker_name, queue.topic, queue.queue_id, asked)  # fmt: skip
        return False

    async def is_other(self, held: ProcessQueue, result: PullResult, asked: int) -> bool:
        """Whether store times show that a queue that was not pulled recently belongs to a replaced
        topic.

        Offsets are not compared: a broker that was killed may have lost the last ones. The master
        is not queried if a slave answered: it may be down, or may have deleted more messages than
        the slave. A clock that was set back has the same effect on store times. So a topic that
        existed long before the last pull is not a replaced one; otherwise its messages would be
        redelivered forever.
        """
        held.absent_since = held.last_pull
        since = int((held.last_pull - CLOCKS_DIFFER_SECONDS) * 1000)
        try:
            return await self._starts_later(held, result.min_offset, asked, since, result.address)
        except (TopicNotExist, *_LATER):
            raise
        except BrokerError as error:
            # The first messages of a static topic may be at another broker, which is unavailable.
            log.debug("group %s: %s continues unchecked: %s", self._group, held.queue, error)
            return False

    async def is_replaced(self, held: ProcessQueue, result: PullResult, asked: int) -> bool:
        """Whether offsets or store times show that a replaced topic answered a pull at offset
        `asked`.

        Raises the errors of the queries to the broker.
        """
        if isinstance(self._offsets, OffsetStore) and await self._offsets.is_lost(held.queue):
            return True
        return await self._starts_later(held, result.min_offset, asked)

    async def _starts_later(
        self,
        held: ProcessQueue,
        min_offset: int,
        asked: int,
        since: int = 0,
        address: str = "",
    ) -> bool:
        """Whether the queue's first message, at `min_offset`, was stored later than the last one
        read, although its offset is not higher, and later than `since` (ms).

        Both store times are from the broker's clock. The first message is requested at `address`,
        or at the master. If none of the existing messages was read, those before our offset were
        skipped at the start or filtered out: they were stored before the topic went missing, by our
        clock. A first message that was there at the previous check does not indicate a replaced
        topic: if the broker's clock was set back or differs from ours, the queue would restart at
        each check. One that did indicate a replaced topic does so until the queue restarts, because
        it may be checked twice before that.
        """
        if held.last_read is not None and held.last_read[0] >= min_offset:
            latest = held.last_read[1]
        elif asked > min_offset:
            latest = int(held.absent_since * 1000)
        else:
            return False  # there are no messages before our offset
        first = min_offset, await self._first_stored(held.queue, min_offset, address)
        was_there = self._first.get(held.queue) == first and held.others_first != first
        self._first[held.queue] = first
        if was_there or first[1] <= max(latest, since):
            return False
        held.others_first = first
        return True

    async def _first_stored(self, queue: MessageQueue, min_offset: int, address: str) -> int:
        """Return the store time of the first message (ms), or -1 if there is none."""
        puller = self._puller
        if not address:
            address = await self._session.master_address(queue.topic, queue.broker_name)
            puller = self._of_master
        try:
            return await self._admin.earliest_store_time(address, queue.topic, queue.queue_id)
        except (BadAnswer, BrokerError, ConnectError, RequestTimeout):
            # A Java proxy does not know that request, a snode does not forward it, and a Java
            # broker (5.x) refuses it to an account with read permission only: read the message
            # instead.
            first = await puller.pull(queue, min_offset, None, max_count=1, subscription=ALL_TAGS)
            return first.messages[0].store_timestamp if first.messages else -1
