"""The monitor of mqadmin: org.apache.rocketmq.tools.monitor.MonitorService.

Java writes to its log file; this command prints the same lines.
"""

import time as clock
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import endless, gives
from mq.cli.runtime.errors import UsageError
from mq.cli.show.result import Result, Row
from mq.cli.time_expressions import seconds
from mq.client.operations import java_order
from mq.client.operations.columns import number, text, time
from mq.client.operations.consumption import consume_stats, group_broker
from mq.client.operations.errors import NotFound
from mq.client.operations.subjects import members
from mq.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.errors import MQError
    from mq.client.pull.pull_consumer import PullConsumer
    from mq.protocol.bodies import MessageQueue, OffsetWrapper

COMMANDS = {"consumer": ("startMonitoring",)}

_COLUMNS = (
    time("time", "Time"),
    text("kind", "Kind"),
    text("group", "Consumer group"),
    text("topic", "Topic"),
    text("clientId", "Client"),
    number("undoneTotal", "Lag"),
    number("undoneSingleQueue", "Lag of a queue"),
    number("delayMillis", "Lag (ms)"),
    text("problem", "Problem"),
)
_RULE = "[MONITOR] ========================================={}\n"


@endless
@gives(_COLUMNS)
async def start_monitoring(
    call: Call,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            metavar="SECONDS",
            parser=seconds,
            help="Time between rounds in seconds, or such as 1m.",
        ),
    ] = 60,
) -> AsyncIterator[Result]:
    """Watch all consumer groups for lag, different subscriptions, stuck members, and moved offsets.
    It runs until it is stopped. Groups without connected members are skipped.

    Examples:
        mq startMonitoring                        watch all groups, until Ctrl-C
        mq startMonitoring --interval 10 -o json  one document per line, every ten seconds
    """
    if interval < 0:
        raise UsageError(f"--interval: {interval:g} s")
    from mq.client.errors import MQError
    from mq.client.pull.pull_consumer import PullConsumer
    from mq.protocol.names import TOOLS_CONSUMER_GROUP

    async with call.admin() as admin:
        consumer = PullConsumer(admin.session, TOOLS_CONSUMER_GROUP)
        moved = _MovedOffsets(consumer)
        while True:
            now = int(call.environment.clock() * 1000)
            failures = []
            rows, plain = await moved.news()
            try:
                for group in await _groups(admin):
                    found, lines = await _group(admin, consumer, group, now)
                    rows += found
                    plain += lines
            except MQError as error:  # an unreachable name server may be back in the next round
                failures.append(str(error))
            plain = _RULE.format("beginRound") + plain + _RULE.format("endRound")
            yield Result(_COLUMNS, rows, plain, failures=failures)
            # Nothing else runs in this process, so blocking is harmless.
            clock.sleep(interval)  # noqa: ASYNC251


async def _groups(admin: "Admin") -> list[str]:
    from mq.cli import listing

    topics = java_order.hash_order(await listing.topic_names(admin.session))
    return [name.removeprefix(RETRY_PREFIX) for name in topics if name.startswith(RETRY_PREFIX)]


async def _group(
    admin: "Admin", consumer: "PullConsumer", group: str, now: int
) -> tuple[list[Row], str]:
    """Return a row for each topic of an online group, and one for each problem of its members."""
    from mq.client.errors import ConsumerNotOnline, MQError, RouteNotFound

    try:
        address = await group_broker(admin, group)
        connected = (await admin.consumer_connection(address, group)).connection_set
    except (ConsumerNotOnline, RouteNotFound, NotFound):
        return [], ""
    except MQError as error:
        return _unsaid(group, now, error)
    rows, plain = await _undone(admin, consumer, group, now)
    clients = sorted(item.client_id for item in connected)
    # as in Java, members that just left are skipped
    infos, _ = await members.running(admin, address, group, clients)
    notify = "[MONITOR]  [NOTIFY] reportConsumerRunningInfo: ConsumerGroup: "
    if infos and not members.same_subscriptions(infos, now):
        rows.append(_row(now, "notify", group, problem="Subscription different"))
        plain += f"{notify}{group}, Subscription different\n"
    for client, info in infos.items():
        for problem in members.stuck(client, info, now):
            rows.append(_row(now, "notify", group, client=client, problem=problem))
            plain += f"{notify}{group}, ClientId: {client}, {problem}\n"
    return rows, plain


def _unsaid(group: str, now: int, error: "MQError") -> tuple[list[Row], str]:
    """Return the row and line of a group whose broker answers with an error."""
    line = f"[MONITOR]  [NOTIFY] ConsumerGroup: {group}, {error}\n"
    return [_row(now, "notify", group, problem=str(error))], line


def _row(
    now: int,
    kind: str,
    group: str | None,
    *,
    topic: str | None = None,
    client: str | None = None,
    undone: tuple[int, int, int] | tuple[None, None, None] = (None, None, None),
    problem: str | None = None,
) -> Row:
    return (now, kind, group, topic, client, *undone, problem)


async def _undone(
    admin: "Admin", consumer: "PullConsumer", group: str, now: int
) -> tuple[list[Row], str]:
    from mq.client.errors import MQError, RouteNotFound

    try:
        offsets = (await consume_stats(admin, group)).offsets
    except (RouteNotFound, NotFound):
        return [], ""
    except MQError as error:
        return _unsaid(group, now, error)
    rows: list[Row] = []
    plain = ""
    for topic in java_order.hash_order(queue.topic for queue in offsets):
        mine = {queue: offsets[queue] for queue in sorted(offsets) if queue.topic == topic}
        total, single, delay = await _undone_messages(consumer, mine)
        rows.append(_row(now, "undone", group, topic=topic, undone=(total, single, delay)))
        plain += (
            f"[MONITOR] reportUndoneMsgs: UndoneMsgs [consumerGroup={group}, topic={topic}, "
            f"undoneMsgsTotal={total}, undoneMsgsSingleMQ={single}, "
            f"undoneMsgsDelayTimeMills={delay}]\n"
        )
    return rows, plain


async def _undone_messages(
    consumer: "PullConsumer", offsets: "dict[MessageQueue, OffsetWrapper]"
) -> tuple[int, int, int]:
    """Return the total lag, the largest lag of a queue, and the delay in ms (computeUndoneMsgs)."""
    total, single, delay = 0, 0, 0
    for queue, item in offsets.items():
        single, total = max(single, item.lag), total + max(item.lag, 0)
        if item.last_timestamp > 0 and (newest := await _newest(consumer, queue)):
            delay = max(delay, newest - item.last_timestamp)
    return total, single, delay


async def _newest(consumer: "PullConsumer", queue: "MessageQueue") -> int | None:
    """Return the store time of the last message of a queue, in ms."""
    from mq.client.errors import MQError

    try:
        end = await consumer.max_offset(queue)
        if end <= 0:
            return None
        pulled = await consumer.pull(queue, end - 1, max_count=1, decompress=False)
    except MQError:
        return None
    return pulled.messages[0].store_timestamp if pulled.messages else None


class _MovedOffsets:
    """Reads the events of brokers that gave a consumer another offset than it requested."""

    TOPIC = "OFFSET_MOVED_EVENT"  # TopicValidator.RMQ_SYS_OFFSET_MOVED_EVENT

    def __init__(self, consumer: "PullConsumer") -> None:
        self._consumer = consumer
        self._next: dict[MessageQueue, int] = {}

    async def news(self) -> tuple[list[Row], str]:
        """Return the events since the last call; none at the first call."""
        from mq.client.errors import MQError

        rows: list[Row] = []
        plain = ""
        try:
            for queue in await self._consumer.queues(self.TOPIC):
                end = await self._consumer.max_offset(queue)
                begin = self._next.get(queue, end)
                async for message in self._consumer.read(queue, begin, end):
                    row, line = _moved(bytes(message.body), message.store_timestamp)
                    rows.append(row)
                    plain += line
                self._next[queue] = end
        except MQError:
            pass  # the topic does not exist at brokers without such an event
        return rows, plain


def _moved(body: bytes, stored: int) -> tuple[Row, str]:
    from mq.cli.show.message_text import queue_text
    from mq.protocol.bodies import OffsetMovedEvent
    from mq.protocol.errors import RemoteProtocolError

    event: Any
    try:
        event = OffsetMovedEvent.decode(body)
    except RemoteProtocolError as error:
        return _row(stored, "deleted", None, problem=f"unreadable event: {error}"), ""
    queue = event.message_queue
    text_ = (
        f"OffsetMovedEvent [consumerGroup={event.consumer_group}, "
        f"messageQueue={queue_text(queue) if queue else 'null'}, "
        f"offsetRequest={event.offset_request}, offsetNew={event.offset_new}]"
    )
    problem = f"asked for offset {event.offset_request}, got {event.offset_new}"
    topic = queue.topic if queue else None
    row = _row(stored, "deleted", event.consumer_group, topic=topic, problem=problem)
    line = "[MONITOR] reportDeleteMsgsEvent: DeleteMsgsEvent [offsetMovedEvent="
    return row, f"{line}{text_}, eventTimestamp={stored}]\n"
