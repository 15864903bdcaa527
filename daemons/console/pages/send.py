"""Sending a message written in a form, or a copy of another message."""

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from mq.client.operations.messages import lookup
from mq.client.operations.messages.composing import Draft
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.daemons.console.call import Call
from mq.daemons.console.pages.message import PRODUCER_GROUP
from mq.daemons.console.pages.message_rows import (
    check_bodies,
    message_path,
    session_for,
    topic_names,
)
from mq.daemons.console.parsing import BadQuery
from mq.daemons.console.permissions import Permission
from mq.daemons.console.route import (
    N_,
    Change,
    Field,
    Outcome,
    Page,
    Plan,
    Query,
    Redirect,
    Route,
    Sheet,
    Values,
)
from mq.protocol.bodies import MessageQueue
from mq.protocol.names import may_be_sent_to
from mq.protocol.properties import RESERVED, PropertyKey

if TYPE_CHECKING:
    from mq.client.transport.caller import Caller

MOST_BODY = 900_000  # characters: a form has room for 1 MB

FIELDS = (
    Field("tag", N_("Tag")),
    Field("keys", N_("Keys"), help=N_("Separated by blanks.")),
    Field(
        "properties", N_("Properties"), "lines", help=N_("One per line: name=value"), limit=32_767
    ),
    Field("body", N_("Body"), "body", limit=MOST_BODY),
    Field(
        "form", N_("Form of the body"), "choice", choices=(("text", N_("text")), ("hex", N_("hex")))
    ),
    Field("queue", N_("Queue"), help=N_("BROKER:QUEUE, or a broker; empty: any.")),
    Field(
        "ordering_key", N_("Ordering key"), help=N_("Messages with the same key go to one queue.")
    ),
    Field(
        "delay_level",
        N_("Delay level"),
        "integer",
        help=N_("Default: level 1 is 1 s, level 18 is 2 h."),
    ),
    Field(
        "deliver_at",
        N_("Deliver at"),
        "moment",
        help=N_("For example 2026-11-23 14:05; brokers of 5.x, and ours."),
    ),
)


@dataclass(frozen=True, slots=True)
class Topics:
    """The page before a topic is chosen."""

    topics: tuple[str, ...]


async def choose(call: Call) -> Page | Redirect:
    """Choose the topic to send to."""
    topic = call.query["topic"]
    if topic:
        return Redirect(f"/send/{quote(topic.strip(), safe='')}", Topics((topic.strip(),)))
    names = tuple(name for name in topic_names(call) if may_be_sent_to(name))
    return Page(
        "messages/topic.html",
        call.text("Send a message"),
        Topics(names),
        extra={"action": "/send", "button": call.text("Write a message")},
    )


def draft_of(call: Call, values: Values) -> Draft:
    """Return the message of the form."""
    return Draft(
        call.path["topic"],
        values["body"] or "",
        values["form"] == "hex",
        values["tag"] or None,
        values["keys"] or "",
        values["properties"] or (),
        (values["queue"] or "").strip() or None,
        values["delay_level"] or 0,
        values["deliver_at"],
        values["ordering_key"] or None,
    )


async def initial(call: Call) -> Values:
    """Return an empty form, or the content of the message at `like` (BROKER:QUEUE:OFFSET)."""
    like = call.query.get("like")
    if not like:
        return {"form": "text"}
    topic = call.path["topic"]
    check_bodies(call, topic)
    broker, _, rest = like.rpartition(":")[0].rpartition(":")
    offset = like.rpartition(":")[2]
    if not (broker and rest.isdecimal() and offset.isdecimal() and len(offset) < 19):
        raise BadQuery("like: BROKER:QUEUE:OFFSET")
    queue = MessageQueue(topic, broker, int(rest))
    found = await lookup.at_offset(session_for(call, topic), queue, int(offset))
    message = found.messages[0]
    call.viewed(f"{topic}:{broker}:{rest}@{offset}", "body")
    body = bytes(message.body)
    try:
        text, form = body.decode(), "text"
    except UnicodeDecodeError:
        text, form = body.hex(), "hex"
    if len(text) > MOST_BODY:
        raise BadQuery(call.text("Its body is too large for a form: send the message again."))
    own = [f"{name}={value}" for name, value in message.properties.items() if _is_own(name)]
    return {
        "tag": message.tags or "",
        "keys": message.properties.get(PropertyKey.KEYS, ""),
        "properties": "\n".join(own),
        "body": text,
        "form": form,
        "ordering_key": message.properties.get(PropertyKey.SHARDING_KEY, ""),
    }


def _is_own(name: str) -> bool:
    return name not in RESERVED and name != PropertyKey.SHARDING_KEY


async def plan(call: Call, values: Values) -> Plan:
    """Plan what is sent, and to which queue."""
    topic = call.path["topic"]
    if not may_be_sent_to(topic):
        raise BadQuery(call.text("Topic %(topic)s is internal to brokers.", topic=topic))
    draft = draft_of(call, values)
    message = draft.message()
    await call.caller.route(topic)  # brokers may create a missing topic on a send
    lines = [
        call.text(
            "Send a message of %(size)d bytes to topic %(topic)s.",
            size=len(message.body),
            topic=topic,
        )
    ]
    if draft.delay_level:
        lines.append(
            call.text("Consumers receive it after delay level %(n)d.", n=draft.delay_level)
        )
    rows = [(name, value) for name, value in sorted(message.all_properties().items())]
    command = ["sendMessage", "-t", topic, "-p", draft.body[:200]]
    if draft.keys:
        command += ["-k", draft.keys]
    if draft.tag:
        command += ["-c", draft.tag]
    special = draft.properties or draft.delay_level or draft.deliver_at or draft.is_hex
    return Plan(
        tuple(lines),
        (Sheet((call.text("Property"), call.text("Value")), rows),),
        () if special or len(draft.body) > 200 else tuple(command),
    )


async def send(call: Call, values: Values, session: "Caller") -> list[Outcome]:
    """Send it to the queue of the form or of its content, so it is the same in the preview."""
    draft = draft_of(call, values)
    topic = draft.topic
    assert isinstance(session, Session)
    await session.route(topic)
    async with Producer(session, PRODUCER_GROUP, retries=0) as producer:
        queue = draft.choose(await producer.prepare(topic))
        sent = await producer.send(draft.message(), queue)
    place = f"{sent.queue.broker_name}:{sent.queue.queue_id}"
    if draft.delay_level or draft.deliver_at is not None:
        # The position is temporary: the message gets another one when it is due.
        text = call.text("%(status)s at %(place)s, to be delivered later", status=str(sent.status),
                         place=sent.queue.broker_name)  # fmt: skip
        return [Outcome(sent.message_id, True, text, "/waiting")]
    text = call.text(
        "%(status)s: %(place)s, offset %(offset)d",
        status=str(sent.status), place=place, offset=sent.queue_offset,
    )  # fmt: skip
    link = message_path(topic, sent.queue.broker_name, sent.queue.queue_id, sent.queue_offset)
    return [Outcome(sent.message_id, True, text, link)]


ROUTES = (
    Route(
        "/send",
        choose,
        Permission.OPERATE,
        N_("Choose a topic to send a message to."),
        query=(Query("topic", about=N_("Topic")),),
        menu=N_("Send"),
        data=Topics,
    ),
    Change(
        "/send/{topic}",
        Permission.OPERATE,
        N_("Send a message"),
        "topic",
        FIELDS,
        plan,
        send,
        initial=initial,
        query=(Query("like", about=N_("BROKER:QUEUE:OFFSET of a message to use as a template")),),
    ),
)
