"""The messages that belong to a dead letter: the original in its topic, and the copy of a resend.

Any client that may read as a group can write dead letters of that group, with any content and any
topic in RETRY_TOPIC. So no property of a letter is trusted. A letter comes from a topic if that
topic holds a message with the same unique id and the same content, which only an account that may
send to the topic can have put there. A copy is trusted for the same reason.
"""

from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from mq.client.errors import RouteNotFound
from mq.client.operations.messages.lines import DROPPED
from mq.protocol.message import restore_body
from mq.protocol.properties import PropertyKey, encode

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.message import StoredMessage

MARK = "MQ_RESENT_FROM"  # the offset id of the dead letter that a message is a copy of

# The largest decompressed body that is compared or sent; no producer sends as much.
MOST_DECOMPRESSED = 16 * 1024 * 1024

_NOT_COMPARED = DROPPED | {MARK, PropertyKey.UNIQUE_KEY}


class LetterCopies(NamedTuple):
    """The messages of its topic that belong to a dead letter.

    `original` says whether the topic holds the message itself, or a copy of it.
    """

    original: bool = False
    copy: "StoredMessage | None" = None


def origin_topic(letter: "StoredMessage") -> str | None:
    """The topic that a letter says it was sent to; None for a letter that names none."""
    properties = letter.properties
    return properties.get(PropertyKey.RETRY_TOPIC) or properties.get(PropertyKey.DLQ_ORIGIN_TOPIC)


def content_of(message: "StoredMessage") -> bytes:
    """A digest of flag, body and the sender's properties. The body is decompressed in place."""
    restore_body(message, MOST_DECOMPRESSED)
    kept = {
        name: value
        for name, value in sorted(message.properties.items())
        if name not in _NOT_COMPARED
    }
    head = encode(kept).encode("utf-8", "surrogatepass")
    digest = sha256(b"%d %d " % (message.flag, len(head)) + head)
    digest.update(message.body)
    return digest.digest()


async def related(admin: "Admin", letter: "StoredMessage", content: bytes) -> LetterCopies:
    """Look up the original of a letter and its copy. `content` is the letter's. Raises MQError."""
    topic = origin_topic(letter)
    if topic is None:
        return LetterCopies()
    try:
        found = await admin.find_by_unique_id(topic, letter.message_id, decompress=False)
    except RouteNotFound:
        return LetterCopies()
    place = letter.offset_id
    original = False
    for message in found:
        is_copy = message.properties.get(MARK) == place
        if (original and not is_copy) or content_of(message) != content:
            continue
        if is_copy:
            return LetterCopies(True, message)
        original = True
    return LetterCopies(original)
