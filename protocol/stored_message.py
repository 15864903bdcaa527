"""Stored messages, as brokers store and deliver them (Java: MessageExt)."""

from collections.abc import Mapping
from typing import Any
from zlib import crc32

from mq.protocol import properties as property_text
from mq.protocol.flags import SysFlag
from mq.protocol.host import host_text, pack_host
from mq.protocol.message_id import encode_offset_id
from mq.protocol.properties import PropertyKey
from mq.protocol.record import CRC_MASK, IPV6_BITS

Address = tuple[str, int]  # a numeric IP address, a port


class StoredMessage:
    """A message as a broker stores it.

    Attributes:
        topic, body, flag: as sent; the body is decompressed unless the decoder does not do so.
        queue_id, queue_offset: its position in the topic.
        physical_offset, store_size: its position in the commit log, and its size there in bytes.
        sys_flag: bits of flags.SysFlag, as stored, whether the body was decompressed or not.
        body_crc: CRC-32 of the stored body without its first bit.
        born_timestamp, store_timestamp: when it was sent and stored, ms since the epoch.
        born_host, store_host: the sender and the broker, (IP address, port).
        reconsume_times: how often its group has failed to consume it.
        prepared_transaction_offset: the position of the half message of its transaction.
        properties: all of them, by name.
        broker_name: the broker that it came from; set by the receiver, "" before.
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
    #: Why `body` holds the stored bytes instead of the producer's: the sysFlag says that they are
    #: compressed, but they are not, or are damaged. Empty for every other message.
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
        """The bits of the sysFlag for the sizes of the hosts are set from the hosts; those for
        compression declare that `body` is compressed.

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
        """The id that encodes its position at a broker."""
        return encode_offset_id(*self.store_host, self.physical_offset)

    @property
    def message_id(self) -> str:
        """The id that its producer gave it; without one, the offset id."""
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
