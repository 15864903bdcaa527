"""Messages as the Java tool prints them, and as rows.

Message bodies are written to files as in QueryMsgByIdSubCommand, below the state directory
(/tmp/rocketmq/msgbodys unless MQ_STATE_DIR is set).
"""

import errno
import os
from typing import TYPE_CHECKING

from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.status import Status
from mq.cli.show import bodies, java_text
from mq.cli.show.bodies import body_text as body_text
from mq.cli.show.lazy import LongText, Mapped, Text, pieces_of
from mq.cli.show.result import Result, Row
from mq.client.operations import java_order, local_files
from mq.client.operations.columns import nested, number, text, time
from mq.client.operations.messages import documents
from mq.protocol.host import address_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from mq.client.send_result import SendResult
    from mq.protocol.bodies import MessageQueue
    from mq.protocol.message import StoredMessage

COLUMNS = (
    text("messageId", "Message id"),
    text("offsetId", ""),
    text("topic", ""),
    text("tags", "Tags"),
    text("keys", "Keys"),
    text("brokerName", ""),
    number("queueId", "Queue"),
    number("queueOffset", "Offset"),
    time("bornTime", ""),
    time("storeTime", "Stored"),
    number("size", ""),
    text("body", "Body"),
)

DOCUMENT = (
    text("messageId", "unique id, or the offset id without one"),
    text("offsetId", "offset id"),
    text("topic", "topic"),
    text("tags", "tag"),
    text("keys", "keys, separated by blanks"),
    text("brokerName", "broker, if it is known"),
    number("queueId", "queue"),
    number("queueOffset", "offset in the queue"),
    number("commitLogOffset", "offset in the broker's log"),
    number("storeSize", "bytes in the log"),
    number("sysFlag", "system flags"),
    number("bodyCrc", "checksum of the stored body"),
    number("reconsumeTimes", "number of failed deliveries"),
    number("preparedTransactionOffset", "offset of its half message, in a transaction"),
    time("bornTime", "when the producer created it"),
    text("bornHost", "address of the producer"),
    time("storeTime", "when the broker stored it"),
    text("storeHost", "address of the broker"),
    nested("properties", "every property by name"),
    nested("body", "the body, in the form of bodyEncoding"),
    text("bodyEncoding", "utf-8 or base64; with --body also json and hex"),
    text("bodyError", "why the stored body is shown: it cannot be decompressed; else null"),
)


def row(message: "StoredMessage") -> Row:
    """Return a message under COLUMNS; a body that is not UTF-8 is in base64."""
    properties = message.properties
    return (
        message.message_id,
        message.offset_id,
        message.topic,
        properties.get("TAGS"),
        properties.get("KEYS"),
        message.broker_name or None,
        message.queue_id,
        message.queue_offset,
        message.born_timestamp,
        message.store_timestamp,
        len(message.body),
        body_text(message)[0],
    )


def document(message: "StoredMessage") -> "dict[str, Any]":
    """Return a whole message under DOCUMENT."""
    return documents.document(message, body_text)


def result(
    messages: "Sequence[StoredMessage]",
    line: "Callable[[StoredMessage], Iterable[str]]" = lambda message: (),
    head: str = "",
) -> Result:
    """Return a result of messages; each is formatted only when it is printed.

    `line` returns the pieces of a message's plain text, `head` comes first. `messages` may be
    `Unpacked`: then one body at a time is held.
    """

    def lines() -> "Iterator[str]":
        yield head
        for message in messages:
            yield from line(message)
            del message  # before the next one is decompressed

    rows, data = Mapped(row, messages), Mapped(document, messages)
    return Result(COLUMNS, rows, LongText(lines), data=data, messages=messages)


def queue_text(queue: "MessageQueue") -> str:
    """Return MessageQueue.toString."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


def send_result_text(result: "SendResult") -> str:
    """Return SendResult.toString of 4.9."""
    return (
        f"SendResult [sendStatus={result.status}, msgId={result.message_id}, "
        f"offsetMsgId={result.offset_message_id}, "
        f"messageQueue={queue_text(result.queue)}, "
        f"queueOffset={result.queue_offset}]"
    )


def properties_text(
    message: "StoredMessage", extra: dict[str, str] | None = None, capacity: int = 16
) -> str:
    """Return the properties in the order of Java's map; `extra` are those of a pull.

    `capacity` is the map's initial size: 128 in release 5.
    """
    properties = {**message.properties, **(extra or {})}
    return java_text.map_text(properties, java_order.hash_order(properties, capacity=capacity))


def pulled_properties(minimum: int, maximum: int) -> dict[str, str]:
    """Return the properties that a pull adds to each message (PullAPIWrapper.processPullResult)."""
    return {"MIN_OFFSET": str(minimum), "MAX_OFFSET": str(maximum)}


def message_text(message: "StoredMessage", extra: dict[str, str] | None = None) -> "Iterator[str]":
    """Yield the pieces of MessageExt.toString, which prints the body as signed bytes."""
    head, tail = _extended_text(message, properties_text(message, extra))
    yield head
    yield from pieces_of(bodies.signed_bytes(message.body))
    yield tail


def record_text(message: "StoredMessage") -> str:
    """Return MessageExt.toString of release 5 for a message that was read without its body."""
    head, tail = _extended_text(message, properties_text(message, capacity=128))
    return f"{head}null{tail}"


def _extended_text(message: "StoredMessage", properties: str) -> tuple[str, str]:
    """Return MessageExt.toString in two parts, before and after the body."""
    prepared = message.properties.get("TRAN_MSG", "").lower() == "true"
    transaction = message.properties.get("UNIQ_KEY") if prepared else None
    return (
        f"MessageExt [brokerName={message.broker_name or 'null'}, queueId={message.queue_id}, "
        f"storeSize={message.store_size}, queueOffset={message.queue_offset}, "
        f"sysFlag={message.sys_flag}, bornTimestamp={message.born_timestamp}, "
        f"bornHost=/{address_text(message.born_host)}, storeTimestamp={message.store_timestamp}, "
        f"storeHost=/{address_text(message.store_host)}, msgId={message.offset_id}, "
        f"commitLogOffset={message.physical_offset}, bodyCRC={message.body_crc}, "
        f"reconsumeTimes={message.reconsume_times}, "
        f"preparedTransactionOffset={message.prepared_transaction_offset}, "
        f"toString()=Message{{topic='{message.topic}', flag={message.flag}, "
        f"properties={properties}, body="
    ), f", transactionId='{transaction or 'null'}'}}]"


def line(message: "StoredMessage", extra: dict[str, str], body: Text) -> "Iterator[str]":
    """Yield the pieces of a line of printMsg and consumeMessage."""
    yield f"MSGID: {message.message_id} "
    yield from message_text(message, extra)
    yield " BODY: "
    yield from pieces_of(body)
    yield "\n"


def detail(
    message: "StoredMessage", path: str, *, offset_id: bool, extra: dict[str, str] | None = None
) -> str:
    """Return the page of one message of the queryMsgBy… commands."""
    properties = message.properties
    entries = [
        ("OffsetID:", message.offset_id),
        ("Topic:", message.topic),
        ("Tags:", f"[{properties.get('TAGS', 'null')}]"),
        ("Keys:", f"[{properties.get('KEYS', 'null')}]"),
        ("Queue ID:", message.queue_id),
        ("Queue Offset:", message.queue_offset),
        ("CommitLog Offset:", message.physical_offset),
        ("Reconsume Times:", message.reconsume_times),
        ("Born Timestamp:", java_text.milliseconds_text(message.born_timestamp)),
        ("Store Timestamp:", java_text.milliseconds_text(message.store_timestamp)),
        ("Born Host:", address_text(message.born_host)),
        ("Store Host:", address_text(message.store_host)),
        ("System Flag:", message.sys_flag),
        ("Properties:", properties_text(message, extra)),
        ("Message Body Path:", path),
    ]
    return "".join(f"{name:<20} {value}\n" for name, value in entries[0 if offset_id else 1 :])


def write_body(environment: Environment, message: "StoredMessage", suffix: str = "") -> str:
    """Write the body to a file and return its path. It is not synced to the disk.

    The unique id comes from the producer: if it is not alphanumeric, the file is named after the
    offset id, which the broker made. Raises CommandError.
    """
    name = message.message_id
    if not (name.isascii() and name.isalnum()):
        name = message.offset_id
    path = environment.state_directory / "msgbodys" / f"{name}{suffix}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():  # the directory may be shared: follow no other user's link
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        local_files.put(path, message.body, mode=0o644, durable=False)
    except OSError as error:
        raise CommandError(
            f"cannot write the body to {path}: {error.strerror}",
            hint="choose a directory with MQ_STATE_DIR, or print the body: --output json",
            status=Status.CANNOT_CREATE,
        ) from error
    return str(path)


def codec(name: str) -> str:
    """Return Python's name of a character set. Raises UsageError for an unknown one."""
    import codecs

    try:
        "".encode(name)  # codecs that are not character sets, such as zlib, fail here
        return codecs.lookup(name).name
    except (LookupError, UnicodeError):
        raise UsageError(f"no character set {name!r}") from None
