"""PULL_MESSAGE: from a queue offset to records, in slices of the mapped log.

The broker neither decodes nor copies the records that it sends: queue entries give their locations,
and adjacent records are sent as one slice. The replies for each offset are listed in
docs/protocol.md and follow DefaultMessageStore.getMessage and PullMessageProcessor.
"""

import struct
from collections.abc import Callable
from functools import partial

from mq.daemons.broker.clients.registry import Consumers
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.filters.properties import Expression
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.broker.groups.read_checks import check_broker, consuming_group, readable_topic
from mq.daemons.broker.offsets.offset_table import ConsumerOffsets
from mq.daemons.broker.pull.broker_suggestions import Suggestions
from mq.daemons.broker.pull.bulk import asked_bytes
from mq.daemons.broker.pull.cold_pulls import ColdPulls
from mq.daemons.broker.pull.long_polling import MOST_HELD, PullNotifier, SuspendedPull, held_pulls
from mq.daemons.broker.pull.message_finder import MOVED, NOT_FOUND, RETRY, FoundMessages
from mq.daemons.broker.pull.native_pulls import NativePulls, PullAnswer
from mq.daemons.broker.pull.planned_pulls import PlannedPulls
from mq.daemons.broker.pull.pull_reply import answer_pull, request_of
from mq.daemons.broker.pull.queue_reader import QueueReader
from mq.daemons.broker.pull.subscriptions import Subscriptions
from mq.daemons.broker.roles import is_slave
from mq.daemons.broker.statistics.stats import BrokerStats, GroupCounter
from mq.daemons.broker.store import ConsumeQueue, MessageStore, NotInMemory
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.channel import Channel
from mq.daemons.dispatch import DirectHandler, Refused
from mq.daemons.request_codes import serves
from mq.protocol.bodies import MessageModel, SubscriptionGroupConfig
from mq.protocol.codes import PULLS, ResponseCode
from mq.protocol.command import ONE_WAY, Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import PullSysFlag
from mq.protocol.headers.pull import PullMessageRequestHeader

_PULLING = "pulling message"
_COMMIT = PullSysFlag.COMMIT_OFFSET
_SUSPEND = PullSysFlag.SUSPEND
_SUBSCRIPTION = PullSysFlag.SUBSCRIPTION

# Header fields that are needed when a suspended pull is served again.
_NEEDED_LATER = frozenset(
    (
        *("topic", "consumerGroup", "queueId", "queueOffset", "maxMsgNums", "sysFlag"),
        *("commitOffset", "subscription", "expressionType", "subVersion", "maxMsgBytes"),
    )
)
# Limit of disk reads that a pull waits for: after that it reads evicted pages itself.
_MOST_READS = 3
# Limit of remembered queues; at the limit all are dropped and looked up again.
_MOST_REMEMBERED = 10_000


class PullHandlers:
    """Serves pulls of consumers."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: Topics,
        groups: Groups,
        consumers: Consumers,
        offsets: ConsumerOffsets,
        store: MessageStore,
        reader: QueueReader,
        subscriptions: Subscriptions,
        stats: BrokerStats,
        on_moved: Callable[[str, str, int, int, int], None] = lambda *_: None,
    ) -> None:
        """``on_moved`` is called with group, topic, queue id, the requested offset and the next
        one.
        """
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._store = store
        self._stats = stats
        self._log = store.log
        self._queues: dict[tuple[str, str], ConsumeQueue] = {}
        self._residency = reader.residency
        self._cold = ColdPulls(stats)
        self.native = NativePulls(settings, store.log)
        self._suggestions = Suggestions(settings, store.log, reader.young_bytes)
        self._expression = subscriptions.expression
        self._find = reader.find
        self._records = reader.records
        self._count = reader.count_read
        self._on_moved = on_moved
        self._notifier = PullNotifier()
        self.planned = PlannedPulls(
            *(self.native, groups, self._expression, offsets, reader.residency, self._send)
        )
        topics.on_change.append(lambda _: self._forget())
        store.on_queues_restarted.append(lambda _: self._forget())
        store.log.on_removed.append(self.planned.forget_prefetched)
        self.configure()

    def direct(self) -> dict[int, DirectHandler]:
        # The lite pull consumer of 5.x sends the same request under its own code.
        return dict.fromkeys(PULLS, self.pull)

    def configure(self) -> None:
        """Read the settings again, and check again whether remembered queues may be read."""
        self._suggestions.configure()
        corrects = self._settings.store.offset_check_in_slave
        slave = is_slave(self._settings)
        self._waits_outside = slave and not corrects
        self._takes_commits = not slave  # with a pull; a slave accepts separate commits, too
        self._forget()

    def _forget(self) -> None:
        """Drop remembered queues: they may have been replaced, or may not be read any more."""
        self._queues.clear()
        self.planned.forget()

    async def close(self) -> None:
        """Wait for disk reads in progress."""
        await self._cold.close()
        await self._residency.close()

    def pull(self, header: dict[str, object], body: bytes, channel: Channel) -> None:
        """Serve a pull whose header came in JSON."""
        self._pull(header, channel, may_hold=True)

    @serves(*PULLS)
    def pull_other(self, command: Command, channel: Channel) -> None:
        """Serve a pull whose header came in RocketMQ's binary form."""
        self._pull_command(command, channel, command.read_header(PullMessageRequestHeader))

    def pull_relayed(self, command: Command, channel: Channel) -> None:
        """Serve a pull of a snode, whose header has the subscription of the group."""
        asked = command.read_header(PullMessageRequestHeader)
        asked.sys_flag |= _SUBSCRIPTION
        self._pull_command(command, channel, asked)

    def _pull_command(
        self, command: Command, channel: Channel, asked: PullMessageRequestHeader
    ) -> None:
        header: dict[str, object] = {
            "opaque": command.opaque,
            "flag": command.flag,
            "extFields": asked.encode(),
        }
        try:
            self._pull(header, channel, may_hold=True)
        except KeyError as error:
            raise RemoteProtocolError(f"the header lacks the field {error}") from None
        except (TypeError, ValueError, struct.error) as error:
            raise RemoteProtocolError(f"a field of the header is malformed: {error}") from None

    def _pull(
        self,
        header: dict[str, object],
        channel: Channel,
        may_hold: bool,
        reads: int = 0,
    ) -> None:
        """``reads`` is the number of disk reads that this pull has waited for."""
        fields = header["extFields"]
        if not isinstance(fields, dict):
            raise TypeError("extFields is not an object")
        if type(header["opaque"]) is not int:  # the pull may be suspended, and answered much later
            raise TypeError("opaque is not an integer")
        topic = fields["topic"]
        group = fields["consumerGroup"]
        known = self._groups.table.get(group)
        if known is None or not known.consume_enable:
            check_broker(self._settings.broker, _PULLING)
            known = consuming_group(self._groups, group)
        queue = self._queues.get((topic, fields["queueId"])) or self._find_queue(
            topic, fields["queueId"], channel
        )
        offset = int(fields["queueOffset"])
        maximum = int(fields["maxMsgNums"])
        sys_flag = int(fields["sysFlag"])
        committed = _long(fields["commitOffset"]) if sys_flag & _COMMIT else 0
        if not known.consume_broadcast_enable and not sys_flag & _SUBSCRIPTION:
            self._check_broadcast(group)
        expression = self._expression(fields, sys_flag, group, topic)
        bulk_bytes = self._bulk_bytes(fields["maxMsgBytes"]) if "maxMsgBytes" in fields else 0
        flag = header["flag"]
        assert isinstance(flag, int)
        # If memory is too short to keep the messages, the pull finally reads the disk itself.
        present = self._residency if reads < _MOST_READS else None
        for_master, answer = self._suggestions.is_for_master(known, queue, offset), None
        try:
            if for_master and not bulk_bytes and not flag & ONE_WAY:
                answer = self.native.answer(
                    *(queue, offset, maximum, expression, present, header["opaque"])
                )
            if answer is None:
                found = self._find(queue, offset, maximum, expression, bulk_bytes, present)
        except NotInMemory as absent:
            again = partial(self._pull_late, header, channel, may_hold, reads + 1)
            counter = self._stats.group(topic, group, queue.queue_id)
            size = bulk_bytes or self._settings.store.max_transfer_bytes_on_message_in_memory
            reading = self._residency.load(absent)
            self._cold.wait(reading, header, channel, size, counter, again)
        else:
            if answer is not None:
                self._send(answer, channel, queue, group, topic)
                if may_hold and self.planned.is_missed:
                    self._plan(fields, known, queue, expression, sys_flag)
            else:
                self._answer(
                    *(found, header, fields, channel, queue, offset, expression, may_hold, known)
                )
        # At arrival: the group may have committed, or been reset, before the pull is served again.
        if may_hold and not reads and sys_flag & _COMMIT and self._takes_commits:
            self._commit(group, queue, committed, channel)

    def _commit(self, group: str, queue: ConsumeQueue, committed: int, channel: Channel) -> None:
        topic, queue_id = queue.topic, queue.queue_id
        reached: int | None = committed
        if committed > queue.appended:
            reached = self._store.reached(topic, queue_id, committed)
        if reached is not None:
            self._offsets.commit(group, topic, queue_id, reached, channel.remote)

    def _plan(
        self,
        fields: dict[str, str],
        known: SubscriptionGroupConfig,
        queue: ConsumeQueue,
        expression: Expression,
        sys_flag: int,
    ) -> None:
        """Make a plan, so that the next pulls like this one are answered natively."""
        if not self._suggestions.to_slaves:  # otherwise each reply may suggest another broker
            commits = bool(sys_flag & _COMMIT) and self._takes_commits
            self.planned.note(fields, known, queue, expression, commits)

    # replies ---------------------------------------------------------------------------------

    def _send(
        self, answer: PullAnswer, channel: Channel, queue: ConsumeQueue, group: str, topic: str
    ) -> None:
        frame, next_offset, count, size, end = answer
        counter = self._stats.group(topic, group, queue.queue_id)
        channel.send_parts([frame], size)
        self._count(counter, count, size, end)
        if not count:
            self._set_lag(counter, queue, next_offset)

    def _answer(
        self,
        found: FoundMessages,
        header: dict[str, object],
        fields: dict[str, str],
        channel: Channel,
        queue: ConsumeQueue,
        offset: int,
        expression: Expression,
        may_hold: bool,
        known: SubscriptionGroupConfig,
    ) -> None:
        group, topic, sys_flag = fields["consumerGroup"], fields["topic"], int(fields["sysFlag"])
        code, next_offset, *_ = found
        # another broker has already delivered the message
        is_unshown = queue.readable < offset <= queue.appended
        if code == MOVED and (is_unshown or self._waits_outside):
            # The master has the message, had it, or will have it. (Java has the client pull again
            # at once, and again: PullMessageProcessor.)
            found = FoundMessages(NOT_FOUND, offset, [], 0, 0)
            code, next_offset, *_ = found
        if code == MOVED:
            self._on_moved(group, topic, queue.queue_id, offset, next_offset)
        # Messages follow a gap in the queue: only a pull at the end of the queue is suspended.
        waits = code == NOT_FOUND and next_offset == offset
        if waits and may_hold and sys_flag & _SUSPEND and self._may_wait(header, channel):
            self._hold(header, fields, channel, queue, offset, expression)
        else:
            counter = self._stats.group(topic, group, queue.queue_id)
            suggested = self._suggestions.of(known, queue, found)
            self._answer_found(header, channel, queue, found, counter, suggested)

    def _answer_found(
        self,
        header: dict[str, object],
        channel: Channel,
        queue: ConsumeQueue,
        found: FoundMessages,
        counter: GroupCounter,
        suggested: int,
    ) -> None:
        code, next_offset, ranges, count, size = found
        records = self._records(ranges)
        if records is None:  # retention deleted a log file after the entries were read
            code, records, count, size = RETRY, [], 0, 0
        answer_pull(header, channel, queue, code, next_offset, records, size, suggested)
        self._count(counter, count, size, found.end)
        if code == RETRY:
            self._set_lag(counter, queue, next_offset)

    def _set_lag(self, counter: GroupCounter, queue: ConsumeQueue, next_offset: int) -> None:
        """Set the lag from a pull without matching messages, like one that found messages."""
        try:
            entry = queue.entry(next_offset - 1)
        except OSError:  # the pull has been answered and must not get a second reply
            return
        if entry is not None:
            counter.behind = max(0, self._log.written - entry[0] - entry[1])

    # rare steps -------------------------------------------------------------------

    def _bulk_bytes(self, asked: str) -> int:
        config = self._settings.store
        ordinary = config.max_transfer_bytes_on_message_in_memory
        return asked_bytes(asked, ordinary, config.max_transfer_bytes_on_bulk_pull)

    def _find_queue(self, topic: str, queue_text: str, channel: Channel) -> ConsumeQueue:
        check_broker(self._settings.broker, _PULLING)
        config = readable_topic(self._topics, topic, _PULLING)
        queue_id = int(queue_text)
        if not 0 <= queue_id < config.read_queue_nums:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}] "
                f"consumer:[{channel.remote}]",
            )
        queue = self._store.queue(topic, queue_id)
        if queue_text == str(queue_id):  # other spellings, such as " 1" or "01", are not remembered
            if len(self._queues) >= _MOST_REMEMBERED:
                self._forget()
            self._queues[topic, queue_text] = queue
        return queue

    def _check_broadcast(self, group: str) -> None:
        """Raises Refused if the group, which may not broadcast, does so (PullMessageProcessor)."""
        members = self._consumers.groups.get(group)
        if members is not None and members.message_model is MessageModel.BROADCASTING:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group}] can not consume by broadcast way",
            )

    def _hold(
        self,
        header: dict[str, object],
        fields: dict[str, str],
        channel: Channel,
        queue: ConsumeQueue,
        offset: int,
        expression: Expression,
    ) -> None:
        config = self._settings.broker
        milliseconds = _long(fields["suspendTimeoutMillis"])
        if not config.long_polling_enable:
            milliseconds = config.short_polling_time_mills
        if offset < queue.minimum:  # a slave whose log starts later: its master may return
            milliseconds = min(milliseconds, config.short_polling_time_mills)
        kept: dict[str, object] = {
            "opaque": header["opaque"],
            "flag": header["flag"],
            "extFields": {name: fields[name] for name in _NEEDED_LATER if name in fields},
        }
        seconds, over = milliseconds / 1000, self._wait_is_over
        SuspendedPull(kept, channel, queue, offset, expression, seconds, over, self._notifier)

    def _may_wait(self, header: dict[str, object], channel: Channel) -> bool:
        flag = header["flag"]
        assert isinstance(flag, int)
        return not flag & ONE_WAY and len(held_pulls(channel)) < MOST_HELD

    def _wait_is_over(self, pull: SuspendedPull) -> None:
        # otherwise many replies that the peer does not read would accumulate
        if pull.channel.stalled:
            pull.channel.postpone(partial(self._wait_is_over, pull))
        else:
            self._pull_late(pull.request, pull.channel, may_hold=False)

    def _pull_late(
        self, header: dict[str, object], channel: Channel, may_hold: bool, reads: int = 0
    ) -> None:
        try:
            self._pull(header, channel, may_hold, reads)
        except Exception as error:  # Refused: its topic or group was changed while it waited
            channel.reply_error(request_of(header), error)


def _long(text: str) -> int:
    """Parse a number that is stored, and that Java must be able to read. Raises ValueError."""
    number = int(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{number} is not a 64-bit number")
    return number
