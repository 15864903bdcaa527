"""A topic live: its new messages, as long as the page is open."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from mq.client.operations.messages.search import Hit, Search
from mq.client.operations.messages.tailing import Tail
from mq.daemons.console.call import Call
from mq.daemons.console.pages.message_rows import (
    MessageRow,
    check_bodies,
    row,
    rows,
    sees_bodies,
    session_for,
    topic_names,
    turn,
)
from mq.daemons.console.pages.messages import BUDGET, wanted_of
from mq.daemons.console.permissions import Permission
from mq.daemons.console.route import (
    N_,
    Event,
    Page,
    Query,
    Redirect,
    Route,
    Stream,
    Values,
)
from mq.daemons.console.template_filters import moment_text, plain

PAUSE_SECONDS = 0.2  # between two events: users cannot read more than five per second
MOST_AT_ONCE = 50  # messages per event; the others are counted
QUIET_SECONDS = 1.0  # without messages: the numbers are sent after this time
QUERY = (
    Query("tag", about=N_('A tag, or several: "a || b"')),
    Query("sql", about=N_("An SQL92 expression over properties")),
    Query("text", about=N_("Text in the body")),
)
_UNASKED: Values = dict.fromkeys(("from", "to", "broker", "queue", "key", "property"))


@dataclass(frozen=True, slots=True)
class Topics:
    """The page before a topic is chosen."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest matching messages of a topic, before the first event."""

    topic: str
    messages: tuple[MessageRow, ...]
    failures: tuple[str, ...]
    bodies: bool


async def choose(call: Call) -> Page | Redirect:
    """Choose the topic to follow."""
    topic = call.query["topic"]
    if topic:
        return Redirect(f"/tail/{quote(topic.strip(), safe='')}")
    return Page(
        "messages/topic.html",
        call.text("Live tail"),
        Topics(topic_names(call)),
        extra={"action": "/tail", "button": call.text("Follow")},
    )


def _full(call: Call) -> Call:
    """Return the call with all parameters of a search. Raises Forbidden without permission."""
    if call.query["text"] or call.query["sql"]:
        check_bodies(call, call.path["topic"])
    return Call(
        call.cluster, call.path, {**_UNASKED, "size": "50", **call.query}, call.user, call.texts,
        call.now, call.zone, call.client, call.id, call.note,
    )  # fmt: skip


async def show(call: Call) -> Page:
    """Show the newest messages; a script adds new ones."""
    topic = call.path["topic"]
    wanted = wanted_of(_full(call), topic)
    bodies = sees_bodies(call, topic)
    if bodies:
        call.viewed(topic, "bodies in a list")
    async with turn(call.cluster):
        found = await Search(session_for(call, topic), wanted, BUDGET, keep=1024).run()
    command = ["tail", topic]
    for name, option in (("tag", "--tag"), ("sql", "--sql")):
        if call.query[name]:
            command += [option, call.query[name]]
    return Page(
        "messages/tail.html",
        call.text("%(topic)s live", topic=topic),
        Newest(topic, rows(found.hits, bodies=bodies), tuple(found.failures), bodies),
        command=tuple(command),
        extra={"given": {name: value for name, value in call.query.items() if value}},
    )


async def events(call: Call) -> AsyncIterator[Event]:
    """Yield new messages, at most five times per second, with the number of dropped ones."""
    topic = call.path["topic"]
    wanted = wanted_of(_full(call), topic)
    bodies = sees_bodies(call, topic)
    if bodies:
        call.viewed(topic, "tail")
    async with Tail(
        session_for(call, topic), wanted.choice, wanted.text, most=MOST_AT_ONCE
    ) as tail:
        # Messages from before the connection are not among its messages: the page says so.
        yield Event(
            "messages", {"begins": True, "messages": [], "matched": 0, "dropped": 0, "rate": 0}
        )
        while True:
            glimpse = await tail.look(QUIET_SECONDS)
            yield Event(
                "messages",
                {
                    "messages": [_event_row(call, hit, bodies=bodies) for hit in glimpse.hits],
                    "matched": glimpse.matched,
                    "dropped": glimpse.dropped,
                    "rate": round(glimpse.rate, 1),
                    "failures": [plain(line) for line in glimpse.failures],
                },
            )
            await asyncio.sleep(PAUSE_SECONDS)


def _event_row(call: Call, hit: Hit, *, bodies: bool) -> dict[str, Any]:
    """Return a message for the script, which inserts it as text; hidden characters are marked."""
    item = row(hit.message, hit.size, bodies=bodies)
    return {
        "stored": moment_text(item.store_time, call.zone),
        "storeTime": item.store_time,
        "queue": plain(f"{item.broker_name}:{item.queue_id}"),
        "offset": item.queue_offset,
        "tags": plain(item.tags or ""),
        "keys": plain(item.keys or ""),
        "size": item.size,
        "body": None if item.body is None else plain(item.body),
        "messageId": plain(item.message_id),
        "path": item.path,
    }


ROUTES = (
    Route(
        "/tail",
        choose,
        Permission.READ,
        N_("Choose a topic to follow."),
        query=(Query("topic", about=N_("Topic")),),
        menu=N_("Live tail"),
        data=Topics,
        redirects=True,
    ),
    Route(
        "/tail/{topic}",
        show,
        Permission.READ,
        N_("A topic live; without script, its newest messages."),
        "topic",
        QUERY,
        seconds=20.0,
        data=Newest,
    ),
    Stream(
        "/tail/{topic}/events",
        events,
        Permission.READ,
        N_("The messages of a topic as they arrive."),
        "topic",
        QUERY,
    ),
)
