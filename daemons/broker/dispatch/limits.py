"""Throttling: limits of the resources that clients may use.

All are off unless set; each refusal names its setting.

Overload protection: groups with a large lag are disabled, because they read from the disk and
evict messages that others have in memory (BrokerController.protectBroker).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from mq.client.machine import clock
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.broker.send.send_handlers import read_send
from mq.daemons.broker.statistics.stats import BrokerStats
from mq.daemons.broker.store import ConsumeQueue, Queues, layout
from mq.daemons.channel import Channel
from mq.daemons.dispatch import DirectHandler, Handler, Overloaded
from mq.daemons.overload.busy_reply import BusyReply
from mq.protocol.command import ONE_WAY, Command
from mq.protocol.frame import INT
from mq.protocol.headers.send import Letter
from mq.protocol.names import is_system_topic

log = logging.getLogger(__name__)

GUARD_SECONDS = 180.0

RATE_SETTING = "clientSendRate"
SIZE_SETTING = "topicMaxBytes"
SIZE_CHECK_SECONDS = 1.0
MOST_ADDRESSES = 10_000  # limit of addresses whose rate is remembered
_ENTRIES_AT_ONCE = 4096  # entries counted in one turn of the event loop


class SlowConsumers:
    """Disables groups whose last pull was more than consumerFallbehindThreshold bytes behind."""

    def __init__(
        self,
        settings: BrokerSettings,
        stats: BrokerStats,
        groups: Groups,
    ) -> None:
        self._settings = settings
        self._stats = stats
        self._groups = groups

    async def run(self) -> None:
        """Check every three minutes, until cancelled."""
        while True:
            await asyncio.sleep(GUARD_SECONDS)
            self.check()

    def check(self) -> list[str]:
        """Disable the groups with too large a lag; returns their names."""
        config = self._settings.broker
        if not config.disable_consume_if_consumer_read_slowly:
            return []
        if not self._settings.store.disk_fall_recorded:
            return []
        found: dict[str, int] = {}
        for (_, group, _), counter in self._stats.groups.items():
            if counter.behind > config.consumer_fallbehind_threshold:
                found[group] = max(found.get(group, 0), counter.behind)
                counter.behind = 0  # an administrator who enables the group gives it another chance
        for group, behind in found.items():
            log.warning(
                "group %s reads %d bytes before the end of the log, over the limit of %d "
                "(consumerFallbehindThreshold); disabling its consumption; enable it again with "
                "consumeEnable",
                group,
                behind,
                config.consumer_fallbehind_threshold,
            )
            self._groups.disable_consume(group)
        return list(found)


class Bucket:
    """A token bucket of one address: `rate` messages per second, with bursts of the same size."""

    __slots__ = ("_at", "_tokens", "rate")

    def __init__(self, rate: int, now: float) -> None:
        self.rate = rate
        self._tokens = float(rate)
        self._at = now

    def take(self, messages: int, now: float) -> bool:
        """Whether these messages may be sent. More than `rate` may be sent at once after a quiet
        second.
        """
        self._tokens = min(float(self.rate), self._tokens + (now - self._at) * self.rate)
        self._at = now
        if self._tokens < min(messages, self.rate):
            return False
        self._tokens -= messages
        return True


class SendRates:
    """Puts a rate limit before the handlers of sends. `refused` is called for each refused send."""

    def __init__(
        self,
        rate: int,
        refused: Callable[[int, str], None],
        clock: Callable[[], float] = clock.monotonic,
    ) -> None:
        self._rate = rate
        self._refused = refused
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}
        self._remark = f"[OVERLOAD]more than {rate} messages a second from your address"
        self._reply = BusyReply(f"{self._remark} ({RATE_SETTING})")

    def direct(self, table: Mapping[int, DirectHandler]) -> dict[int, DirectHandler]:
        """Wrap the handlers with the limit."""
        return {code: self._limited(code, handler) for code, handler in table.items()}

    def handlers(self, table: Mapping[int, Handler]) -> dict[int, Handler]:
        return {code: self._limited_other(handler) for code, handler in table.items()}

    def _limited(self, code: int, handler: DirectHandler) -> DirectHandler:
        def call(header: dict[str, object], body: bytes, channel: Channel) -> None:
            fields = header.get("extFields")
            is_batch = isinstance(fields, dict) and fields.get(Letter.BATCH) == "true"
            if self._may_send(channel, body, is_batch):
                handler(header, body, channel)
                return
            self._refused(code, RATE_SETTING)
            flag, opaque = header["flag"], header["opaque"]
            if isinstance(flag, int) and isinstance(opaque, int) and not flag & ONE_WAY:
                channel.send_frame(self._reply.frame(b"%d" % opaque))

        return call

    def _limited_other(self, handler: Handler) -> Handler:
        def call(command: Command, channel: Channel) -> object:
            if not self._may_send(channel, bytes(command.body), read_send(command).batch):
                raise Overloaded(RATE_SETTING, self._remark)
            return handler(command, channel)

        return call  # type: ignore[return-value]  # it returns what the handler does

    def _may_send(self, channel: Channel, body: bytes, is_batch: bool) -> bool:
        address = channel.remote_address[0]
        now = self._clock()
        bucket = self._buckets.get(address)
        if bucket is None:
            if len(self._buckets) >= MOST_ADDRESSES:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[address] = Bucket(self._rate, now)
        return bucket.take(_messages_in(body) if is_batch else 1, now)


def _messages_in(body: bytes) -> int:
    """The number of messages in a batch; 1 for a malformed one, which its handler refuses."""
    count = position = 0
    while position + 4 <= len(body):
        (length,) = INT.unpack_from(body, position)
        if length <= 4:
            break
        count += 1
        position += length
    return max(1, count)


class TopicSizes:
    """The stored bytes of topics, and the topics that have reached their limit.

    ``refused`` maps each of these topics to the refusal. The callbacks in ``on_change`` are called
    when a topic was added or removed.
    """

    def __init__(self, queues: Queues, settings: BrokerSettings) -> None:
        self._queues = queues
        self._settings = settings
        self.refused: dict[str, Overloaded] = {}
        self.on_change: list[Callable[[], None]] = []
        self._known: dict[ConsumeQueue, tuple[int, int, int]] = {}  # from, upto, bytes

    async def run(self) -> None:
        """Check every second until cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(SIZE_CHECK_SECONDS)

    async def check(self) -> None:
        """Update the sizes by the messages stored and deleted since the last check."""
        limits = self._settings.operation.topic_limits()
        found: dict[str, Overloaded] = {}
        if limits:
            for topic in self._queues.topics():
                limit = limits.get(topic, -1 if is_system_topic(topic) else limits.get("*", -1))
                if limit < 0:
                    continue
                size = sum([await self._size(queue) for queue in self._queues.of_topic(topic)])
                if size >= limit:
                    remark = f"[OVERLOAD]topic {topic} keeps {size} bytes and may keep {limit}"
                    found[topic] = Overloaded(SIZE_SETTING, remark)
        for topic in found.keys() - self.refused.keys():
            log.warning("%s; refusing sends to it", found[topic])
        for topic in self.refused.keys() - found.keys():
            log.info("topic %s accepts sends again (%s)", topic, SIZE_SETTING)
        changed = found.keys() != self.refused.keys()
        self.refused.clear()
        self.refused.update(found)
        if changed:
            for callback in self.on_change:
                callback()

    async def _size(self, queue: ConsumeQueue) -> int:
        start, upto, size = self._known.get(queue, (queue.minimum, queue.minimum, 0))
        if start != queue.minimum or upto > queue.readable:  # old messages have been deleted
            start, upto, size = queue.minimum, queue.minimum, 0
        while upto < queue.readable:
            entries = queue.entries(upto, _ENTRIES_AT_ONCE)
            if not entries:
                upto = max(upto + 1, queue.next_file_index(upto))
                continue
            size += sum(s for _, s, _ in layout.ENTRY.iter_unpack(entries) if 0 < s < 0x7FFFFFFF)
            upto += len(entries) // layout.ENTRY_SIZE
            await asyncio.sleep(0)
        self._known[queue] = start, min(upto, queue.readable), size
        return size
