"""Commands about queues. Formats: org.apache.rocketmq.tools.command.queue and .topic."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.parameters import Topic, cluster_option, topic_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.options import subject
from mq.cli.show import java_text
from mq.cli.show.result import Result, Row
from mq.cli.time_expressions import FORMS
from mq.cli.time_expressions import parse as parse_moment
from mq.client.operations import cluster, java_order
from mq.client.operations.columns import flag, number, text
from mq.client.operations.errors import NotFound

if TYPE_CHECKING:
    from mq.protocol.bodies import MessageQueue, QueryConsumeQueueResponseBody, TopicRouteData

COMMANDS = {
    "topic": ("allocateMQ",),
    "queue": (
        "queryCq",
        "checkRocksdbCqWriteProgress",
    ),
}


_ALLOCATION = (
    text("consumer", "Consumer"),
    text("brokerName", "Broker"),
    number("queueId", "Queue"),
)


@gives(_ALLOCATION)
@subject("topic", "ip_list")
async def allocate_mq(
    call: Call,
    topic: Topic,
    ip_list: Annotated[
        str,
        typer.Option(
            "-i", "--ipList", metavar="ID[,…]", help="Ids of the consumers, separated by commas."
        ),
    ],
) -> Result:
    """Show how the queues of a topic would be assigned to consumers.
    It uses the default strategy: each consumer gets adjacent queues. Plain output keeps mqadmin's
    order of queues and consumers, which is not the sorted order of real consumers, so assignments
    differ; the other formats show what consumers with these ids do.

    Examples:
        mq allocateMQ Orders 10.0.0.1,10.0.0.2  queues of each consumer
        mq allocateMQ Orders 10.0.0.1,10.0.0.2 -o table
                                                as consumers with these ids do it
    """
    from mq.client.reader.rebalance import allocate_averagely

    consumers = [part.strip() for part in ip_list.split(",") if part.strip()]
    if not consumers:
        raise UsageError("-i/--ipList: no consumer", hint="separate ids with commas: -i a,b,c")
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
    """Return the output of AllocateMQSubCommand: neither queues nor consumers are sorted."""
    from mq.protocol import fastjson

    ordered = java_order.hash_order(queues, java_order.queue_hash)
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
    result = {name: shares[name] for name in java_order.hash_order(shares)}
    return fastjson.dumps({"result": result}).decode() + "\n"


_ENTRIES = (
    number("index", "Index"),
    number("physicOffset", "Offset in log"),
    number("physicSize", "Size"),
    number("tagsCode", "Tags code"),
    flag("eval", "Matches"),
    text("extendDataJson", "Extension"),
    text("bitMap", "Bit map"),
    text("msg", "Note"),
)

_RULE = "======================================\n"


@gives(_ENTRIES, totals=(number("maxQueueIndex", "End"), number("minQueueIndex", "Start")))
@subject("topic", "queue", "index")
async def query_cq(
    call: Call,
    topic: Topic,
    queue: Annotated[int, typer.Option("-q", "--queue", metavar="ID", help="Queue id.")],
    index: Annotated[
        int, typer.Option("-i", "--index", metavar="OFFSET", help="Offset of the first entry.")
    ],
    count: Annotated[
        int, typer.Option("-c", "--count", metavar="N", help="Number of entries.")
    ] = 10,
    broker: Annotated[
        str | None,
        typer.Option(
            "-b",
            "--broker",
            metavar="HOST:PORT",
            help="Address of the broker. Default: the topic's first.",
        ),
    ] = None,
    consumer: Annotated[
        str | None,
        typer.Option(
            "-g",
            "--consumer",
            metavar="GROUP",
            help="Show whether the filter of this group matches them.",
        ),
    ] = None,
) -> Result:
    """Show the entries of a consume queue, a broker's index of messages.

    Examples:
        mq queryCq Orders 0 0                  the first ten entries of queue 0
        mq queryCq Orders 0 0 -c 1 -g billing  one, and whether the group's filter matches
    """
    if index < 0 or count < 1 or queue < 0:
        raise UsageError("-q/--queue and -i/--index must be 0 or more, -c/--count 1 or more")
    async with call.admin() as admin:
        if not broker:
            brokers = (await admin.topic_route(topic)).broker_datas
            if not brokers:
                raise NotFound(f"topic {topic} has no broker now")
            broker = cluster.any_address(brokers[0])
        found = await admin.consume_queue(broker, topic, queue, index, count, consumer)
    if not found.queue_data:
        raise NotFound(
            f"queue {queue} of topic {topic} has no entry {index} at {broker}",
            hint=f"see: mq topicStatus -t {topic}",
        )
    rows: list[Row] = [
        (number_, item.physic_offset, item.physic_size, item.tags_code, item.eval,
         item.extend_data_json, item.bit_map, item.msg)
        for number_, item in enumerate(found.queue_data, index)
    ]  # fmt: skip
    totals = {"maxQueueIndex": found.max_queue_index, "minQueueIndex": found.min_queue_index}
    return Result(_ENTRIES, rows, _queue_text(found, index), totals=totals)


def _queue_text(found: "QueryConsumeQueueResponseBody", index: int) -> str:
    from mq.protocol import fastjson

    plain = ""
    if found.subscription_data is not None:
        subscription = found.subscription_data.to_plain()
        for name in ("codeSet", "tagsSet"):  # Java writes a set in one line
            subscription[name] = tuple(subscription.get(name, ()))
        shown = fastjson.dumps_pretty(subscription).decode()
        plain += f"Subscription data: \n{shown}\n{_RULE}"
    if found.filter_data is not None:
        plain += f"Filter data: \n{found.filter_data}\n{_RULE}"
    plain += f"Queue data: \nmax: {found.max_queue_index}, min: {found.min_queue_index}\n{_RULE}"
    for number_, item in enumerate(found.queue_data, index):
        texts = ["null" if value is None else value for value in (
            item.extend_data_json, item.bit_map, item.msg)]  # fmt: skip
        plain += (
            f"idx: {number_}\nConsumeQueueData{{physicOffset={item.physic_offset}, "
            f"physicSize={item.physic_size}, tagsCode={item.tags_code}, "
            f"extendDataJson='{texts[0]}', bitMap='{texts[1]}', "
            f"eval={java_text.truth(item.eval)}, msg='{texts[2]}'}}\n{_RULE}"
        )
    return plain


_PROGRESS = (
    text("brokerName", "Broker"),
    text("brokerAddr", "Address"),
    text("status", "Status"),
    text("result", "Result"),
)

# CheckRocksdbCqWriteResult.CheckStatus
_CHECKS = {0: "same", 1: "different", 2: "in progress", 3: "error"}
_CHECK_ERROR = 3


@gives(_PROGRESS)
@subject("cluster_name")
async def check_rocksdb_cq_write_progress(
    call: Call,
    cluster_name: Annotated[
        str,
        cluster_option("Every master of this cluster.", name="--cluster"),
    ],
    nameserver_addr: Annotated[
        str | None,
        typer.Option("--nameserverAddr", metavar="HOST:PORT[;…]", help="The same as -n."),
    ] = None,
    topic: Annotated[str, topic_option("Only this topic.")] = "",
    check_from: Annotated[
        str | None,
        typer.Option(
            "-cf", "--checkFrom", metavar="TIME", help=f"Only messages stored since then: {FORMS}."
        ),
    ] = None,
) -> Result:
    """Let brokers compare their consume queues in RocksDB with those in files (5.x brokers).

    The broker compares the last 30 days, or since --checkFrom, and writes the result to its log.

    Examples:
        mq checkRocksdbCqWriteProgress DefaultCluster
                                        let every master compare its queues
        mq checkRocksdbCqWriteProgress DefaultCluster -t Orders
                                        of one topic
    """
    from mq.cli.runtime.release import since_5
    from mq.client.transport.caller import parse_name_servers

    if nameserver_addr is not None:
        call.name_servers = list(parse_name_servers(nameserver_addr))
    since = parse_moment(check_from or "30d", "-cf/--checkFrom", call.environment.clock())
    async with call.admin() as admin:
        info = await cluster.clusters(admin.session)
        masters = cluster.masters(info, cluster_name)
        done, failures = await cluster.at_each(
            admin,
            masters,
            since_5(call.name, lambda each, at: each.check_rocksdb_progress(at, topic, since)),
        )
    rows: list[Row] = []
    plain = ""
    for address, found in done.items():
        name = cluster.broker_name(info, address)
        rows.append((name, address, _CHECKS.get(found.check_status), found.check_result))
        if found.check_status == _CHECK_ERROR:
            plain += f"{name} check error, please check log... errInfo: {found.check_result}"
            failures.append(f"{address}: {found.check_result}")
        else:
            plain += f"{name} check doing, please wait and get the result from log... \n"
    return Result(_PROGRESS, rows, plain, failures=failures)
