"""Searching messages: by id, key, time, offset, tag, SQL92, property and text."""

from dataclasses import dataclass
from urllib.parse import quote, urlencode

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.operations.errors import NotFound
from mq.client.operations.messages import lookup
from mq.client.operations.messages.choice import Choice
from mq.client.operations.messages.finding import Reach, unsaid
from mq.client.operations.messages.search import Budget, Position, Search, SearchQuery, SearchResult
from mq.daemons.broker.filters.errors import FilterSyntaxError
from mq.daemons.broker.filters.sql92 import read_filter
from mq.daemons.console.call import Call
from mq.daemons.console.pages.message_export import KINDS, export
from mq.daemons.console.pages.message_rows import (
    MessageRow,
    check_bodies,
    message_path,
    row,
    rows,
    sees_bodies,
    session_for,
    topic_names,
    turn,
    visible,
)
from mq.daemons.console.parsing import BadQuery, choice, integer, moment
from mq.daemons.console.permissions import Permission
from mq.daemons.console.route import N_, Download, Page, Query, Redirect, Route, Sheet
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import StoredMessage

BUDGET = Budget(messages=100_000, bytes=128 * 1024 * 1024, seconds=5.0)
SECONDS = 30.0  # of a search that first reads from each of many queues
SIZES = ("20", "50", "100", "200")
_KEPT = 1024  # bytes of a body for a list
_MOST_BY_KEY = 64  # per broker
# Limits of the search for an id in all topics, which queries each broker of each topic.
REACH = Reach(requests=2000, seconds=10.0)
_AND = " && "

_TOPIC = Query("topic", about=N_("Topic"))
_ID = Query("id", about=N_("Unique id or offset id"))
QUERY = (
    _ID,
    Query("key", about=N_("A complete key")),
    Query("from", moment, about=N_("Stored then or later")),
    Query("to", moment, about=N_("Stored before then")),
    Query("broker", about=N_("Of this broker")),
    Query("queue", integer, about=N_("Of this queue")),
    Query("offset", integer, about=N_("At this offset of a queue of a broker")),
    Query("tag", about=N_('A tag, or several: "a || b"')),
    Query("sql", about=N_("An SQL92 expression over properties")),
    Query("property", about=N_('name=value; separated by " && "')),
    Query("text", about=N_("Text in the body")),
    Query("size", choice(*SIZES), "50", about=N_("Messages per page")),
    Query("after", about=N_("Where to continue a search: a value of the last response")),
)


@dataclass(frozen=True, slots=True)
class TopicChoicePage:
    """The page before a topic is chosen: the existing topics, or the messages of an id that several
    topics have.

    ``unseen`` topics were not searched: that would have exceeded the requests or time of a
    search."""

    topics: tuple[str, ...]
    messages: tuple[MessageRow, ...] = ()
    unseen: int = 0


@dataclass(frozen=True, slots=True)
class Results:
    """The messages that a search has found, newest first.

    ``way`` is the kind: search, id, key or offset. ``looked`` messages of ``total`` were examined;
    ``after`` is the position to continue from, None at the end; ``stopped`` is the exhausted part
    of the budget: messages, bytes, seconds. With ``more`` an index may have more entries than
    requested.
    """

    topic: str
    way: str
    messages: tuple[MessageRow, ...]
    looked: int | None = None
    total: int | None = None
    after: str | None = None
    stopped: str = ""
    more: bool = False
    failures: tuple[str, ...] = ()
    bodies: bool = True
    budget_messages: int = BUDGET.messages
    budget_bytes: int = BUDGET.bytes
    budget_seconds: float = BUDGET.seconds


async def choose(call: Call) -> Page | Redirect:
    """Show the form for a topic or an id."""
    topic, message_id = call.query["topic"], call.query["id"]
    if topic:
        query = {"id": message_id} if message_id else {}
        return Redirect(_address(topic.strip(), query))
    if message_id:
        return await _find_anywhere(call, message_id.strip())
    return Page("messages/choose.html", call.text("Messages"), TopicChoicePage(topic_names(call)))


async def _find_anywhere(call: Call, message_id: str) -> Page | Redirect:
    """Find a message by its id in all topics that the user may see.

    Imported and copied messages keep the id of the original, so an id may be in several topics.
    """
    async with turn(call.cluster):
        admin = Admin(call.cluster.session)
        all_found = await lookup.anywhere(admin, message_id, call.sees_topic, REACH)
    found, unseen = visible(call, all_found.messages), all_found.unseen
    if not found:
        raise NotFound(call.text("No message has the id %(id)s.", id=message_id))
    if len(found) == 1 and found[0].broker_name and not unseen:
        return Redirect(_place(found[0]))
    topics = sorted({message.topic for message in found})
    if len(topics) == 1 and not unseen:
        return Redirect(_address(topics[0], {"id": message_id}))
    seen = {topic for topic in topics if sees_bodies(call, topic)}
    for topic in sorted(seen):
        call.viewed(topic, "bodies in a list")
    data = TopicChoicePage(
        (), tuple(row(item, bodies=item.topic in seen) for item in found), unseen
    )
    return Page(
        "messages/choose.html",
        call.text("Messages with an id"),
        data,
        command=("trace", message_id),
    )


def _of_id(call: Call, topic: str, found: list[StoredMessage], failures: list[str]) -> Page:
    """Show the messages of an id: several if it was resent, or those of the brokers that answer."""
    if found and sees_bodies(call, topic):
        call.viewed(topic, "bodies in a list")
    return _page(call, topic, _of_index(call, topic, "id", found, failures))


def _address(topic: str, query: dict[str, str]) -> str:
    text = f"?{urlencode(query)}" if query else ""
    return f"/messages/{quote(topic, safe='')}{text}"


def _place(message: StoredMessage) -> str:
    return message_path(message.topic, message.broker_name, message.queue_id, message.queue_offset)


async def search(call: Call) -> Page | Redirect:
    """Search the messages of a topic."""
    topic, query = call.path["topic"], call.query
    bodies = sees_bodies(call, topic)
    if query["text"] or query["property"] or query["sql"]:
        check_bodies(call, topic)  # the answer would reveal their content
    session = session_for(call, topic)
    if query["id"]:
        # Brokers return any message at an offset id: one of another topic is not shown, and a
        # user who may not see bodies is shown none.
        matches = await lookup.by_id(Admin(call.cluster.session), query["id"].strip(), topic)
        seen = visible(call, matches.messages)
        found = [message for message in seen if message.topic == topic]
        if len(found) == 1 and found[0].broker_name and not matches.failures:
            return Redirect(_place(found[0]))
        return _of_id(call, topic, found, matches.failures)
    if query["offset"] is not None:
        if not query["broker"] or query["queue"] is None:
            raise BadQuery(call.text("An offset belongs to a queue of a broker: enter these, too."))
        queue = MessageQueue(topic, query["broker"], query["queue"])
        await lookup.at_offset(session, queue, query["offset"])
        return Redirect(message_path(topic, query["broker"], query["queue"], query["offset"]))
    wanted = wanted_of(call, topic)
    if bodies:
        call.viewed(topic, "search in bodies" if wanted.text else "bodies in a list")
    async with turn(call.cluster):
        if wanted.choice.key is not None and wanted.choice.sql is None:
            return _page(call, topic, await _by_key(call, wanted))
        after = Position.parse(query["after"]) if query["after"] else None
        found_now = await Search(session, wanted, BUDGET, keep=_KEPT).run(after)
    return _page(call, topic, _of_search(topic, found_now, bodies=bodies))


def wanted_of(call: Call, topic: str) -> SearchQuery:
    """Return the search of a query. Raises BadQuery, InvalidRequest."""
    query = call.query
    if query["sql"]:
        try:
            read_filter(query["sql"])
        except FilterSyntaxError as error:
            raise BadQuery(f"SQL92: {error}") from None
    choice_of = Choice(
        topic,
        query["from"],
        query["to"],
        (query["broker"],) if query["broker"] else (),
        () if query["queue"] is None else (query["queue"],),
        query["tag"] or None,
        query["sql"] or None,
        query["key"] or None,
    )
    size = int(query["size"]) if "size" in query else 200
    return SearchQuery(choice_of, query["text"] or "", _properties(query["property"] or ""), size)


def _properties(text: str) -> tuple[tuple[str, str], ...]:
    found = []
    for part in filter(None, (part.strip() for part in text.split(_AND))):
        name, equals, value = part.partition("=")
        if not name or not equals:
            raise BadQuery(f"property: {part[:100]!r} is not name=value")
        found.append((name, value))
    return tuple(found)


async def _by_key(call: Call, wanted: SearchQuery) -> Results:
    """Search by the brokers' index; the other conditions are applied here."""
    choice_of = wanted.choice
    topic, key = choice_of.topic, choice_of.key or ""
    errors: list[MQError] = []  # of brokers: the results of the others are shown
    found = await lookup.by_key(
        Admin(session_for(call, topic)),
        topic,
        key,
        _MOST_BY_KEY,
        choice_of.begin or 0,
        (2**63 - 1) if choice_of.end is None else choice_of.end - 1,
        errors,
    )
    if errors and not found:
        raise errors[0]
    tags = (
        None
        if choice_of.tags in (None, "*")
        else {tag.strip() for tag in (choice_of.tags or "").split("||")}
    )
    test = wanted.test()
    kept = [
        message
        for message in found
        if (tags is None or message.tags in tags)
        and (not choice_of.brokers or message.broker_name in choice_of.brokers)
        and (not choice_of.queue_ids or message.queue_id in choice_of.queue_ids)
        and (test is None or test(message))
    ]
    more = len(found) >= _MOST_BY_KEY
    return _of_index(call, topic, "key", kept, unsaid(topic, errors), more=more)


def _of_index(
    call: Call,
    topic: str,
    way: str,
    found: list[StoredMessage],
    failures: list[str],
    *,
    more: bool = False,
) -> Results:
    bodies = sees_bodies(call, topic)
    newest_first = sorted(found, key=lambda message: message.store_timestamp, reverse=True)
    return Results(
        topic,
        way,
        tuple(row(item, bodies=bodies) for item in newest_first),
        more=more,
        failures=tuple(failures),
        bodies=bodies,
    )


def _of_search(topic: str, found: SearchResult, *, bodies: bool) -> Results:
    return Results(
        topic,
        "search",
        rows(found.hits, bodies=bodies),
        found.looked,
        found.looked + found.left,
        None if found.after is None else str(found.after),
        found.stopped,
        failures=tuple(found.failures),
        bodies=bodies,
    )


_COLUMNS = (
    "storeTime", "topic", "brokerName", "queueId", "queueOffset", "messageId", "offsetId",
    "tags", "keys", "bornTime", "size", "body",
)  # fmt: skip


def _page(call: Call, topic: str, results: Results) -> Page:
    sheet = Sheet(
        _COLUMNS,
        [
            (
                item.store_time, item.topic, item.broker_name, item.queue_id, item.queue_offset,
                item.message_id, item.offset_id, item.tags, item.keys, item.born_time, item.size,
                item.body,
            )
            for item in results.messages
        ],
    )  # fmt: skip
    return Page(
        "messages/search.html",
        call.text("Messages of %(topic)s", topic=topic),
        results,
        command=_command(call, topic),
        sheet=sheet,
        extra={"sizes": SIZES, "given": call.query, "filtered": _is_filtered(call)},
    )


def _is_filtered(call: Call) -> bool:
    names = ("key", "from", "to", "broker", "queue", "tag", "sql", "property", "text")
    return any(call.query.get(name) not in (None, "") for name in names)


def _command(call: Call, topic: str) -> tuple[str, ...]:
    query = call.query
    if query.get("id"):
        return ("queryMsgByUniqueKey", "-i", query["id"], "-t", topic)
    if query.get("key") and not query.get("sql"):
        return ("queryMsgByKey", "-t", topic, "-k", query["key"])
    words = ["message", "export", "-", "-t", topic]
    for name, option in (("broker", "-b"), ("queue", "-i"), ("tag", "--tag"), ("sql", "--sql")):
        if query.get(name) not in (None, ""):
            words += [option, str(query[name])]
    for name, option in (("from", "--begin"), ("to", "--end")):
        if query.get(name) is not None:
            words += [option, str(query[name])]
    return tuple(words)


async def save(call: Call) -> Download:
    """Save all messages that a search finds as a file, newest first."""
    topic = call.path["topic"]
    check_bodies(call, topic)
    wanted = wanted_of(call, topic)
    limit = call.query["limit"]
    if not 0 < limit <= 1_000_000:
        raise BadQuery("limit: 1 to 1000000")
    call.viewed(topic, "export", limit=limit)
    return export(call, wanted, call.query["as"], limit)


ROUTES = (
    Route(
        "/messages",
        choose,
        Permission.READ,
        N_("Find messages: select a topic, or enter an id."),
        query=(_TOPIC, _ID),
        menu=N_("Messages"),
        data=TopicChoicePage,
        seconds=SECONDS,
        redirects=True,
    ),
    Route(
        "/messages/{topic}",
        search,
        Permission.READ,
        N_("Messages of a topic, newest first, in the order of time across its queues."),
        "topic",
        QUERY,
        seconds=SECONDS,
        data=Results,
        redirects=True,
    ),
    Route(
        "/messages/{topic}/export",
        save,
        Permission.BODIES,
        N_("Messages of a topic as JSON lines or CSV."),
        "topic",
        (
            *(item for item in QUERY if item.name not in ("id", "offset", "size", "after")),
            Query("as", choice("jsonl", "csv"), "jsonl", about=N_("The format of the file")),
            Query("limit", integer, 10_000, about=N_("Messages at most")),
        ),
        seconds=SECONDS,
        kinds=tuple(KINDS.values()),
    ),
)
