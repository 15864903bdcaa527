"""Settings of brokers and topics, as masters send them to brokers: texts of 12 and of 15 parts."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.parts import count, name, truth

#: In both texts this part is blank: deleteWhen, which brokers read and ignore.
_DELETE_WHEN = " "
_INHERITED = " "

STATUS_OK = 0  # TStatusConstants.STATUS_TOPIC_OK


@dataclass(frozen=True, slots=True)
class BrokerDefaults:
    """The default settings of a broker's topics."""

    partitions: int = 1  # in each store
    accept_publish: bool = True
    accept_subscribe: bool = True
    flush_messages: int = 1000  # unflushThreshold
    flush_interval_ms: int = 10_000  # unflushInterval
    delete_policy: str = "delete,168h"
    stores: int = 1
    flush_bytes: int = 0  # unflushDataHold; 0 is no limit
    cache_size: int = 2  # memCacheMsgSizeInMB, but in units of 512 KiB
    cache_messages: int = 10  # memCacheMsgCntInK, but in units of 512
    cache_flush_interval_ms: int = 20_000

    @classmethod
    def parse(cls, text: str) -> "BrokerDefaults":
        parts = text.split(":")
        if len(parts) != 12:
            raise MalformedText(text, f"a broker's settings have 12 parts, not {len(parts)}")
        return cls(
            partitions=count(text, parts[0]),
            accept_publish=truth(text, parts[1]),
            accept_subscribe=truth(text, parts[2]),
            flush_messages=count(text, parts[3]),
            flush_interval_ms=count(text, parts[4]),
            delete_policy=name(text, parts[6]),
            stores=count(text, parts[7]),
            flush_bytes=count(text, parts[8]),
            cache_size=count(text, parts[9]),
            cache_messages=count(text, parts[10]),
            cache_flush_interval_ms=count(text, parts[11]),
        )

    def __str__(self) -> str:
        return ":".join(
            [
                str(self.partitions),
                _shown(self.accept_publish),
                _shown(self.accept_subscribe),
                str(self.flush_messages),
                str(self.flush_interval_ms),
                _DELETE_WHEN,
                self.delete_policy,
                str(self.stores),
                str(self.flush_bytes),
                str(self.cache_size),
                str(self.cache_messages),
                str(self.cache_flush_interval_ms),
            ]
        )


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic at a broker; None means the broker's default."""

    topic: str
    partitions: int | None = None
    accept_publish: bool | None = None
    accept_subscribe: bool | None = None
    flush_messages: int | None = None
    flush_interval_ms: int | None = None
    delete_policy: str | None = None
    stores: int | None = None
    status: int = STATUS_OK  # TStatusConstants: 1 to 3 are steps of a deletion
    flush_bytes: int | None = None
    cache_size: int | None = None
    cache_messages: int | None = None
    cache_flush_interval_ms: int | None = None
    max_message_size: int | None = None  # bytes; None means the limit of the cluster

    @classmethod
    def parse(cls, text: str) -> "TopicSettings":
        """Parse the settings; older masters omit the last part."""
        parts = text.split(":")
        if len(parts) not in (14, 15):
            raise MalformedText(text, f"a topic's settings have 15 parts, not {len(parts)}")

        def number(index: int) -> int | None:
            return count(text, parts[index]) if parts[index].strip() else None

        def flag(index: int) -> bool | None:
            return truth(text, parts[index]) if parts[index].strip() else None

        return cls(
            topic=name(text, parts[0]),
            partitions=number(1),
            accept_publish=flag(2),
            accept_subscribe=flag(3),
            flush_messages=number(4),
            flush_interval_ms=number(5),
            delete_policy=parts[7].strip() or None,
            stores=number(8),
            status=number(9) or STATUS_OK,
            flush_bytes=number(10),
            cache_size=number(11),
            cache_messages=number(12),
            cache_flush_interval_ms=number(13),
            max_message_size=number(14) if len(parts) == 15 else None,
        )

    def __str__(self) -> str:
        return ":".join(
            [
                self.topic,
                _shown(self.partitions),
                _shown(self.accept_publish),
                _shown(self.accept_subscribe),
                _shown(self.flush_messages),
                _shown(self.flush_interval_ms),
                _DELETE_WHEN,
                _shown(self.delete_policy),
                _shown(self.stores),
                str(self.status),
                _shown(self.flush_bytes),
                _shown(self.cache_size),
                _shown(self.cache_messages),
                _shown(self.cache_flush_interval_ms),
                _shown(self.max_message_size),
            ]
        )


def checksum(defaults: str, topics: Iterable[str]) -> int:
    """Return the checksum of 31 bits that master and broker compare instead of the settings.

    It covers the defaults and then the sorted texts of the topics, and as many zero bytes as these
    have characters: the original sums a buffer of twice the length.
    """
    text = "".join([defaults, *sorted(topics)])
    raw = text.encode()
    return zlib.crc32(raw + bytes(max(2 * len(text) - len(raw), 0))) & 0x7FFFFFFF


def _shown(value: int | bool | str | None) -> str:
    if value is None:
        return _INHERITED
    return str(value).lower() if isinstance(value, bool) else str(value)
