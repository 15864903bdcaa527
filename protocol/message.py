"""Messages: what a user sends, and what a broker stores and hands out.

A stored message travels as the record of the commit log, which mq.protocol.record lays out. Source:
org.apache.rocketmq.common.message.MessageDecoder.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

from mq.protocol import properties as property_text
from mq.protocol.compression import CompressionType, compress, decompress
from mq.protocol.errors import LocalProtocolError, RemoteProtocolError
from mq.protocol.flags import SysFlag
from mq.protocol.host import host_text, pack_host
from mq.protocol.message_id import encode_offset_id
from mq.protocol.properties import KEY_SEPARATOR, RESERVED, PropertyKey
from mq.protocol.record import (
    BLANK,
    CRC_MASK,
    HEAD_V4,
    IPV6_BITS,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SMALLEST_RECORD,
    head,
    struct_of,
)

_SYS_FLAG = struct_of("sys_flag").unpack_from
_SHORT = struct.Struct(">h")

Buffer = bytes | bytearray | memoryview
Address = tuple[str, int]  # an IP address in figures, a port


class Message:
    """A message that a user sends.

    Attributes:
        topic, body: where to, and what; the body is not compressed.
        tags: one tag, by which consumers choose; or None.
        keys: words by which it can be found.
        properties: the user's own, text by text; names that RocketMQ uses are refused.
        flag: 32 bits for the user.
        delay_level: 0 for at once, else 1 to the number of levels of the broker.
        deliver_at: when consumers get it, ms since 1970; None for at once (not by 4.9 brokers).
        wait_store_ok: whether to wait for the broker to store it safely (WAIT).
        transaction_id: the id of the transaction that it belongs to, or None.
        system: properties that RocketMQ uses, for the parts of it that set them: UNIQ_KEY and such.
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
        """Text as `keys` is several keys with blanks between them.

        Raises:
            ValueError: a property that users may not set or that cannot be stored.
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

    def all_properties(self) -> dict[str, str]:
        """What is stored as its properties: the user's, tags, keys and the like, and `system`."""
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
        """`all_properties` as one text.

        Raises:
            ValueError: longer than 32767 bytes in UTF-8, the most that a record holds.
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
    text = name + value
    if property_text.NAME_VALUE_SEPARATOR in text or property_text.PROPERTY_SEPARATOR in text:
        raise ValueError(f"the property {name!r} has a character 0x01 or 0x02, which separate them")


class StoredMessage:
    """A message as a broker stores it (Java: MessageExt).

    Attributes:
        topic, body, flag: as sent; the body is decompressed unless its decoder was told not to.
        queue_id, queue_offset: its place in the topic.
        physical_offset, store_size: its place in the commit log, and its size there, in bytes.
        sys_flag: bits of flags.SysFlag, as stored, whether the body was decompressed or not.
        body_crc: CRC-32 of the stored body without its first bit.
        born_timestamp, store_timestamp: when it was sent and stored, ms since the epoch.
        born_host, store_host: who sent and who stored it, (IP address, port).
        reconsume_times: how often its group has failed to consume it.
        prepared_transaction_offset: where the prepared message lies, of a transaction.
        properties: all of them, by name.
        broker_name: the broker that it came from; set by who received it, "" before.
        version: 1, or 2 for a record of the second form.
    """

    __slots__ = (
        "_born_address",
        "_born_port",
        "_decompressed",
        "_properties",
        "_properties_bytes",
        "_store_address",
        "_store_port",
        "body",
        "body_crc",
        "body_error",
        "born_timestamp",
        "broker_name",
        "flag",
        "physical_offset",
        "prepared_transaction_offset",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "store_size",
        "store_timestamp",
        "sys_flag",
        "topic",
        "version",
    )

    body: bytes
    #: Why `body` is not what the producer gave, but the bytes as they are stored: its sysFlag says
    #: that they are compressed, and they are not, or damaged. Empty for every other message.
    body_error: str
    broker_name: str
    topic: str
    _decompressed: bool
    _properties: dict[str, str] | None
    _properties_bytes: bytes

    def __init__(
        self,
        topic: str,
        body: bytes,
        properties: Mapping[str, str] | None = None,
        *,
        queue_id: int = 0,
        queue_offset: int = 0,
        physical_offset: int = 0,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int = 0,
        born_host: Address = ("0.0.0.0", 0),
        store_timestamp: int = 0,
        store_host: Address = ("0.0.0.0", 0),
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        broker_name: str = "",
        version: int = 1,
    ) -> None:
        """The bits of the sysFlag that tell the sizes of the hosts are set from the hosts; those
        for compression say that `body` is compressed.

        Raises:
            ValueError: a host is not an IP address.
        """
        self.topic = topic
        self.body = body
        self.body_error = ""
        self._decompressed = False
        self._properties = dict(properties or {})
        self._properties_bytes = b""
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.physical_offset = physical_offset
        self.store_size = 0
        self.flag = flag
        self._born_address, self._born_port = pack_host(born_host[0]), born_host[1]
        self._store_address, self._store_port = pack_host(store_host[0]), store_host[1]
        self.sys_flag = (
            sys_flag & ~IPV6_BITS
            | (SysFlag.BORN_HOST_V6 if len(self._born_address) == 16 else 0)
            | (SysFlag.STORE_HOST_V6 if len(self._store_address) == 16 else 0)
        )
        self.body_crc = crc32(body) & CRC_MASK
        self.born_timestamp = born_timestamp
        self.store_timestamp = store_timestamp
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.broker_name = broker_name
        self.version = version

    @property
    def properties(self) -> dict[str, str]:
        decoded = self._properties
        if decoded is None:
            text = self._properties_bytes.decode("utf-8", "replace")
            decoded = self._properties = property_text.decode(text)
        return decoded

    @property
    def born_host(self) -> Address:
        return host_text(self._born_address), self._born_port

    @property
    def store_host(self) -> Address:
        return host_text(self._store_address), self._store_port

    @property
    def offset_id(self) -> str:
        """The id that says where it is stored."""
        return encode_offset_id(*self.store_host, self.physical_offset)

    @property
    def message_id(self) -> str:
        """The id that its producer gave it; if none did, the offset id."""
        return self.properties.get(PropertyKey.UNIQUE_KEY) or self.offset_id

    @property
    def tags(self) -> str | None:
        return self.properties.get(PropertyKey.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.properties.get(PropertyKey.KEYS, "").split())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoredMessage) and _values(self) == _values(other)

    __hash__ = None  # type: ignore[assignment]  # messages are mutable

    def __repr__(self) -> str:
        return (
            f"<message {self.message_id} {self.topic}[{self.queue_id}]@{self.queue_offset} "
            f"{len(self.body)} bytes>"
        )


_COMPARED = [
    name for name in StoredMessage.__slots__ if name not in ("_properties", "_properties_bytes")
]


def _values(message: StoredMessage) -> list[Any]:
    return [getattr(message, name) for name in _COMPARED] + [message.properties]


def decode_record(
    buffer: Buffer,
    position: int = 0,
    *,
    read_body: bool = True,
    decompress: bool = True,
    check_crc: bool = False,
) -> StoredMessage:
    """Read the record at `position`; its `store_size` says where the next one starts.

    Without `read_body` the body is empty, without `decompress` it is as stored. A compressed body
    that cannot be restored is given as stored, too, and `body_error` says why: whoever reads a
    queue must be able to go on behind such a message.

    Raises:
        RemoteProtocolError: not a whole record, or with `check_crc` one whose body is damaged. It
            says where and why.
    """
    view = buffer if type(buffer) is bytes else memoryview(buffer)
    return _decode(view, position, len(view), read_body, decompress, check_crc)


def decode_records(
    buffer: Buffer, *, read_body: bool = True, decompress: bool = True, check_crc: bool = False
) -> list[StoredMessage]:
    """Read records that follow each other, as in the body of a pull response.

    A blank record, the end of a log file, ends the list.

    Raises:
        RemoteProtocolError: as `decode_record`. (Java drops what cannot be read, and the rest.)
    """
    view = buffer if type(buffer) is bytes else memoryview(buffer)
    end = len(view)
    position = 0
    messages = []
    while position < end:
        if end - position >= BLANK.size and BLANK.unpack_from(buffer, position)[1] == MAGIC_BLANK:
            break
        message = _decode(view, position, end, read_body, decompress, check_crc)
        messages.append(message)
        position += message.store_size
    return messages


def _decode(
    view: bytes | memoryview,
    position: int,
    end: int,
    read_body: bool,
    decompress_body: bool,
    check_crc: bool,
) -> StoredMessage:
    # Longer than a screen: for each record that is read, a call more costs 3 % (1.21 to 1.25 µs).
    message = StoredMessage.__new__(StoredMessage)
    try:
        sys_flag: int = _SYS_FLAG(view, position)[0]
        fixed = head(sys_flag) if sys_flag & IPV6_BITS else HEAD_V4
        (
            size,
            magic,
            message.body_crc,
            message.queue_id,
            message.flag,
            message.queue_offset,
            message.physical_offset,
            message.sys_flag,
            message.born_timestamp,
            message._born_address,
            message._born_port,
            message.store_timestamp,
            message._store_address,
            message._store_port,
            message.reconsume_times,
            message.prepared_transaction_offset,
            body_length,
        ) = fixed.unpack_from(view, position)
        body_start = position + fixed.size
        topic_start = body_start + body_length + 1
        if body_length < 0 or size < SMALLEST_RECORD or size > end - position:
            raise _malformed(position, f"size {size}, body {body_length} bytes")
        if magic == MAGIC_V1:
            message.version = 1
            topic_length = view[topic_start - 1]
        elif magic == MAGIC_V2:
            message.version = 2
            topic_length = _SHORT.unpack_from(view, topic_start - 1)[0]
            topic_start += 1
        else:
            raise _malformed(position, f"magic {magic & 0xFFFFFFFF:#010x}")
        properties_start = topic_start + topic_length + 2
        properties_length = _SHORT.unpack_from(view, properties_start - 2)[0]
    except (struct.error, IndexError):
        raise _malformed(position, f"{end - position} bytes are not a whole one") from None
    stop = properties_start + properties_length
    if stop - position != size or topic_length < 0 or properties_length < 0:
        raise _malformed(position, f"the lengths of its parts do not make its size, {size}")
    message.store_size = size
    message.topic = str(view[topic_start : topic_start + topic_length], "utf-8", "replace")
    message.broker_name = ""
    message._properties = None
    message._properties_bytes = bytes(view[properties_start:stop])
    stored = view[body_start : body_start + body_length]
    if check_crc and body_length and crc32(stored) & CRC_MASK != message.body_crc:
        raise _malformed(position, "the CRC of its body is wrong")
    message._decompressed = False
    message.body_error = ""
    if not read_body:
        message.body = b""
    elif decompress_body and sys_flag & SysFlag.COMPRESSED and body_length:
        _restore_body(message, stored)
    else:
        message.body = bytes(stored)
    return message


def _restore_body(message: StoredMessage, stored: bytes | memoryview) -> None:
    try:
        message.body = bytes(decompress(stored, message.sys_flag))
        message._decompressed = True
    except RemoteProtocolError as error:
        message.body = bytes(stored)
        message.body_error = str(error)


def _malformed(position: int, why: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"no message record at byte {position}: {why}")


def encode_record(message: StoredMessage) -> bytes:
    """Write the record of a message. A body that was decompressed is compressed again.

    Raises:
        LocalProtocolError: a part is too long for its place, or a number too large.
    """
    body = message.body
    if message._decompressed:
        kind = (message.sys_flag & SysFlag.COMPRESSION_MASK) >> SysFlag.COMPRESSION_SHIFT
        body = compress(body, CompressionType(kind or CompressionType.ZLIB))
    try:
        topic = message.topic.encode()
        properties = (
            message._properties_bytes  # untouched, so that the record comes out as it went in
            if message._properties is None
            else property_text.encode(message._properties).encode()
        )
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"the message does not fit a record: {error}") from None
    second_form = message.version == 2
    topic_length = struct.Struct(">h") if second_form else struct.Struct(">b")
    fixed = head(message.sys_flag)
    size = fixed.size + len(body) + topic_length.size + len(topic) + 2 + len(properties)
    try:
        return b"".join(
            (
                fixed.pack(
                    size,
                    MAGIC_V2 if second_form else MAGIC_V1,
                    crc32(body) & CRC_MASK,
                    message.queue_id,
                    message.flag,
                    message.queue_offset,
                    message.physical_offset,
                    message.sys_flag,
                    message.born_timestamp,
                    message._born_address,
                    message._born_port,
                    message.store_timestamp,
                    message._store_address,
                    message._store_port,
                    message.reconsume_times,
                    message.prepared_transaction_offset,
                    len(body),
                ),
                body,
                topic_length.pack(len(topic)),
                topic,
                _SHORT.pack(len(properties)),
                properties,
            )
        )
    except struct.error as error:
        raise LocalProtocolError(f"the message does not fit a record: {error}") from None
