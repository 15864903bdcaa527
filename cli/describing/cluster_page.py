"""The layout of `mq cluster describe`."""

from typing import Any

from mq.cli.show.result import Part, Result, Row
from mq.cli.show.times import iso
from mq.client.operations.columns import columns_of, document_of, nested, number, row_of, text
from mq.client.operations.describing.cluster import BrokerRow, ClusterPage, TopicRow

BROKERS = columns_of(BrokerRow)
_SERVERS = (
    text("address", "Address"),
    text("state", "State"),
    number("brokers", "Brokers known"),
)
TOPICS = columns_of(TopicRow)
DATA = (
    nested("nameServers", "Each name server: address, registered brokers, problem"),
    nested("brokers", "Each broker: role, address, release, rates, disk, oldest message, problem"),
    number("topics", "Topics, without those of the system and of groups"),
    number("groups", "Consumer groups, without those of the system"),
    nested("topicQueues", "With --topics each topic at each broker: queues, permission"),
)


def result(page: ClusterPage, *, with_topics: bool) -> Result:
    """Return the page; its csv table has brokers, or topics."""
    rows = [row_of(row) for row in page.brokers]
    servers: list[Row] = [
        (row.address, row.problem or "answers", row.brokers) for row in page.name_servers
    ]
    topics = [row_of(row) for row in page.topics or ()]
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


def _document(page: ClusterPage, *, with_topics: bool) -> dict[str, Any]:
    return {
        "nameServers": [
            {"address": row.address, "brokers": row.brokers, "problem": row.problem}
            for row in page.name_servers
        ],
        "brokers": [
            document_of(row) | {"earliestMessage": iso(row.oldest), "problem": row.problem}
            for row in page.brokers
        ],
        "topics": None if page.topics is None else len(page.topic_names),
        "groups": None if page.groups is None else len(page.groups),
        "topicQueues": [document_of(row) for row in page.topics or ()] if with_topics else None,
    }
