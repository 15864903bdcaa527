"""The commands of mqadmin that send. Formats: org.apache.rocketmq.tools.command.message."""

from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.call import Call
from mq.cli.effects import writes
from mq.cli.errors import NotFound, UsageError
from mq.cli.options import Truth
from mq.cli.result import Result, number, text
from mq.cli.runner import concurrently

if TYPE_CHECKING:
    from mq.client.producer import SendResult

Topic = Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC", help="Topic name.")]


@writes
@concurrently
async def send_message(
    call: Call,
    topic: Topic,
    body: Annotated[str, typer.Option("-p", "--body", metavar="TEXT", help="Body, as UTF-8.")],
    key: Annotated[
        str | None, typer.Option("-k", "--key", metavar="KEYS", help="Keys, blanks between them.")
    ] = None,
    tags: Annotated[str | None, typer.Option("-c", "--tags", metavar="TAG", help="Tag.")] = None,
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", metavar="NAME", help="To this broker.")
    ] = None,
    qid: Annotated[
        int | None, typer.Option("-i", "--qid", metavar="ID", help="To this queue of the broker.")
    ] = None,
    msg_trace_enable: Annotated[
        Truth, typer.Option("-m", "--msgTraceEnable", help="Also write a trace of it.")
    ] = Truth.FALSE,
) -> Result:
    """Send a message."""
    from mq.client.producer import Producer
    from mq.protocol.bodies import MessageQueue
    from mq.protocol.message import Message

    if qid is not None and broker is None:
        raise UsageError(
            "-i/--qid needs -b/--broker", hint="say which broker has the queue: mq topicRoute"
        )
    if qid is not None and qid < 0:
        raise UsageError(f"a queue id of {qid}")
    message = Message(topic, body.encode(), tags=tags, keys=(key or "").split())
    group = str(int(call.environment.clock() * 1000))
    async with Producer(
        call.name_servers,
        group,
        timeout=call.timeout,
        credentials=call.credentials(),
        tls=call.tls(),
    ) as producer:
        queue: MessageQueue | None = None
        if broker is not None:
            queues = [item for item in await producer.prepare(topic) if item.broker_name == broker]
            if not queues:
                raise NotFound(
                    f"broker {broker} has no queue of topic {topic} that can be written to",
                    hint=f"see: mq topicRoute -t {topic}",
                )
            queue = queues[0] if qid is None else MessageQueue(topic, broker, qid)
        clock = call.environment.clock
        began = clock()
        result = await producer.send(message, queue)
        if msg_trace_enable:
            from mq.cli.trace import send_trace

            await send_trace(producer, message, result, began, clock())
    return _sent(result)


def _sent(result: "SendResult") -> Result:
    line = "{:<32}  {:<4}  {:<20}    {}\n"
    queue, status = result.queue, str(result.status)
    plain = line.format("#Broker Name", "#QID", "#Send Result", "#MsgId")
    plain += line.format(queue.broker_name, queue.queue_id, status, result.message_id)
    columns = (
        text("brokerName", "Broker"),
        number("queueId", "Queue"),
        text("sendStatus", "Result"),
        text("messageId", "Message id"),
        text("offsetId", "Offset id"),
        number("queueOffset", "Offset"),
    )
    ids = result.message_id, result.offset_message_id, result.queue_offset
    return Result(columns, [(queue.broker_name, queue.queue_id, status, *ids)], plain)
