"""The commands of mqadmin that send.

Formats: SendMessageCommand and CheckMsgSendRTCommand of org.apache.rocketmq.tools.command.message,
SendMsgStatusCommand of …broker, CLusterSendMsgRTCommand of …cluster.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.messages.input import (
    Attributes,
    BrokerOption,
    Input,
    KeyOption,
    QueueOption,
    common_of,
)
from mq.cli.messages.send_summary import SENT, TOTALS
from mq.cli.parameters import Topic, cluster_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import endless, gives, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.option_groups import option_group
from mq.cli.runtime.options import Truth, subject
from mq.cli.runtime.runner import concurrently
from mq.cli.show import java_text, message_text
from mq.cli.show.result import Result, Row
from mq.cli.time_expressions import seconds
from mq.client.operations import java_order
from mq.client.operations.columns import flag, number, text

if TYPE_CHECKING:
    from mq.client.producer.producer import Producer, SendResult

COMMANDS = {
    "broker": ("sendMsgStatus",),
    "cluster": ("clusterRT",),
    "message": (
        "sendMessage",
        "checkMsgSendRT",
    ),
}


Size = Annotated[int, typer.Option("-s", "--size", metavar="BYTES", help="Size of each message.")]

_SENT = (
    text("brokerName", "Broker"),
    number("queueId", "Queue"),
    text("sendStatus", "Result"),
    text("messageId", "Message id"),
    text("offsetId", "Offset id"),
    number("queueOffset", "Offset"),
)


@gives(_SENT, SENT, totals=TOTALS)
@writes
@concurrently
@subject("topic", "body")
async def send_message(
    call: Call,
    topic: Topic,
    body: Annotated[
        str | None,
        typer.Option(
            "-p", "--body", metavar="TEXT", help="Body, as UTF-8. Default: read the input."
        ),
    ] = None,
    key: KeyOption = None,
    tags: Annotated[str | None, typer.Option("-c", "--tags", metavar="TAG", help="Tag.")] = None,
    *,
    attributes: Attributes,
    broker: BrokerOption = None,
    qid: QueueOption = None,
    msg_trace_enable: Annotated[
        Truth, typer.Option("-m", "--msgTraceEnable", help="Write a trace, too.")
    ] = Truth.FALSE,
    input: Input,
) -> Result:
    """Send a message, or a message for each line of standard input or of a file.

    Without a body it reads the input as mq produce does (see there). Brokers with
    autoCreateTopicEnable create a missing topic, as with mqadmin; mq produce asks or refuses.

    Examples:
        mq sendMessage Orders '{"order": 1}' -k order-1 -c paid
                                                 send a message with key and tag
        mq sendMessage Orders -p paid --delay 15m
                                                 deliver it in 15 minutes
        mq sendMessage Orders -f orders.txt      send a message for each line
    """
    from mq.cli.messages.producing import Run, check_queue, ready, targets

    common = common_of(topic, tags, key, attributes)
    if body is None:
        trace = bool(msg_trace_enable)
        run = Run(call, _group(call), input, common, broker, qid, trace=trace, create=None)
        result = await run.send()
        if not (call.dry_run or result.rows or result.failures):
            # mqadmin reported scripts that lost the value of -p.
            raise UsageError("no message: there is no -p/--body, and the input is empty")
        return result
    if input != Input():
        raise UsageError("-p/--body is the message: leave out the options for input lines")
    check_queue(broker, qid)
    async with call.producer(_group(call), trace=bool(msg_trace_enable)) as producer:
        queue = None
        if broker is not None:
            queue = (await targets(producer, topic, broker, qid))[0]
        message = await ready(producer, common, body)
        sent = await producer.send(message, queue)
    return _sent(sent)


def _group(call: Call) -> str:
    return str(int(call.environment.clock() * 1000))


def _sent(result: "SendResult") -> Result:
    line = "{:<32}  {:<4}  {:<20}    {}\n"
    queue, status = result.queue, str(result.status)
    plain = line.format("#Broker Name", "#QID", "#Send Result", "#MsgId")
    plain += line.format(queue.broker_name, queue.queue_id, status, result.message_id)
    ids = result.message_id, result.offset_message_id, result.queue_offset
    return Result(_SENT, [(queue.broker_name, queue.queue_id, status, *ids)], plain)


_STATUS_COLUMNS = (
    text("topic", "Topic"),
    text("brokerName", "Broker"),
    number("queueId", "Queue"),
    number("queueOffset", "Offset"),
    text("sendStatus", "Result"),
    text("messageId", "Message id"),
    number("roundTripMillis", "Took (ms)"),
)


@writes
@concurrently
@gives(_STATUS_COLUMNS)
@subject("broker_name")
async def send_msg_status(
    call: Call,
    broker_name: Annotated[
        str,
        typer.Option(
            "-b", "--brokerName", metavar="NAME", help="Name of the broker, and of the topic."
        ),
    ],
    message_size: Annotated[
        int, typer.Option("-s", "--messageSize", metavar="BYTES", help="Size of each message.")
    ] = 128,
    count: Annotated[
        int, typer.Option("-c", "--count", metavar="N", help="Number of messages.")
    ] = 50,
) -> AsyncIterator[Result]:
    """Measure how long sends to a broker take.

    It sends to the topic with the broker's name, which every broker has. The first message, of 16
    bytes, is not shown: its time includes the connection.

    Examples:
        mq sendMsgStatus broker-a                time 50 sends of 128 bytes
        mq sendMsgStatus broker-a -c 10 -s 4096  ten of 4 KiB
    """
    from mq.protocol.message import Message

    _positive("-s/--messageSize", message_size)
    _positive("-c/--count", count)
    group, clock = "PID_SMSC", call.environment.clock
    async with call.producer(group) as producer:
        await producer.send(Message(broker_name, _GREETING * 2))
        for _ in range(count):
            began = clock()
            result = await producer.send(Message(broker_name, _GREETING * -(-message_size // 11)))
            took = _milliseconds(began, clock())
            queue, status = result.queue, str(result.status)
            where = queue.topic, queue.broker_name, queue.queue_id, result.queue_offset
            plain = f"rt={took}ms, SendResult={message_text.send_result_text(result)}\n"
            row: Row = (*where, status, result.message_id, took)
            yield Result(_STATUS_COLUMNS, [row], plain)


_GREETING = b"hello jodie"  # the text that Java's command sends; bodies are repetitions of it


def _positive(flags: str, value: int) -> None:
    if value <= 0:
        raise UsageError(f"{flags} must be positive")


def _milliseconds(began: float, ended: float) -> int:
    return int(ended * 1000) - int(began * 1000)


_ROUND_TRIP_COLUMNS = (
    text("brokerName", "Broker"),
    number("queueId", "Queue"),
    flag("sent", "Sent"),
    number("roundTripMillis", "Took (ms)"),
)


@writes
@concurrently
@gives(_ROUND_TRIP_COLUMNS, totals=(number("averageMillis", "Mean without the first (ms)"),))
@subject("topic")
async def check_msg_send_rt(
    call: Call,
    topic: Topic,
    amount: Annotated[
        int, typer.Option("-a", "--amount", metavar="N", help="Number of messages.")
    ] = 100,
    size: Size = 128,
) -> AsyncIterator[Result]:
    """Measure how long sends to each queue of a topic take.

    The average leaves out the first, whose time includes the connection.

    Examples:
        mq checkMsgSendRT Orders -a 10  time ten sends of 128 bytes
        mq checkMsgSendRT Orders -a 10 -s 4096 -o table
                                        ten of 4 KiB
    """
    from mq.client.errors import MQError
    from mq.protocol.message import Message

    _positive("-a/--amount", amount)
    _positive("-s/--size", size)
    line, clock = "{:<32}  {:<4}  {:<20}    {}\n", call.environment.clock
    total = 0
    async with call.producer(_group(call)) as producer:
        queues = await producer.prepare(topic)
        plain = line.format("#Broker Name", "#QID", "#Send Result", "#RT")
        for index in range(amount):
            queue, failures = queues[index % len(queues)], []
            began = clock()
            try:
                await producer.send(Message(topic, b"a" * size), queue)
            except MQError as error:
                failures.append(str(error))
            took = _milliseconds(began, clock())
            total += took if index else 0
            where = queue.broker_name, queue.queue_id
            plain += line.format(*where, java_text.truth(not failures), took)
            row: Row = (*where, not failures, took)
            yield Result(_ROUND_TRIP_COLUMNS, [row], plain, failures=failures)
            plain = ""
    average = total / (amount - 1) if amount > 1 else None
    totals = {"averageMillis": None if average is None else round(average, 2)}
    plain = f"Avg RT: {_fixed(average)}\n"
    yield Result(_ROUND_TRIP_COLUMNS, [], plain, totals=totals)


def _fixed(mean: float | None) -> str:
    """Return a mean in ms as Java writes it: 0/0 for a single message."""
    return java_text.fixed(float("nan") if mean is None else mean, 2)


_CLUSTER_COLUMNS = (
    text("cluster", "Cluster"),
    text("brokerName", "Broker"),
    number("roundTripMillis", "Mean (ms)"),
    number("successCount", "Sent"),
    number("failCount", "Failed"),
)
_CLUSTER_HEAD = "{:<24}  {:<24}  {:<4}  {:<8}  {:<8}\n"
_CLUSTER_LINE = "{:<24}  {:<24}  {:<8}  {:<16}  {:<16}\n"


@option_group
class ForLogs:
    """Options for log lines."""

    print_log: Annotated[
        Truth, typer.Option("-p", "--printLog", help="Print lines for logs, separated by |.")
    ] = Truth.FALSE
    machine_room: Annotated[
        str,
        typer.Option(
            "-m", "--machineRoom", metavar="NAME", help="Machine room named in those lines."
        ),
    ] = "noname"

    def line(self, call: Call, cluster_name: str, broker: str, mean: float | None) -> str:
        """Return the log line of one round at one broker; the mean of a single message is 0."""
        where = f"{_time_in_china(call)}|{self.machine_room}|{cluster_name}|{broker}"
        return f"{where}|{java_text.fixed(mean or 0, 0)}\n"


@writes
@endless
@concurrently
@gives(_CLUSTER_COLUMNS)
@subject("cluster_name")
async def cluster_rt(
    call: Call,
    amount: Annotated[
        int, typer.Option("-a", "--amount", metavar="N", help="Messages to each broker per round.")
    ] = 100,
    size: Size = 128,
    cluster_name: Annotated[
        str | None, cluster_option("Only this cluster.", name="--cluster")
    ] = None,
    *,
    logs: ForLogs,
    interval: Annotated[
        float,
        typer.Option(
            "-i",
            "--interval",
            metavar="SECONDS",
            parser=seconds,
            help="Time between rounds in seconds, or such as 1m.",
        ),
    ] = 10,
) -> AsyncIterator[Result]:
    """Measure how long sends to every broker take, repeatedly.
    It sends to the topic with each broker's name, and runs until it is stopped.

    Examples:
        mq clusterRT -a 10 -i 5  time 10 sends a broker every 5 s
        mq clusterRT DefaultCluster -a 10 -p true -m zone-1
                                 as lines for a log
    """
    import asyncio

    from mq.client.operations import cluster

    _positive("-a/--amount", amount)
    _positive("-s/--size", size)
    if interval < 0:
        raise UsageError(f"-i/--interval: {interval:g} s")
    async with call.producer(_group(call)) as producer:
        info = await cluster.clusters(producer.session)
        names = [cluster_name] if cluster_name else java_order.hash_order(info.cluster_addr_table)
        brokers = [(name, broker) for name in names for broker in cluster.broker_names(info, name)]
        head = "" if logs.print_log else _CLUSTER_HEAD.format(*_CLUSTER_HEADS)
        while True:
            for name, broker in brokers:
                times, failures = await _probe(call, producer, broker, amount, size)
                mean = sum(times[1:]) / (amount - 1) if amount > 1 else None
                counts = amount - len(failures), len(failures)
                if logs.print_log:
                    plain = logs.line(call, name, broker, mean)
                else:
                    plain = _CLUSTER_LINE.format(name, broker, _fixed(mean), *counts)
                known = None if mean is None else round(mean, 2)
                lines = [f"{broker}: {why} ({len(failures)} of {amount})" for why in failures[-1:]]
                row: Row = (name, broker, known, *counts)
                yield Result(_CLUSTER_COLUMNS, [row], head + plain, failures=lines)
                head = ""
            await asyncio.sleep(interval)


_CLUSTER_HEADS = "#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount"


async def _probe(
    call: Call, producer: "Producer", broker: str, amount: int, size: int
) -> tuple[list[int], list[str]]:
    """Return the time of each message in ms, and the failures."""
    from mq.client.errors import MQError
    from mq.protocol.message import Message

    times, failures, clock = [], [], call.environment.clock
    for _ in range(amount):
        began = clock()
        try:
            await producer.send(Message(broker, b"a" * size))
        except MQError as error:
            failures.append(str(error))
        times.append(_milliseconds(began, clock()))
    return times, failures


def _time_in_china(call: Call) -> str:
    """Return the time that CLusterSendMsgRTCommand.getCurTime writes: always GMT+8."""
    from datetime import UTC, datetime, timedelta

    when = datetime.fromtimestamp(call.environment.clock(), UTC) + timedelta(hours=8)
    return f"{when:%Y-%m-%d %H:%M:%S}"
