"""One message: its properties, body and consumers; resending it, and giving it to a consumer."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.operations.messages import lookup, resending
from mq.client.operations.messages.body_view import BodyView, view
from mq.client.operations.messages.dead_letter_copies import MARK, origin_topic
from mq.client.operations.messages.track import tracks
from mq.client.producer.options import ANY_BODY
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.daemons.console.call import Call
from mq.daemons.console.pages.message_rows import (
    MessageRow,
    message_path,
    row,
    sees_bodies,
    session_for,
    without_hidden,
)
from mq.daemons.console.parsing import BadQuery, choice
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
from mq.protocol.bodies import MessageQueue
from mq.protocol.host import address_text
from mq.protocol.names import DEAD_LETTER_PREFIX
from mq.protocol.properties import RESERVED

if TYPE_CHECKING:
    from mq.client.transport.caller import Caller
    from mq.protocol.message import StoredMessage

PRODUCER_GROUP = "MQ_CONSOLE"
PATH = "/messages/{topic}/{broker}/{queue}/{offset}"
SECONDS = 20.0
MOST_GROUPS = 200


@dataclass(frozen=True, slots=True)
class Property:
    """A property of a message; `system` for one that RocketMQ uses."""

    name: str
    value: str
    system: bool


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """The consumption of a message by a group: `type` as in `mq queryMsgById`, `reason` explains
    it.
    """

    group: str
    type: str
    reason: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Detail:
    """A whole message. ``body`` is None if the user may not see it, ``consumers`` if they were not
    requested; ``consumers_problem`` is the reason if they are unknown. ``newest`` is the last
    offset of its queue.
    """

    message: MessageRow
    view: str
    commit_log_offset: int
    store_size: int
    sys_flag: int
    flag: int
    body_crc: int
    reconsume_times: int
    prepared_transaction_offset: int
    born_host: str
    store_host: str
    properties: tuple[Property, ...]
    body: BodyView | None
    oldest: int
    newest: int
    consumers: tuple[ConsumerStatus, ...] | None = None
    consumers_problem: str = ""
    origin_topic: str | None = None
    resent_from: str | None = None
    dead_letter_group: str | None = None


async def _fetch(call: Call, session: "Caller") -> "tuple[StoredMessage, int, int]":
    """Return the message of the path, and the bounds of its queue."""
    queue, offset = _queue(call), _number(call, "offset")
    result = await lookup.at_offset(session, queue, offset)
    return result.messages[0], result.min_offset, result.max_offset - 1


def _queue(call: Call) -> MessageQueue:
    return MessageQueue(call.path["topic"], call.path["broker"], _number(call, "queue"))


def _number(call: Call, name: str) -> int:
    text = call.path[name]
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadQuery(f"{name}: {text[:50]!r} is not a number")
    return int(text)


def _target(call: Call) -> str:
    queue = _queue(call)
    return f"{queue.topic}:{queue.broker_name}:{queue.queue_id}@{call.path['offset']}"


async def show(call: Call) -> Page:
    """Show a message by its position."""
    topic = call.path["topic"]
    session = session_for(call, topic)
    message, oldest, newest = await _fetch(call, session)
    without_hidden(call, message)
    bodies = sees_bodies(call, topic)
    part = call.query["view"]
    if bodies and part == "body":
        call.viewed(_target(call), "body")
    consumers, problem = await _consumers(call, message) if part == "consumers" else (None, "")
    properties = tuple(
        Property(name, value, name in RESERVED)
        for name, value in sorted(message.properties.items())
    )
    letter = topic.startswith(DEAD_LETTER_PREFIX)
    detail = Detail(
        row(message, bodies=bodies),
        part,
        message.physical_offset,
        message.store_size,
        message.sys_flag,
        message.flag,
        message.body_crc,
        message.reconsume_times,
        message.prepared_transaction_offset,
        address_text(message.born_host),
        address_text(message.store_host),
        # Properties of users may contain the same data as the body.
        properties if bodies else tuple(item for item in properties if item.system),
        view(message, call.query["as"]) if bodies and part == "body" else None,
        oldest,
        newest,
        consumers,
        problem,
        origin_topic(message),
        message.properties.get(MARK),
        topic.removeprefix(DEAD_LETTER_PREFIX) if letter else None,
    )
    queue = _queue(call)
    return Page(
        "messages/message.html",
        call.text("Message %(id)s", id=message.message_id),
        detail,
        command=(
            *("queryMsgByOffset", "-t", topic, "-b", queue.broker_name),
            *("-i", str(queue.queue_id), "-o", call.path["offset"]),
        ),
        sheet=Sheet(("property", "value"), [(item.name, item.value) for item in detail.properties]),
        extra={"path": _path(call)},
    )


def _path(call: Call) -> str:
    queue = _queue(call)
    return message_path(queue.topic, queue.broker_name, queue.queue_id, _number(call, "offset"))


async def _consumers(
    call: Call, message: "StoredMessage"
) -> tuple[tuple[ConsumerStatus, ...] | None, str]:
    try:
        # All groups of the topic are requested; those that the user may not see are omitted.
        found = await tracks(Admin(call.cluster.session), message)
    except MQError as error:
        return None, str(error)
    seen = [item for item in found if call.sees_group(item.group)]
    return tuple(
        ConsumerStatus(item.group, item.type, item.reason, item.error)
        for item in seen[:MOST_GROUPS]
    ), ""


async def download(call: Call) -> Download:
    """Return the whole body, as a file that browsers do not display."""
    message, _, _ = await _fetch(call, session_for(call, call.path["topic"]))
    call.viewed(_target(call), "download", bytes=len(message.body))
    return Download(f"{message.message_id}.bin", bytes(message.body))


# changes --------------------------------------------------------------------------------------


async def plan_resend(call: Call, values: Values) -> Plan:
    """Describe the effect of resending."""
    message, _, _ = await _fetch(call, session_for(call, call.path["topic"]))
    resending.same_again(message)  # raises now if it cannot be resent
    lines = [
        call.text(
            "Send the message to topic %(topic)s again, with its properties and its unique id: a "
            "new message, which every group of the topic receives.",
            topic=message.topic,
        ),
        call.text("Its body has %(size)d bytes.", size=len(message.body)),
    ]
    command = ("queryMsgById", "-i", message.offset_id, "-s", "true")
    return Plan(tuple(lines), command=command)


async def resend(call: Call, values: Values, session: "Caller") -> list[Outcome]:
    """Resend it to its own broker and queue, so that the preview is the same."""
    message, _, _ = await _fetch(call, session)
    assert isinstance(session, Session)
    async with Producer(session, PRODUCER_GROUP, retries=0, max_body=ANY_BODY) as producer:
        queues = await producer.prepare(message.topic)
        home = _queue(call)
        queue = home if home in queues else sorted(queues)[0]
        sent = await producer.send(resending.same_again(message), queue)
    text = call.text(
        "%(status)s: %(broker)s:%(queue)d, offset %(offset)d",
        status=str(sent.status),
        broker=sent.queue.broker_name,
        queue=sent.queue.queue_id,
        offset=sent.queue_offset,
    )
    where = sent.queue
    link = message_path(where.topic, where.broker_name, where.queue_id, sent.queue_offset)
    return [Outcome(sent.message_id, True, text, link)]


_GROUP = Field("group", N_("Consumer group"), required=True, limit=255)
_CLIENT = Field(
    "client_id",
    N_("Client id"),
    required=True,
    help=N_("A connected consumer, as listed on the page of the group."),
)


async def plan_consume(call: Call, values: Values) -> Plan:
    """Describe which consumer consumes it."""
    message, _, _ = await _fetch(call, session_for(call, call.path["topic"]))
    _check_group(call, values)
    return Plan(
        (
            call.text(
                "Consumer %(client)s of group %(group)s consumes the message now, even if the "
                "group consumed it before. Offsets do not change.",
                client=values["client_id"],
                group=values["group"],
            ),
        ),
        command=(
            *("queryMsgById", "-i", message.offset_id),
            *("-g", values["group"], "-d", values["client_id"]),
        ),
    )


def _check_group(call: Call, values: Values) -> None:
    if not call.may(Permission.OPERATE, group=values["group"]):
        raise BadQuery(call.text("You may not do this with group %(name)s.", name=values["group"]))


async def consume(call: Call, values: Values, session: "Caller") -> list[Outcome]:
    """Let the broker give it to the consumer."""
    _check_group(call, values)
    message, _, _ = await _fetch(call, session)
    group, client = values["group"], values["client_id"]
    done = await resending.consume_directly(session, message, group, client)
    name = done.consume_result.name if done.consume_result else "?"
    text = call.text("%(result)s after %(millis)s ms", result=name, millis=done.spent_time_mills)
    if done.remark:
        text = f"{text}: {done.remark[:2000]}"
    return [Outcome(client, name in ("CR_SUCCESS", "CR_COMMIT"), text)]


ROUTES = (
    Route(
        PATH,
        show,
        Permission.READ,
        N_("A message: its headers, properties and body, and who consumed it."),
        "topic",
        (
            Query("view", choice("body", "consumers"), "body", about=N_("Part of the page")),
            Query("as", choice("text", "json", "hex"), about=N_("How the body is shown")),
        ),
        seconds=SECONDS,
        data=Detail,
    ),
    Route(
        f"{PATH}/body",
        download,
        Permission.BODIES,
        N_("The body of a message."),
        "topic",
        kinds=("application/octet-stream",),
    ),
    Change(
        f"{PATH}/resend",
        Permission.OPERATE,
        N_("Send a message again"),
        "topic",
        (),
        plan_resend,
        resend,
    ),
    Change(
        f"{PATH}/consume",
        Permission.OPERATE,
        N_("Let a consumer consume a message"),
        "topic",
        (_GROUP, _CLIENT),
        plan_consume,
        consume,
    ),
)
