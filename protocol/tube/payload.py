"""The payload of a message: its attributes, if it has any, and its body.

    flag & 1:  length i32 | attributes "key=value,key=value" in UTF-8 | body
    else:      body

Two attributes belong to the system: the filter item for brokers and consumers, and a minute.
"""

import struct
from collections.abc import Mapping
from datetime import datetime

from mq.protocol.checksum import crc32
from mq.protocol.tags import java_hash
from mq.protocol.tube.errors import MalformedPayload

HAS_ATTRIBUTES = 0x01
MESSAGE_TYPE = "$msgType$"
MESSAGE_TIME = "$msgTime$"  # yyyyMMddHHmm

#: The key code of messages without a type.
NO_KEY = -1

_LENGTH = struct.Struct(">i")


def encode(
    body: bytes,
    attributes: Mapping[str, str] | None = None,
    message_type: str | None = None,
    message_time: str | None = None,
) -> tuple[bytes, int]:
    """Return the payload of a message, and its flag.

    The bit of the flag is set if there are attributes. (Java's producer sets it for an empty text,
    too, but omits the length: its own consumers lose such a message.) Raises ValueError for an
    invalid attribute, type or time.
    """
    if not attributes and message_type is None and message_time is None:
        return body, 0
    text = attribute_text(attributes or {}, message_type, message_time)
    if not text:
        return body, 0
    raw = text.encode()
    return b"%b%b%b" % (_LENGTH.pack(len(raw)), raw, body), HAS_ATTRIBUTES


def attribute_text(
    attributes: Mapping[str, str], message_type: str | None = None, message_time: str | None = None
) -> str:
    """Format attributes, the system's first (Message.putSystemHeader).

    Raises ValueError for an attribute that would not be parsed to the same value.
    """
    pairs = []
    if message_type is not None:
        pairs.append((MESSAGE_TYPE, _attribute(message_type.strip())))
    if message_time is not None:
        pairs.append((MESSAGE_TIME, _minute(message_time.strip())))
    for key, value in attributes.items():
        if MESSAGE_TYPE in key + value or MESSAGE_TIME in key + value:
            raise ValueError(f"{MESSAGE_TYPE} and {MESSAGE_TIME} are set by the type and time only")
        pairs.append((_attribute(key), _attribute(value)))
    return ",".join([f"{key}={value}" for key, value in pairs])


def decode(payload: bytes, flag: int) -> tuple[bytes, str]:
    """Return the body of a message, and its attributes as text ("" without any).

    Raises MalformedPayload if the payload contradicts the flag.
    """
    if not flag & HAS_ATTRIBUTES:
        return payload, ""
    if len(payload) < 4:
        raise MalformedPayload(f"{len(payload)} bytes have no room for the length of attributes")
    (length,) = _LENGTH.unpack_from(payload)
    if not 0 <= length <= len(payload) - 4:
        raise MalformedPayload(f"attributes of {length} bytes in a payload of {len(payload)}")
    # As in Java: invalid UTF-8 is replaced, and the message is kept.
    return payload[4 + length :], payload[4 : 4 + length].decode("utf-8", "replace")


def parse_attributes(text: str) -> dict[str, str]:
    """Parse the attributes of a message, including the system's. Pairs without key or value are
    ignored.

    Of equal keys the first counts (Message.getAttrValue).
    """
    attributes: dict[str, str] = {}
    for pair in text.split(","):
        key, equals, value = pair.partition("=")
        if equals and key.strip() and value:
            attributes.setdefault(key, value.split("=", 1)[0])
    return attributes


def checksum(payload: bytes | memoryview) -> int:
    """Return the checksum of a message: 31 bits of the CRC-32 of its payload."""
    return crc32(payload) & 0x7FFFFFFF


def key_code(message_type: str | None) -> int:
    """Return the number by which brokers filter: the String.hashCode of a type, or NO_KEY without
    one.
    """
    return java_hash(message_type) if message_type else NO_KEY


def _attribute(text: str) -> str:
    if not text.strip():
        raise ValueError("an attribute has a key and a value that are not blank")
    if "," in text or "=" in text:
        raise ValueError(f"{text!r}: no part of an attribute may have ',' or '=' in it")
    return text


def _minute(text: str) -> str:
    if len(text) != 12 or not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is not a message time: yyyyMMddHHmm")
    try:
        datetime.strptime(text, "%Y%m%d%H%M")
    except ValueError:
        raise ValueError(f"{text!r} is not a message time: no calendar has it") from None
    return text
