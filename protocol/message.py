"""Messages that users send; the class of stored messages can be imported from here, too."""

from collections.abc import Iterable, Mapping

from mq.protocol import properties as property_text
from mq.protocol.properties import KEY_SEPARATOR, RESERVED, PropertyKey
from mq.protocol.record_codec import Buffer as Buffer
from mq.protocol.record_codec import decode_record as decode_record
from mq.protocol.record_codec import decode_records as decode_records
from mq.protocol.record_codec import decode_undamaged as decode_undamaged
from mq.protocol.record_codec import encode_record as encode_record
from mq.protocol.record_codec import restore_body as restore_body
from mq.protocol.stored_message import StoredMessage as StoredMessage


class Message:
    """A message that a user sends.

    Attributes:
        topic, body: the target and the content; the body is not compressed.
        tags: one tag, by which consumers filter; or None.
        keys: words by which it can be found.
        properties: the user's own, text by text; names that RocketMQ uses are refused.
        flag: 32 bits for the user.
        delay_level: 0 for no delay, else 1 to the number of levels of the broker.
        deliver_at: the delivery time, ms since 1970; None for at once (not with 4.9 brokers).
        wait_store_ok: whether to wait for the broker to store it safely (WAIT).
        transaction_id: the id of its transaction, or None.
        system: properties that RocketMQ itself sets: UNIQ_KEY and others.
    """

    __slots__ = (
        "body",
        "delay_level",
        "deliver_at",
        "flag",
        "keys",
        "properties",
        "system",
        "tags",
        "topic",
        "transaction_id",
        "wait_store_ok",
    )

    def __init__(
        self,
        topic: str,
        body: bytes | memoryview,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        *,
        flag: int = 0,
        delay_level: int = 0,
        deliver_at: int | None = None,
        wait_store_ok: bool = True,
        transaction_id: str | None = None,
    ) -> None:
        """A text as `keys` may have several keys separated by blanks.

        Raises:
            ValueError: a property that users may not set; a property, tag or key that cannot be
                stored.
        """
        self.topic = topic
        self.body = body
        self.tags = tags
        self.keys = tuple(keys.split() if isinstance(keys, str) else keys)
        self.properties = dict(properties or {})
        self.flag = flag
        self.delay_level = delay_level
        self.deliver_at = deliver_at
        self.wait_store_ok = wait_store_ok
        self.transaction_id = transaction_id
        self.system: dict[str, str] = {}
        for name, value in self.properties.items():
            check_property(name, value)
        if tags and property_text.has_separator(tags):
            raise ValueError("its tag has a character that separates properties")
        if any(map(property_text.has_separator, self.keys)):
            raise ValueError("its key has a character that separates properties")

    def all_properties(self) -> dict[str, str]:
        """Return all stored properties: the user's, tags, keys and the like, and `system`."""
        result = dict(self.properties)
        if self.keys:
            result[PropertyKey.KEYS] = KEY_SEPARATOR.join(self.keys)
        if self.tags:
            result[PropertyKey.TAGS] = self.tags
        if self.delay_level:
            result[PropertyKey.DELAY_LEVEL] = str(self.delay_level)
        if self.deliver_at is not None:
            result[PropertyKey.TIMER_DELIVER_MS] = str(self.deliver_at)
        result[PropertyKey.WAIT_STORE] = "true" if self.wait_store_ok else "false"
        if self.transaction_id is not None:
            result[PropertyKey.TRANSACTION_ID] = self.transaction_id
        result.update(self.system)
        return result

    def encode_properties(self) -> str:
        """Return `all_properties` as one text.

        Raises:
            ValueError: longer than 32767 bytes in UTF-8, the limit of a record.
        """
        text = property_text.encode(self.all_properties())
        if len(text) * 4 > property_text.MAX_LENGTH:
            size = len(text.encode())
            if size > property_text.MAX_LENGTH:
                raise ValueError(
                    f"the properties have {size} bytes, limit {property_text.MAX_LENGTH}"
                )
        return text

    def __repr__(self) -> str:
        return (
            f"Message({self.topic!r}, {len(self.body)} bytes, tags={self.tags!r}, "
            f"keys={self.keys!r}, properties={self.properties!r})"
        )


def check_property(name: str, value: str) -> None:
    """Raises ValueError for a property that users may not set or that cannot be stored."""
    if name in RESERVED:
        raise ValueError(f"the property {name!r} is used by RocketMQ: choose another name")
    if not name or not value:
        raise ValueError(f"the property {name!r} needs a name and a value")
    if property_text.has_separator(name + value):
        raise ValueError(f"the property {name!r} has a character 0x01 or 0x02, which separate them")
