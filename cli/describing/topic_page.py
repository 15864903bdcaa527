"""The layout of `mq topic describe`."""

from typing import Any

from mq.cli.describing.parts import settings_data, settings_part
from mq.cli.show.ages import age, seconds
from mq.cli.show.result import Part, Result, Row
from mq.cli.show.times import iso
from mq.client.operations.columns import columns_of, document_of, nested, number, row_of, text, time
from mq.client.operations.describing.topic import GroupRow, TopicPage
from mq.client.operations.plurals import counted
from mq.client.operations.subjects.topics import QueueStatus

QUEUES = (
    text("brokerName", "Broker"),
    number("queueId", "Queue"),
    number("minOffset", "Min"),
    number("maxOffset", "Max"),
    number("messages", "Messages"),
    time("oldest", "Oldest"),
    time("newest", "Newest"),
)
_ROUTE = (
    text("cluster", "Cluster"),
    text("brokerName", "Broker"),
    text("brokerAddrs", "Addresses"),
    number("readQueueNums", "Read"),
    number("writeQueueNums", "Write"),
    text("perm", "Perm"),
)
DATA = (
    text("topic", "Topic"),
    number("messages", "Messages in its queues"),
    time("oldest", "Store time of the oldest message"),
    number("oldestAgeSeconds", "Its age"),
    time("newest", "Store time of the newest message"),
    number("inTps", "Messages received per second, over the last minute"),
    nested("route", "Each broker: cluster, addresses by id, queues, permission"),
    nested("queues", "Each queue: offsets, messages, oldest, newest"),
    nested("groups", "Each consumer group: members, lag, messages per second"),
    nested("settings", "Each setting: its values by broker, and whether they differ"),
)


def result(page: TopicPage, now: int) -> Result:
    """Return the page; `now` is in ms."""
    rows = [_queue_row(page, queue) for queue in page.queues]
    groups = [row_of(row) for row in page.groups]
    brokers = tuple(row.broker_name for row in page.route)
    parts = [
        Part(f"Topic {page.topic}", facts=_facts(page, now)),
        Part("Route (queues to read and write)", _ROUTE, _route_rows(page)),
        Part("Queues", QUEUES, rows),
        Part(
            "Consumer groups",
            columns_of(GroupRow),
            groups,
            notes=[] if groups else ["No group has consumed it."],
        ),
    ]
    if page.settings:
        parts.append(settings_part(page.settings, brokers))
    data = [_document(page, now)]
    return Result(QUEUES, rows, failures=list(page.failures), data=data, parts=parts)


def _facts(page: TopicPage, now: int) -> list[tuple[Any, Any]]:
    rate = None if page.in_rate is None else f"{page.in_rate:.2f} messages/s"
    oldest, newest = age(page.oldest_of_all, now), age(page.newest, now)
    return [
        (text("", "Messages"), f"{page.messages:,} in {counted(len(page.queues), 'queue')}"),
        (text("", "Oldest"), None if oldest is None else f"{oldest} ago"),
        (text("", "Newest"), None if newest is None else f"{newest} ago"),
        (text("", "Incoming"), rate),
    ]


def _route_rows(page: TopicPage) -> list[Row]:
    from mq.protocol.flags import permission_text

    return [
        (
            row.cluster,
            row.broker_name,
            ", ".join(f"{broker_id}: {address}" for broker_id, address in row.broker_addrs),
            row.read_queue_nums,
            row.write_queue_nums,
            permission_text(row.perm),
        )
        for row in page.route
    ]


def _queue_row(page: TopicPage, queue: QueueStatus) -> Row:
    count = queue.max_offset - queue.min_offset
    oldest = page.oldest.get((queue.broker_name, queue.queue_id))
    where = (queue.broker_name, queue.queue_id, queue.min_offset, queue.max_offset, count)
    return (*where, oldest, queue.last_updated)


def _document(page: TopicPage, now: int) -> dict[str, Any]:
    names = [column.name for column in QUEUES]
    queues = []
    for queue in page.queues:
        values = dict(zip(names, _queue_row(page, queue), strict=True))
        queues.append(values | {name: iso(values[name]) for name in ("oldest", "newest")})
    return {
        "topic": page.topic,
        "messages": page.messages,
        "oldest": iso(page.oldest_of_all),
        "oldestAgeSeconds": seconds(page.oldest_of_all, now),
        "newest": iso(page.newest),
        "inTps": page.in_rate,
        "route": [
            {
                "cluster": row.cluster,
                "brokerName": row.broker_name,
                "brokerAddrs": {str(broker_id): at for broker_id, at in row.broker_addrs},
                "readQueueNums": row.read_queue_nums,
                "writeQueueNums": row.write_queue_nums,
                "perm": row.perm,
            }
            for row in page.route
        ],
        "queues": queues,
        "groups": [document_of(row) for row in page.groups],
        "settings": settings_data(page.settings),
    }
