"""The payload of a message: its attributes, if it has some, and its body.

    flag & 1:  length i32 | attributes "key=value,key=value" in UTF-8 | body
    else:      body

Two attributes are the system's: what brokers and consumers filter by, and a minute.
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
    """The payload of a message, and its flag.

    The bit of the flag is set if there are attributes. (Java's producer sets it for an empty text,
    too, but leaves out the length: its own consumers lose such a message.)

    Raises ValueError if an attribute, the type or the time is not one.
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
    """Attributes as they are written: the system's first (Message.putSystemHeader).

    Raises ValueError if one of them would not be read as it is.
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
    """The body of a message, and its attributes as text ("" without some).

    Raises MalformedPayload if they are not there as the flag says.
    """
    if not flag & HAS_ATTRIBUTES:
        return payload, ""
    if len(payload) < 4:
        raise MalformedPayload(f"{len(payload)} bytes have no room for the length of attributes")
    (length,) = _LENGTH.unpack_from(payload)
    if not 0 <= length <= len(payload) - 4:
        raise MalformedPayload(f"attributes of {length} bytes in a payload of {len(payload)}")
    # As Java reads it: what is not text becomes question marks, and the message is kept.
    return payload[4 + length :], payload[4 : 4 + length].decode("utf-8", "replace")


def parse_attributes(text: str) -> dict[str, str]:
    """The attributes of a message, the system's too. What has no key or no value is left out.

    Of a key that is there twice the first counts (Message.getAttrValue).
    """
    attributes: dict[str, str] = {}
    for pair in text.split(","):
        key, equals, value = pair.partition("=")
        if equals and key.strip() and value:
            attributes.setdefault(key, value.split("=", 1)[0])
    return attributes


def checksum(payload: bytes | memoryview) -> int:
    """What a message is checked by: 31 bits of the CRC-32 of its payload."""
    return crc32(payload) & 0x7FFFFFFF


def key_code(message_type: str | None) -> int:
    """The number by which brokers filter: of a type (String.hashCode), or NO_KEY without one."""
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
