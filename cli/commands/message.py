"""The commands of mqadmin that find messages.

Formats: org.apache.rocketmq.tools.command.message.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.messages.details import DETAILS, details
from mq.cli.messages.matched import (
    DIRECTLY,
    SENT_AGAIN,
    by_offset_id,
    consume_directly,
    send_found,
)
from mq.cli.parameters import (
    BeginTimestamp,
    EndTimestamp,
    Topic,
    cluster_option,
    group_option,
    topic_option,
)
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, shows_messages, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.options import Truth, subject
from mq.cli.runtime.runner import concurrently
from mq.cli.show import java_text, message_text
from mq.cli.show.result import Result
from mq.cli.time_expressions import span_of
from mq.client.operations.columns import number, text, time
from mq.client.operations.errors import NotFound
from mq.client.operations.messages.finding import unsaid
from mq.client.operations.messages.unpacking import Unpacked

if TYPE_CHECKING:
    from mq.client.errors import MQError

COMMANDS = {
    "message": (
        "queryMsgById",
        "queryMsgByKey",
        "queryMsgByUniqueKey",
        "queryMsgByOffset",
        "DecodeMessageId",
    )
}

Group = Annotated[
    str | None,
    group_option("--consumerGroup", text="With -d: let this group consume the message now."),
]
ClientId = Annotated[
    str | None,
    typer.Option(
        "-d",
        "--clientId",
        metavar="ID",
        help="With -g: the consumer of the group that consumes it.",
    ),
]
BodyFormat = Annotated[
    str | None,
    typer.Option(
        "-f", "--bodyFormat", metavar="CHARSET", help="Show the body in this character set."
    ),
]


@gives(message_text.COLUMNS, DIRECTLY, SENT_AGAIN, data=DETAILS)
@writes
@shows_messages
@concurrently
@subject("msg_id", "topic")
async def query_msg_by_id(
    call: Call,
    msg_id: Annotated[
        str,
        typer.Option("-i", "--msgId", metavar="ID[,…]", help="Offset ids, separated by commas."),
    ],
    topic: Annotated[
        str | None,
        topic_option("Has no effect; accepted for 5.x scripts."),
    ] = None,
    consumer_group: Group = None,
    client_id: ClientId = None,
    send_message: Annotated[
        Truth | None, typer.Option("-s", "--sendMessage", help="Send the message again.")
    ] = None,
    unit_name: Annotated[
        str | None,
        typer.Option(
            "-u",
            "--unitName",
            metavar="NAME",
            help="Has no effect; accepted for mqadmin's scripts.",
        ),
    ] = None,
    body_format: BodyFormat = None,
    cluster: Annotated[
        str | None,
        cluster_option("Has no effect; accepted for 5.x scripts.", name="--cluster"),
    ] = None,
) -> Result:
    """Find messages by offset id.

    Examples:
        mq queryMsgById 7F00000100002A9F00000000000000D4
                                        find a message by its offset id
        mq queryMsgById 7F00000100002A9F00000000000000D4 -f UTF-8
                                        with its body
    """
    charset = message_text.codec(body_format) if body_format else None
    ids = [part.strip() for part in msg_id.split(",") if part.strip()]
    if not ids:
        raise UsageError("-i/--msgId is empty")
    for item in ids:  # before anything is done
        _check_offset_id(item)
    async with call.admin() as admin:
        if consumer_group and client_id:
            return await consume_directly(admin, consumer_group, client_id, ids)
        messages = Unpacked([await by_offset_id(admin, item) for item in ids])
        if send_message is not None:
            return await send_found(call, ids, messages if send_message else messages[:0])
        return await details(call, admin, messages, offset_id=True, charset=charset)


def _check_offset_id(message_id: str) -> None:
    """Raise UsageError if it is not an offset id."""
    from mq.protocol.message_id import is_offset_id

    if not is_offset_id(message_id):
        raise UsageError(
            f"{message_id!r} is not an offset id (32 hexadecimal digits, 56 with IPv6)",
            hint=f"for a producer's own id: mq queryMsgByUniqueKey -i {message_id} -t TOPIC",
        )


@gives(message_text.COLUMNS, data=message_text.DOCUMENT)
@shows_messages
@subject("topic", "msg_key")
async def query_msg_by_key(
    call: Call,
    topic: Topic,
    msg_key: Annotated[
        str, typer.Option("-k", "--msgKey", metavar="KEY", help="Key of the message.")
    ],
    begin_timestamp: BeginTimestamp = None,
    end_timestamp: EndTimestamp = None,
    max_num: Annotated[
        int,
        typer.Option("-m", "--maxNum", metavar="N", help="At most N messages from each broker."),
    ] = 64,
    cluster: Annotated[
        str | None,
        cluster_option("Only from the brokers of this cluster.", name="--cluster"),
    ] = None,
) -> Result:
    r"""Find messages by key.

    Examples:
        mq queryMsgByKey Orders order-1  find messages by their key
        mq queryMsgByKey Orders order-1 --format '%k %b\n'
                                         key and body
    """
    from mq.client.operations.messages import lookup

    span = span_of(call, begin_timestamp, end_timestamp)
    errors: list[MQError] = []
    async with call.admin() as admin:
        messages = await lookup.stored_by_key(
            admin, topic, msg_key, max_num, *span, failures=errors
        )
        clusters = {
            broker.broker_name: broker.cluster
            for broker in (await admin.session.route(topic)).broker_datas
        }
    if cluster is not None:
        messages = [item for item in messages if clusters.get(item.broker_name) == cluster]
    if not messages:
        for error in errors:
            raise error
        raise NotFound(
            f"no message of topic {topic} has the key {msg_key!r}",
            hint="keys must match exactly; brokers delete messages after fileReservedTime",
        )
    plain = f"{'#Message ID':<50} {'#QID':>4} {'#Offset':>40}\n"
    for item in messages:
        plain += f"{item.message_id:<50} {item.queue_id:>4} {item.queue_offset:>40}\n"
    result = message_text.result(Unpacked(messages))
    result.plain = plain
    result.failures += unsaid(topic, errors)
    return result


@gives(message_text.COLUMNS, DIRECTLY, data=DETAILS)
@writes
@shows_messages
@subject("topic", "msg_id")
async def query_msg_by_unique_key(
    call: Call,
    msg_id: Annotated[
        str, typer.Option("-i", "--msgId", metavar="ID", help="Unique id of the message.")
    ],
    topic: Topic,
    consumer_group: Group = None,
    client_id: ClientId = None,
    show_all: Annotated[
        bool, typer.Option("-a", "--showAll", help="Show every message stored with this id.")
    ] = False,
    cluster: Annotated[
        str | None,
        cluster_option("Has no effect; accepted for 5.x scripts.", name="--cluster"),
    ] = None,
) -> Result:
    """Find a message by the unique id its producer gave it.

    Examples:
        mq queryMsgByUniqueKey Orders 7F0000010A2C18B4AAC2A1B2C3D40000
                                        find a message by its unique id
        mq queryMsgByUniqueKey Orders 7F0000010A2C18B4AAC2A1B2C3D40000 -a -o table
                                        each copy, if a send was repeated
    """
    errors: list[MQError] = []
    async with call.admin() as admin:
        messages = await admin.find_by_unique_id(topic, msg_id, decompress=False, failures=errors)
        if not messages:
            for error in errors:
                raise error
            raise NotFound(
                f"no message of topic {topic} has the unique id {msg_id!r}",
                hint=f"if it is an offset id: mq queryMsgById -i {msg_id}",
            )
        if consumer_group and client_id:
            for error in errors:  # it may have an older one
                raise error
            offset_id = messages[0].offset_id
            return await consume_directly(admin, consumer_group, client_id, [offset_id])
        # 4.9 keeps only the oldest even with -a (MQAdminImpl.queryMessage).
        found = messages if show_all else messages[:1]
        result = await details(call, admin, Unpacked(found), offset_id=False, shown=1)
        result.failures += unsaid(topic, errors)
        return result


@gives(message_text.COLUMNS, data=DETAILS)
@shows_messages
@subject("topic", "broker_name", "queue_id", "offset")
async def query_msg_by_offset(
    call: Call,
    topic: Topic,
    broker_name: Annotated[
        str, typer.Option("-b", "--brokerName", metavar="NAME", help="Name of the broker.")
    ],
    queue_id: Annotated[int, typer.Option("-i", "--queueId", metavar="ID", help="Queue id.")],
    offset: Annotated[
        int, typer.Option("-o", "--offset", metavar="N", help="Offset in the queue.")
    ],
    body_format: BodyFormat = None,
) -> Result:
    """Find the message at an offset of a queue.

    Examples:
        mq queryMsgByOffset Orders broker-a 0 0  the message at an offset of a queue
        mq queryMsgByOffset Orders broker-a 0 0 -f UTF-8
                                                 with its body
    """
    from mq.client.operations.messages import lookup
    from mq.protocol.bodies import MessageQueue

    charset = message_text.codec(body_format) if body_format else None
    async with call.admin() as admin:
        queue = MessageQueue(topic, broker_name, queue_id)
        result = await lookup.at_offset(admin.session, queue, offset)
        extra = message_text.pulled_properties(result.min_offset, result.max_offset)
        found = Unpacked(result.messages[:1])
        return await details(call, admin, found, offset_id=True, extra=extra, charset=charset)


_DECODED_COLUMNS = (
    text("messageId", "Message id"),
    text("host", "Host"),
    number("process", "Process id"),
    time("created", "Created"),
    number("counter", "Counter"),
)


@gives(_DECODED_COLUMNS)
@subject("message_id")
def decode_message_id(
    call: Call,
    message_id: Annotated[
        str, typer.Option("-i", "--messageId", metavar="ID", help="Unique id of the message.")
    ],
) -> Result:
    """Decode a unique id: the producer's address, and the creation time.
    The id does not contain its month: it is taken as the current month, or the last one if the time
    would be in the future. It has only 16 bits of the process id.

    Examples:
        mq DecodeMessageId 7F0000010A2C18B4AAC2A1B2C3D40000
                                        the producer, and the time
        mq DecodeMessageId 7F0000010A2C18B4AAC2A1B2C3D40000 -o json
                                        for a program
    """
    from mq.protocol.message_id import decode_unique_id, unique_id_time

    try:
        decoded = decode_unique_id(message_id)
        made = round(unique_id_time(message_id, call.environment.clock()) * 1000)
    except ValueError as error:
        raise UsageError(f"-i/--messageId: {error}") from None
    day, _, fraction = java_text.milliseconds_text(made).partition(",")
    plain = f"ip={_ip_text(decoded.host)}date={day.replace(' ', '#')}:{fraction}"
    row = message_id, decoded.host, decoded.process, made, decoded.counter
    return Result(_DECODED_COLUMNS, [row], plain)


def _ip_text(host: str) -> str:
    """Return UtilAll.ipToIPv6Str of an address, which writes every digit."""
    if ":" not in host:
        return host
    from ipaddress import IPv6Address

    return IPv6Address(host).exploded
