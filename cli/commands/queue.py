"""Commands about queues. Formats: org.apache.rocketmq.tools.command.queue and .topic."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli import java_text
from mq.cli.call import Call
from mq.cli.commands.topic import Topic
from mq.cli.effects import gives
from mq.cli.errors import UsageError
from mq.cli.result import Result, Row, number, text

if TYPE_CHECKING:
    from mq.protocol.bodies import MessageQueue, TopicRouteData


_ALLOCATION = (
    text("consumer", "Consumer"),
    text("brokerName", "Broker"),
    number("queueId", "Queue"),
)


@gives(_ALLOCATION)
async def allocate_mq(
    call: Call,
    topic: Topic,
    ip_list: Annotated[
        str,
        typer.Option("-i", "--ipList", metavar="ID[,…]", help="The consumers, with commas."),
    ],
) -> Result:
    """Show how the queues of a topic would be shared among consumers.

    The strategy is the usual one: each consumer gets a run of neighbouring queues. In plain the
    queues and consumers come in mqadmin's order, which is not sorted as consumers sort them, so
    that the runs differ; the other formats show what consumers with these ids do.
    """
    from mq.client.rebalance import allocate_averagely

    consumers = [part.strip() for part in ip_list.split(",") if part.strip()]
    if not consumers:
        raise UsageError("-i/--ipList: no consumer", hint="write ids with commas: -i a,b,c")
    async with call.admin() as admin:
        queues = _readable(topic, await admin.topic_route(topic))
    rows: list[Row] = [
        (consumer, queue.broker_name, queue.queue_id)
        for consumer in dict.fromkeys(consumers)
        for queue in allocate_averagely(consumer, queues, consumers)
    ]
    return Result(_ALLOCATION, rows, _java_allocation(queues, ip_list.split(",")))


def _readable(topic: str, route: "TopicRouteData") -> list["MessageQueue"]:
    from mq.protocol.bodies import MessageQueue
    from mq.protocol.flags import Permission

    return [
        MessageQueue(topic, item.broker_name, queue_id)
        for item in route.queue_datas
        if item.perm & Permission.READ
        for queue_id in range(item.read_queue_nums)
    ]


def _java_allocation(queues: list["MessageQueue"], consumers: list[str]) -> str:
    """What AllocateMQSubCommand prints: neither queues nor consumers are sorted."""
    from mq.protocol import fastjson

    ordered = java_text.hash_order(queues, java_text.queue_hash)
    size, more = divmod(len(ordered), len(consumers))
    shares: dict[str, Any] = {}
    for consumer in consumers:
        index = consumers.index(consumer)
        start = index * size + min(index, more)
        share = ordered[start : start + size + (index < more)]
        shares[consumer] = [
            {"brokerName": item.broker_name, "queueId": item.queue_id, "topic": item.topic}
            for item in share
        ]
    result = {name: shares[name] for name in java_text.hash_order(shares)}
    return fastjson.dumps({"result": result}).decode() + "\n"
