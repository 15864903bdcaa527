"""A message as JSON, as commands and console pages return it (docs/json-output.md)."""

from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mq.client.operations.times import iso
from mq.protocol.host import address_text

if TYPE_CHECKING:
    from mq.protocol.message import StoredMessage


_PIECE = 256 * 1024


def is_utf8(body: bytes) -> bool:
    """Whether a body is UTF-8 text. Decoded in pieces, because text may take four times as much
    memory.
    """
    decoder = getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(body), _PIECE):
            decoder.decode(body[start : start + _PIECE])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def body_text(message: "StoredMessage") -> tuple[str, str]:
    """Return the body as text and its encoding: utf-8 or base64."""
    return text_of(message.body)


def text_of(body: bytes) -> tuple[str, str]:
    """Return a body as text and its encoding: utf-8 or base64."""
    try:
        return bytes(body).decode(), "utf-8"
    except UnicodeDecodeError:
        from base64 import b64encode

        return b64encode(body).decode(), "base64"


def document(
    message: "StoredMessage",
    text: "Callable[[StoredMessage], tuple[Any, str | None]]" = body_text,
) -> dict[str, Any]:
    """Return a complete message, for JSON and YAML; `text` returns its body and encoding.
    `bodyError` is as in a line of an export; an import refuses such lines.
    """
    body, encoding = text(message)
    return {
        "messageId": message.message_id,
        "offsetId": message.offset_id,
        "topic": message.topic,
        "tags": message.properties.get("TAGS"),
        "keys": message.properties.get("KEYS"),
        "brokerName": message.broker_name or None,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physical_offset,
        "storeSize": message.store_size,
        "sysFlag": message.sys_flag,
        "bodyCrc": message.body_crc,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bornTime": iso(message.born_timestamp),
        "bornHost": address_text(message.born_host),
        "storeTime": iso(message.store_timestamp),
        "storeHost": address_text(message.store_host),
        "properties": dict(message.properties),
        "body": body,
        "bodyEncoding": encoding,
        "bodyError": message.body_error or None,
    }
