"""The layout of `mq group describe`."""

from typing import Any

from mq.cli.describing.parts import settings_data, settings_part
from mq.cli.show.ages import age, seconds
from mq.cli.show.result import Part, Result, Row
from mq.cli.show.times import iso
from mq.client.operations.columns import (
    columns_of,
    document_of,
    flag,
    nested,
    number,
    row_of,
    text,
    time,
)
from mq.client.operations.describing.group import GroupPage, MemberRow
from mq.client.operations.plurals import counted
from mq.client.operations.subjects.groups import QueueProgress

TOPICS = (
    text("topic", "Topic"),
    number("queues", "Queues"),
    number("lag", "Lag"),
    number("oldestAgeSeconds", ""),
    text("oldestAge", "Oldest waiting"),
    time("lastConsumed", "Last consumed"),
)
QUEUES = (
    *columns_of(QueueProgress)[:5],
    number("lag", "Lag"),
    number("oldestAgeSeconds", ""),
    text("oldestAge", "Oldest waiting"),
    *columns_of(QueueProgress)[6:],
)
DATA = (
    text("group", "Consumer group"),
    flag("online", "Whether a member is connected"),
    nested("pausedAt", "Brokers where consumption is disabled"),
    text("consumeType", "CONSUME_PASSIVELY: push; CONSUME_ACTIVELY: pull"),
    text("messageModel", "CLUSTERING or BROADCASTING"),
    text("consumeFrom", "Where it starts in a new queue"),
    number("lag", "Messages not consumed yet, with retries"),
    time("oldest", "Store time of the oldest message not consumed yet"),
    number("oldestAgeSeconds", "Its age"),
    number("consumeTps", "Messages consumed per second"),
    number("retries", "Messages waiting for a retry"),
    number("deadLetters", "Messages in the dead letter queue"),
    time("lastDeadLetter", "Store time of the last one"),
    nested("topics", "Each topic: queues, lag, oldest, lastConsumed"),
    nested("queues", "Each queue: offsets, lag, oldest, lastConsumed, client"),
    nested("members", "Each member: the reports of brokers and its own"),
    nested("disagreements", "Topics with different subscriptions: the subscription by client"),
    nested("goneTopics", "Subscribed topics that do not exist"),
    nested("settings", "Each setting: its values by broker, and whether they differ"),
)


def result(page: GroupPage, now: int, *, by_queue: bool) -> Result:
    """Return the page, by queue or by topic; `now` is in ms."""
    columns, rows = (QUEUES, _queue_rows(page, now)) if by_queue else (TOPICS, _rows(page, now))
    notes = [] if rows else ["Nothing consumed yet."]
    notes += [f"Members subscribe to topic {topic}, which does not exist." for topic in page.gone]
    parts = [
        Part(f"Consumer group {page.group}", facts=_facts(page, now)),
        Part("Queues" if by_queue else "Topics", columns, rows, notes=notes),
        _members(page),
        *_disagreements(page),
    ]
    if page.settings:
        parts.append(settings_part(page.settings, page.brokers))
    data = [_document(page, now)]
    return Result(columns, rows, failures=list(page.failures), data=data, parts=parts)


def _facts(page: GroupPage, now: int) -> list[tuple[Any, Any]]:
    lag = counted(page.progress.lag, "message")
    if (oldest := age(page.oldest_of_all, now)) is not None:
        lag += f", oldest waiting: {oldest}"
    state = [f"{len(page.there.met())} online" if page.there.met() else "none"]
    connection = page.connection
    if connection is not None:
        state += [item.name for item in (connection.message_model, connection.consume_type) if item]
    dead = page.dead
    letters = None if dead is None else counted(dead.count, "message")
    if dead is not None and dead.count:
        letters = f"{letters}, the last {age(dead.last, now)} ago; see: mq dlq show {page.group}"
    return [
        (text("", "Members"), ", ".join(state)),
        (text("", "Paused"), f"at {', '.join(page.paused_at)}" if page.paused_at else None),
        (text("", "Lag"), lag),
        (text("", "Consumes"), f"{page.progress.consume_tps:.2f} messages/s"),
        (text("", "Retries"), f"{counted(page.retries, 'message')} waiting"),
        (text("", "Dead letters"), letters),
    ]


def _rows(page: GroupPage, now: int) -> list[Row]:
    return [
        (row.topic, row.queues, row.lag, seconds(row.oldest, now), age(row.oldest, now),
         row.last_consumed)
        for row in page.topics()
    ]  # fmt: skip


def _queue_rows(page: GroupPage, now: int) -> list[Row]:
    return [_queue_row(page, queue, now) for queue in page.progress.queues]


def _queue_row(page: GroupPage, queue: QueueProgress, now: int) -> Row:
    oldest = page.oldest_in(queue)
    return (
        *row_of(queue)[:6],
        *(seconds(oldest, now), age(oldest, now)),
        *row_of(queue)[6:],
    )


def _members(page: GroupPage) -> Part:
    members = page.members()
    rows = [_member_row(one) for one in members]
    notes = [f"{one.client_id} did not answer: {one.problem}" for one in members if one.problem]
    return Part(
        "Members", columns_of(MemberRow), rows, notes=notes if rows else ["No member is connected."]
    )


def _member_row(one: MemberRow) -> Row:
    wanted = None if one.subscriptions is None else ", ".join(one.subscriptions)
    return (*row_of(one)[:-1], wanted)


def _disagreements(page: GroupPage) -> list[Part]:
    notes = [
        f"{one.topic}: {client} "
        + ("does not subscribe to it" if wanted is None else f"subscribes to {wanted}")
        for one in page.disagreements()
        for client, wanted in one.wanted
    ]
    head = "Members have different subscriptions, so messages are lost"
    return [Part(head, notes=notes)] if notes else []


def _document(page: GroupPage, now: int) -> dict[str, Any]:
    connection, dead = page.connection, page.dead
    names = [column.name for column in QUEUES]
    kind = connection and connection.consume_type
    model = connection and connection.message_model
    begin = connection and connection.consume_from_where
    return {
        "group": page.group,
        "online": connection is not None,
        "pausedAt": list(page.paused_at),
        "consumeType": kind.name if kind else None,
        "messageModel": model.name if model else None,
        "consumeFrom": begin.name if begin else None,
        "lag": page.progress.lag,
        "oldest": iso(page.oldest_of_all),
        "oldestAgeSeconds": seconds(page.oldest_of_all, now),
        "consumeTps": page.progress.consume_tps,
        "retries": page.retries,
        "deadLetters": None if dead is None else dead.count,
        "lastDeadLetter": None if dead is None else iso(dead.last),
        "topics": [
            {
                "topic": row.topic,
                "queues": row.queues,
                "lag": row.lag,
                "oldest": iso(row.oldest),
                "lastConsumed": iso(row.last_consumed),
            }
            for row in page.topics()
        ],
        "queues": [
            dict(zip(names, _queue_row(page, queue, now), strict=True))
            | {"lastConsumed": iso(queue.last_consumed), "oldest": iso(page.oldest_in(queue))}
            for queue in page.progress.queues
        ],
        "members": [
            document_of(one)
            | {
                "subscriptions": None if one.subscriptions is None else list(one.subscriptions),
                "problem": one.problem,
            }
            for one in page.members()
        ],
        "disagreements": [
            {"topic": one.topic, "wanted": dict(one.wanted)} for one in page.disagreements()
        ],
        "goneTopics": list(page.gone),
        "settings": settings_data(page.settings),
    }
