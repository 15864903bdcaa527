"""Dead letters: the groups that have them, with causes and topics; resending."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.admin import Admin
from mq.client.operations.messages.choice import Choice
from mq.client.operations.messages.dead_letter_locks import locked
from mq.client.operations.messages.dead_letter_resending import Resending, Resent
from mq.client.operations.messages.dead_letters import Letter, Letters, letters_of, look_at
from mq.client.operations.messages.search import SearchQuery
from mq.client.producer.options import ANY_BODY
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.daemons.console.call import Call
from mq.daemons.console.pages.message_export import KINDS, export
from mq.daemons.console.pages.message_rows import (
    MessageRow,
    check_bodies,
    row,
    sees_bodies,
    turn,
)
from mq.daemons.console.parsing import BadQuery, choice, integer
from mq.daemons.console.permissions import Permission
from mq.daemons.console.route import (
    N_,
    Change,
    Download,
    Field,
    Outcome,
    Page,
    Plan,
    Query,
    Route,
    Sheet,
    Values,
)
from mq.protocol.names import DEAD_LETTER_PREFIX, dead_letter_topic

if TYPE_CHECKING:
    from mq.client.transport.caller import Caller

PRODUCER_GROUP = "MQ_DLQ_RESEND"  # as in `mq dlq resend`
A_PAGE = 20  # groups per page, each of which is read
SCANNED = 200  # dead letters of each group that are searched for causes
MOST_SHOWN = 200
_KEPT = 1024  # bytes of a body in a list
MOST_AT_ONCE = 500  # dead letters in one change, which holds locks while it runs
SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Origin:
    """A source topic of dead letters, and the number of those read."""

    topic: str
    count: int


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group with dead letters, as in `mq dlq list`. Causes and topics are those of the newest
    ones;
    None if the user may not read them."""

    group: str
    messages: int
    retries_used_up: int | None
    given_up_early: int | None
    topics: tuple[Origin, ...]
    oldest: int | None
    newest: int | None


@dataclass(frozen=True, slots=True)
class Groups:
    """One page of groups with dead letters; `total` is the number of groups with the topic."""

    groups: tuple[GroupRow, ...]
    page: int
    size: int
    total: int
    failures: tuple[str, ...]


async def groups(call: Call) -> Page:
    """List the groups with dead letters."""
    names = [
        item.name
        for item in call.cluster.snapshot.topics
        if item.name.startswith(DEAD_LETTER_PREFIX)
    ]
    if not call.cluster.snapshot.topics:  # nothing is collected yet
        names = list((await Admin(call.cluster.session).topic_list()).topic_list)
    wanted = call.query["q"] or ""
    found = sorted(
        name.removeprefix(DEAD_LETTER_PREFIX)
        for name in names
        if name.startswith(DEAD_LETTER_PREFIX)
    )
    found = [name for name in found if call.sees_group(name) and wanted.lower() in name.lower()]
    page = max(1, call.query["page"])
    rows: list[GroupRow] = []
    failures: list[str] = []
    async with turn(call.cluster):
        for name in found[(page - 1) * A_PAGE : page * A_PAGE]:
            item, failed = await _group(call, name)
            failures += [f"{name}: {line}" for line in failed]
            if item is not None:
                rows.append(item)
    return Page(
        "messages/dead_letter_groups.html",
        call.text("Dead letters"),
        Groups(tuple(rows), page, A_PAGE, len(found), tuple(failures)),
        command=("dlq", "list"),
        sheet=Sheet(
            ("group", "messages", "retriesUsedUp", "givenUpEarly", "topics", "oldest", "newest"),
            [
                (
                    item.group, item.messages, item.retries_used_up, item.given_up_early,
                    ", ".join(f"{origin.topic} ({origin.count})" for origin in item.topics),
                    item.oldest, item.newest,
                )
                for item in rows
            ],
        ),
    )  # fmt: skip


async def _group(call: Call, group: str) -> tuple[GroupRow | None, list[str]]:
    found, failures = await letters_of(Admin(call.cluster.session), group, SCANNED)
    if found is None:
        return None, failures
    topics = tuple(
        Origin(name, count) for name, count in found.topics if name == "?" or call.sees_topic(name)
    )
    return GroupRow(
        group,
        found.messages,
        found.retries_used_up,
        found.given_up_early,
        topics,
        found.oldest,
        found.newest,
    ), failures


@dataclass(frozen=True, slots=True)
class LetterRow:
    """A dead letter as in `mq dlq show`, with its position."""

    message_id: str
    offset_id: str
    origin_topic: str | None
    origin_message_id: str | None
    tries: int
    cause: str
    store_time: int
    resent_as: str | None
    tags: str | None
    keys: str | None
    body: str | None
    message: MessageRow


@dataclass(frozen=True, slots=True)
class GroupDeadLetters:
    """The newest dead letters of a group, newest first, of `total`."""

    group: str
    letters: tuple[LetterRow, ...]
    total: int
    limit: int
    failures: tuple[str, ...]


def _row(call: Call, letter: Letter, size: int, *, bodies: bool) -> LetterRow:
    message = row(letter.message, size, bodies=bodies)
    origin = letter.origin_topic
    if origin is not None and not call.sees_topic(origin):
        origin = None
    return LetterRow(
        letter.message_id, letter.offset_id, origin, letter.origin_message_id,
        letter.tries, letter.cause, letter.store_time, letter.resent_as, letter.tags, letter.keys,
        message.body, message,
    )  # fmt: skip


async def show(call: Call) -> Page:
    """Show the dead letters of a group."""
    group = call.path["group"]
    topic = dead_letter_topic(group)
    limit = call.query["limit"]
    if not 0 < limit <= MOST_SHOWN:
        raise BadQuery(f"limit: 1 to {MOST_SHOWN}")
    bodies = sees_bodies(call, topic)
    if bodies:
        call.viewed(topic, "bodies in a list")
    async with turn(call.cluster):
        # Copies are also searched in topics that the user may not see: only their existence is
        # shown. Users without permission for bodies see none.
        found, letters = await look_at(Admin(call.cluster.session), group, None, limit, keep=_KEPT)
    rows = tuple(
        _row(call, letter, letters.sizes[letter.offset_id], bodies=bodies)
        for letter in reversed(found)
    )
    return Page(
        "messages/dead_letters.html",
        call.text("Dead letters of %(group)s", group=group),
        GroupDeadLetters(group, rows, letters.count, limit, tuple(letters.failures)),
        command=("dlq", "show", "-g", group),
        sheet=Sheet(
            ("messageId", "offsetId", "originTopic", "originMessageId", "tries", "cause",
             "storeTime", "resentAs", "tags", "keys", "body"),
            [
                (
                    item.message_id, item.offset_id, item.origin_topic, item.origin_message_id,
                    item.tries, item.cause, item.store_time, item.resent_as, item.tags, item.keys,
                    item.body,
                )
                for item in rows
            ],
        ),
    )  # fmt: skip


async def save(call: Call) -> Download:
    """Export all dead letters of a group as `mq dlq export` does, but newest first."""
    topic = dead_letter_topic(call.path["group"])
    check_bodies(call, topic)
    limit = call.query["limit"]
    if not 0 < limit <= 1_000_000:
        raise BadQuery("limit: 1 to 1000000")
    call.viewed(topic, "export", limit=limit)
    wanted = SearchQuery(Choice(topic))
    return export(call, wanted, call.query["as"], limit)


# resending ------------------------------------------------------------------------------------


FIELDS = (
    Field(
        "ids",
        N_("Ids of the dead letters"),
        "lines",
        help=N_("One unique or offset id per line; empty if the next box is checked."),
        limit=60_000,
    ),
    Field("everything", N_("All that are not resent yet"), "flag"),
    Field("limit", N_("At most"), "integer", help=N_("Of those not resent yet: 500 at a time.")),
    Field(
        "any_broker",
        N_("Use another broker if the dead letter's own accepts no messages"),
        "flag",
        help=N_("While that one is down, a further resend does not find the copy."),
    ),
)


def check(call: Call, values: Values) -> None:
    """Check that either ids or all dead letters are selected."""
    if values["everything"] == bool(values["ids"]):
        raise BadQuery(call.text("Select dead letters, or all of them."))
    if values["limit"] is not None and not 0 < values["limit"] <= MOST_AT_ONCE:
        raise BadQuery(f"limit: 1 to {MOST_AT_ONCE}")


async def initial(call: Call) -> Values:
    """Return the preselected dead letter of the query."""
    return {"ids": call.query["id"] or "", "limit": MOST_AT_ONCE}


async def plan(call: Call, values: Values) -> Plan:
    """Plan the resend."""
    group = call.path["group"]
    if values["ids"]:
        first = call.number_text(
            "Send %(num)d dead letter of group %(group)s to the topic that it comes from.",
            "Send %(num)d dead letters of group %(group)s to the topics that they come from.",
            len(values["ids"]),
            group=group,
        )
    else:
        first = call.text(
            "Send the dead letters of group %(group)s that are not resent yet, at most %(limit)d, "
            "the oldest first, to the topics that they come from.",
            group=group,
            limit=values["limit"] or MOST_AT_ONCE,
        )
    lines = [
        first,
        call.text("Dead letters that any user resent before are not sent again."),
        call.text("All groups of the topic receive the copies. The dead letters stay."),
    ]
    command = ["dlq", "resend", "-g", group]
    command += [] if values["ids"] else ["--all"]
    for item in values["ids"][:20]:
        command += ["--id", item]
    if values["any_broker"]:
        command.append("--any-broker")
    return Plan(tuple(lines), command=tuple(command) if len(values["ids"]) <= 20 else ())


async def resend(call: Call, values: Values, session: "Caller") -> list[Outcome]:
    """Resend, one user at a time, and wait until the copies can be found."""
    assert isinstance(session, Session)
    admin = Admin(session)
    letters = Letters(admin, call.path["group"])
    ids = list(values["ids"]) or None
    limit = values["limit"] or MOST_AT_ONCE
    async with Producer(session, PRODUCER_GROUP, retries=0, max_body=ANY_BODY) as producer:
        resending = Resending(admin, producer, any_broker=values["any_broker"])
        async with locked(admin, session, letters) as failures:
            results = await resending.run_all(letters, ids, None if ids else limit)
            # A preview sends nothing that could be found.
            sent = any((item.copy_id or "").strip("0") for item in results)
            warning = await resending.confirm() if sent else None
    outcomes = [_outcome(call, item) for item in results]
    failed = [*failures, *letters.failures, *([warning] if warning else [])]
    outcomes += [Outcome(letters.topic, False, line) for line in dict.fromkeys(failed)]
    counts = Counter(item.result for item in results)
    if not results:
        text = call.text("There are no dead letters.")
        return [*outcomes, Outcome(letters.group, True, text)]
    total = call.text(
        "%(sent)d resent, %(before)d resent earlier, %(failed)d failed",
        sent=counts["sent"],
        before=counts["before"],
        failed=counts["failed"],
    )
    return [Outcome(letters.group, not counts["failed"], total), *outcomes]


def _outcome(call: Call, item: Resent) -> Outcome:
    if item.topic is not None and not call.may(Permission.OPERATE, topic=item.topic):
        line = call.text("It comes from a topic to which you may not send.")
        return Outcome(item.message_id, False, line)
    if item.result == "failed":
        return Outcome(item.message_id, False, item.reason)
    if item.result == "before":
        text = call.text(
            "resent earlier: it was already sent to %(topic)s", topic=item.topic or "?"
        )
    else:
        text = call.text("sent to %(topic)s", topic=item.topic or "?")
    link = f"/messages?id={item.copy_id}" if item.copy_id else ""
    return Outcome(item.message_id, True, text, link)


_GROUP = "/dead-letters/{group}"

ROUTES = (
    Route(
        "/dead-letters",
        groups,
        Permission.READ,
        N_("Consumer groups with dead letters: number, causes, topics."),
        query=(
            Query("q", about=N_("Part of a group's name")),
            Query("page", integer, 1, about=N_("Page of the list")),
        ),
        menu=N_("Dead letters"),
        seconds=SECONDS,
        data=Groups,
    ),
    Route(
        _GROUP,
        show,
        Permission.READ,
        N_("The newest dead letters of a group."),
        "group",
        (Query("limit", integer, 50, about=N_("Maximum number")),),
        seconds=SECONDS,
        data=GroupDeadLetters,
    ),
    Route(
        f"{_GROUP}/export",
        save,
        Permission.BODIES,
        N_("The dead letters of a group as JSON lines or CSV."),
        "group",
        (
            Query("as", choice("jsonl", "csv"), "jsonl", about=N_("The format of the file")),
            Query("limit", integer, 100_000, about=N_("Maximum number")),
        ),
        kinds=tuple(KINDS.values()),
    ),
    Change(
        f"{_GROUP}/resend",
        Permission.OPERATE,
        N_("Resend dead letters"),
        "group",
        FIELDS,
        plan,
        resend,
        initial=initial,
        query=(Query("id", about=N_("Id of a preselected dead letter")),),
        check=check,
    ),
)
