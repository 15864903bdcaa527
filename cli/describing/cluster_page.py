"""The layout of `mq cluster describe`."""

from typing import Any

from mq.cli.show.result import Part, Result, Row, nested, number, text, time
from mq.cli.show.times import iso
from mq.client.operations.describing.cluster import BrokerRow, ClusterPage

BROKERS = (
    text("cluster", "Cluster"),
    text("brokerName", "Broker"),
    number("brokerId", "Id"),
    text("role", "Role"),
    text("brokerAddr", "Address"),
    text("version", "Version"),
    number("inTps", "In/s"),
    number("outTps", "Out/s"),
    number("diskRatio", "Disk"),
    time("earliestMessage", ""),
)
_SERVERS = (
    text("address", "Address"),
    text("state", "State"),
    number("brokers", "Brokers known"),
)
TOPICS = (
    text("topic", "Topic"),
    text("brokerName", "Broker"),
    number("readQueueNums", "Read"),
    number("writeQueueNums", "Write"),
    text("perm", "Perm"),
)
DATA = (
    nested("nameServers", "Each name server: address, registered brokers, problem"),
    nested("brokers", "Each broker: role, address, release, rates, disk, oldest message, problem"),
    number("topics", "Topics, without those of the system and of groups"),
    number("groups", "Consumer groups, without those of the system"),
    nested("topicQueues", "With --topics each topic at each broker: queues, permission"),
)


def result(page: ClusterPage, *, with_topics: bool) -> Result:
    """Return the page; its csv table has brokers, or topics."""
    rows = [_broker_row(row) for row in page.brokers]
    servers: list[Row] = [
        (row.address, row.problem or "answers", row.brokers) for row in page.name_servers
    ]
    topics = _topic_rows(page)
    parts = [
        Part("Name servers", _SERVERS, servers),
        Part("Brokers", BROKERS, rows, notes=[] if rows else ["No broker is registered."]),
        Part("Contents", facts=_facts(page)),
    ]
    if with_topics:
        parts.append(Part("Topics", TOPICS, topics, notes=[] if topics else ["No topics."]))
    data = [_document(page, with_topics=with_topics)]
    columns, table = (TOPICS, topics) if with_topics else (BROKERS, rows)
    return Result(columns, table, failures=list(page.failures), data=data, parts=parts)


def _facts(page: ClusterPage) -> list[tuple[Any, Any]]:
    groups = None if page.groups is None else len(page.groups)
    return [
        (number("", "Topics"), None if page.topics is None else len(page.topic_names)),
        (number("", "Consumer groups"), groups),
    ]


def _broker_row(row: BrokerRow) -> Row:
    return (
        *(row.cluster, row.name, row.broker_id, row.role, row.address, row.version),
        *(row.in_rate, row.out_rate, row.disk, row.oldest),
    )


def _topic_rows(page: ClusterPage) -> list[Row]:
    from mq.protocol.flags import permission_text

    return [
        (row.topic, row.broker, row.read_queues, row.write_queues, permission_text(row.perm))
        for row in page.topics or ()
    ]


def _document(page: ClusterPage, *, with_topics: bool) -> dict[str, Any]:
    names = [column.name for column in BROKERS]
    return {
        "nameServers": [
            {"address": row.address, "brokers": row.brokers, "problem": row.problem}
            for row in page.name_servers
        ],
        "brokers": [
            dict(zip(names, _broker_row(row), strict=True))
            | {"earliestMessage": iso(row.oldest), "problem": row.problem}
            for row in page.brokers
        ],
        "topics": None if page.topics is None else len(page.topic_names),
        "groups": None if page.groups is None else len(page.groups),
        "topicQueues": [
            dict(zip([column.name for column in TOPICS], row, strict=True))
            for row in _topic_rows(page)
        ]
        if with_topics
        else None,
    }
