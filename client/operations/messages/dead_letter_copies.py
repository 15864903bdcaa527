"""The messages related to a dead letter: the original in its topic, and the copy of a resend.

Any client with read permission for a group can write dead letters of that group, with any content
and any topic in RETRY_TOPIC. So the properties of a dead letter are not trusted. A dead letter
counts as coming from a topic if that topic contains a message with the same unique id and the same
content, which only an account with send permission can have stored there. A copy is trusted for the
same reason.
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

MARK = "MQ_RESENT_FROM"  # the offset id of the dead letter that a message copies

# The largest decompressed body that is compared or sent; no producer sends larger ones.
MOST_DECOMPRESSED = 16 * 1024 * 1024

_NOT_COMPARED = DROPPED | {MARK, PropertyKey.UNIQUE_KEY}


class LetterCopies(NamedTuple):
    """The messages in its topic that are related to a dead letter.

    `original` is whether the topic contains the message itself, or a copy of it.
    """

    original: bool = False
    copy: "StoredMessage | None" = None


def origin_topic(letter: "StoredMessage") -> str | None:
    """Return the topic that a dead letter names as its origin; None if it names none."""
    properties = letter.properties
    return properties.get(PropertyKey.RETRY_TOPIC) or properties.get(PropertyKey.DLQ_ORIGIN_TOPIC)


def content_of(message: "StoredMessage") -> bytes:
    """Return a digest of flag, body and the sender's properties. Decompresses the body in place."""
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
    """Find the original of a dead letter and its copy. `content` is the dead letter's. Raises
    MQError.
    """
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
