"""A message as the JSON that commands and pages give of it (docs/json-output.md)."""

from typing import TYPE_CHECKING, Any

from mq.client.operations.times import iso
from mq.protocol.host import address_text

if TYPE_CHECKING:
    from mq.protocol.message import StoredMessage


def body_text(message: "StoredMessage") -> tuple[str, str]:
    """The body as text and how it is written: utf-8 or base64."""
    try:
        return bytes(message.body).decode(), "utf-8"
    except UnicodeDecodeError:
        from base64 import b64encode

        return b64encode(message.body).decode(), "base64"


def document(message: "StoredMessage") -> dict[str, Any]:
    """A message whole, for JSON and YAML."""
    body, encoding = body_text(message)
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
    }
