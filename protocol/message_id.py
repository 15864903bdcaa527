"""The two ids of a message.

The offset id says where a broker keeps it: store host, port and position in the commit log. The
unique id (property UNIQ_KEY) is made by the producer and stays the same when the message moves.
Both are upper-case hexadecimal: 32 digits with an IPv4 address, 56 with an IPv6 address.
Sources: org.apache.rocketmq.common.message.MessageDecoder and MessageClientIDSetter.
"""

import struct
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

from mq.protocol.host import host_text, pack_host

_OFFSET_TAIL = struct.Struct(
    ">i"  # port
    "q"  # position in the commit log
)
_UNIQUE_TAIL = struct.Struct(
    ">H"  # process id, its low 16 bits
    "I"  # hash of the class loader in Java; here any constant of the maker
    "I"  # milliseconds since this month began, local time (a Java int, which overflows on the 25th)
    "H"  # counter
)
# createUniqID takes a clock that went back across the start of the month, a little, for its start.
_CLOCK_SLIP_MS = -1_000_000


class OffsetId(NamedTuple):
    """Where a message is stored."""

    host: str
    port: int
    offset: int


class UniqueId(NamedTuple):
    """What a unique id says about the producer that made it."""

    host: str
    process: int  # low 16 bits of the process id
    salt: int
    elapsed_ms: int  # since the month began, in the producer's local time
    counter: int


def encode_offset_id(host: str, port: int, offset: int) -> str:
    """The offset id of the message at `offset` in the commit log of the broker `host`:`port`.

    Raises:
        ValueError: `host` is not an IP address.
    """
    return (pack_host(host) + _OFFSET_TAIL.pack(port, offset)).hex().upper()


def decode_offset_id(text: str) -> OffsetId:
    """Read an offset id; small letters are taken too.

    Raises:
        ValueError: not 32 or 56 hexadecimal digits, or a port beyond 65535.
    """
    host, port, offset = place_of_offset_id(text)
    return OffsetId(host_text(host), port, offset)


def place_of_offset_id(text: str) -> tuple[bytes, int, int]:
    """The same with the host's 4 or 16 bytes: host, port, offset. Raises as `decode_offset_id`."""
    packed = _unhex(text, "offset message id")
    port, offset = _OFFSET_TAIL.unpack_from(packed, len(packed) - _OFFSET_TAIL.size)
    if not 0 <= port <= 65535 or offset < 0:
        raise ValueError(f"{text!r} is not an offset message id: no broker has port {port}")
    return packed[: -_OFFSET_TAIL.size], port, offset


def is_offset_id(text: str) -> bool:
    """Whether `text` could be an offset id. A unique id has the same form: its port gives it away,
    since it is made of the process id and half a hash, almost never below 65536."""
    try:
        decode_offset_id(text)
    except ValueError:
        return False
    return True


def decode_unique_id(text: str) -> UniqueId:
    """Read a unique id.

    Raises:
        ValueError: not 32 or 56 hexadecimal digits.
    """
    packed = _unhex(text, "unique message id")
    tail = len(packed) - _UNIQUE_TAIL.size
    return UniqueId(host_text(packed[:tail]), *_UNIQUE_TAIL.unpack_from(packed, tail))


def unique_id_time(text: str, now: float) -> float:
    """When a unique id was made, in seconds since the epoch, given the time that it is `now`.

    The id counts from the start of a month and does not say which: this one, or the one before
    when that would lie ahead of now (MessageClientIDSetter.getNearlyTimeFromID).

    Raises:
        ValueError: not a unique id.
    """
    elapsed = decode_unique_id(text).elapsed_ms / 1000
    year, month, *_ = time.localtime(now)
    made = _month_start(year, month) + elapsed
    return made if made < now else _month_start(year, month - 1) + elapsed


class UniqueIdMaker:
    """Makes unique ids: call it for the next one. Safe to call from several threads.

    Args:
        ip: the address of this producer, IPv4 or IPv6 in figures.
        pid: its process id.
        clock: the time in seconds since the epoch, such as time.time.
        salt: 32 bits that tell makers of one process apart.
    """

    def __init__(self, ip: str, pid: int, clock: Callable[[], float], salt: int) -> None:
        packed = pack_host(ip) + struct.pack(">HI", pid & 0xFFFF, salt & 0xFFFFFFFF)
        self._prefix = packed.hex().upper()
        self._clock = clock
        self._counter = count()
        self._start_of_month(clock())

    def __call__(self) -> str:
        """The next id."""
        now = self._clock()
        if now >= self._next_month:
            self._start_of_month(now)
        elapsed = int((now - self._month) * 1000)
        if _CLOCK_SLIP_MS < elapsed < 0:
            elapsed = 0
        return f"{self._prefix}{elapsed & 0xFFFFFFFF:08X}{next(self._counter) & 0xFFFF:04X}"

    def _start_of_month(self, now: float) -> None:
        year, month, *_ = time.localtime(now)
        self._month = _month_start(year, month)
        self._next_month = _month_start(year, month + 1)


def _month_start(year: int, month: int) -> float:
    """Midnight of the first day, local time; months 0 and 13 belong to the neighbouring years."""
    return time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))


def _unhex(text: str, kind: str) -> bytes:
    try:
        if len(text) not in (32, 56) or not text.isalnum():  # fromhex passes over blanks
            raise ValueError
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError(f"{text!r} is no {kind}: it has 32 or 56 hexadecimal digits") from None


def join_ids(host: bytes, offsets: Sequence[int]) -> bytes:
    """The offset ids of messages of one broker, as the answer to a batch has them: a comma between
    two. `host` is its address and port as records hold them."""
    packed = struct.pack(f">{len(offsets)}q", *offsets).hex(",", 8).upper()
    text = host.hex().upper()
    return (text + packed.replace(",", f",{text}")).encode()
