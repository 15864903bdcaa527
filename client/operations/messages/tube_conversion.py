"""Converts RocketMQ messages to TubeMQ messages and back, without loss.

RocketMQ                 TubeMQ
tag                      message type
keys, user's properties  attributes, KEYS among them; what may not be in one is written as %XX,
                         and QUOTED says so
flag                     attribute FLAG, unless it is 0

A property by which RocketMQ's brokers would do something - delay a message, take it for half of a
transaction - is not made of an attribute: it gets a name that means nothing to them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from mq.client.operations.messages.lines import DROPPED
from mq.protocol.message import Message
from mq.protocol.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, PropertyKey
from mq.protocol.tube.payload import MESSAGE_TIME, MESSAGE_TYPE

if TYPE_CHECKING:
    from mq.client.tube.message import TubeMessage

#: An attribute that marks others, or the type, as containing %XX.
QUOTED = "mqQuoted"
#: An attribute: the flag of a RocketMQ message.
FLAG = "mqFlag"
#: Prefix for attributes whose names have a meaning as properties in RocketMQ.
FOREIGN = "tube."

_OURS = frozenset({QUOTED, FLAG})
_QUOTES = {ord(letter): f"%{ord(letter):02X}" for letter in "%,="}
_SEPARATORS = {ord(letter): quote(letter) for letter in NAME_VALUE_SEPARATOR + PROPERTY_SEPARATOR}


def attributes_of(
    properties: Mapping[str, str], flag: int = 0
) -> tuple[dict[str, str], str | None]:
    """Return the attributes and the type of a copy, from the properties and the flag of a
    message.
    """
    attributes: dict[str, str] = {}
    is_quoted = False
    for name, value in properties.items():
        if name == PropertyKey.TAGS or not name or not value:
            continue
        key, text = _quote(name), _quote(value)
        if name in _OURS:  # a name that a user has chosen
            key = f"%{ord(name[0]):02X}{name[1:]}"
        is_quoted = is_quoted or (key, text) != (name, value)
        attributes[key] = text
    tag = properties.get(PropertyKey.TAGS)
    kind = _quote(tag) if tag else None
    if is_quoted or kind != (tag or None):
        attributes[QUOTED] = "1"
    if flag:
        attributes[FLAG] = str(flag)
    return attributes, kind


def _quote(text: str) -> str:
    quoted = text.translate(_QUOTES)
    for reserved in (MESSAGE_TYPE, MESSAGE_TIME):
        quoted = quoted.replace(reserved, reserved.replace("$", "%24"))
    bare = quoted.strip()  # surrounding blanks would be removed, and blank values refused
    if bare == quoted:
        return quoted
    begin = quoted.index(bare) if bare else len(quoted)
    return quote(quoted[:begin]) + bare + quote(quoted[begin + len(bare) :])


def message_of(topic: str, message: "TubeMessage") -> Message:
    """Return a RocketMQ copy of a TubeMQ message. Its message time becomes a property."""
    attributes = dict(message.attributes)
    is_quoted = attributes.pop(QUOTED, None) is not None
    flag = attributes.pop(FLAG, "")
    copy = Message(topic, message.body, flag=int(flag) if _is_flag(flag) else 0)
    for name, value in attributes.items():
        text = _plain(value, is_quoted)
        if name == MESSAGE_TYPE:
            copy.system[PropertyKey.TAGS] = text
        elif name == MESSAGE_TIME:
            copy.system["msgTime"] = text
        else:
            name = _plain(name, is_quoted)
            if name in DROPPED or name == PropertyKey.TAGS:
                name = FOREIGN + name
            copy.system[name] = text
    return copy


def _is_flag(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= 10 and abs(int(text)) < 2**31


def _plain(text: str, is_quoted: bool) -> str:
    """Remove the separators of properties from a text, which could otherwise inject properties."""
    return (unquote(text) if is_quoted else text).translate(_SEPARATORS)
