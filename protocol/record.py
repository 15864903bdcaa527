"""The record of a stored message: the only definition of its bytes.

A record is the unit of the commit log and of pull replies. All numbers are signed and big-endian,
all times milliseconds since 1970. A head of the fields below is followed by

    body | topic: length i8 (second form: i16), UTF-8 | properties: length i16, UTF-8

All code that packs, unpacks or reads a field takes it from here: `head` and `part` support both
families of hosts; `struct_of` and `AT` are for a record whose hosts are both IPv4 addresses, as
nearly all are; in others a field is `shift` bytes further. docs/store-format.md shows the same
fields.

Sources: org.apache.rocketmq.store.CommitLog, common.message.MessageDecoder.
"""

import functools
import struct
from collections.abc import Iterator
from typing import NamedTuple

from mq.protocol.flags import SysFlag


class Field(NamedTuple):
    """A field of the head: `letter` is that of `struct`, or HOST."""

    name: str
    letter: str
    meaning: str


HOST = "host"  # an address of 4 or 16 bytes, depending on the system flag, and a port

HEAD = (
    Field("size", "i", "size of the whole record"),
    Field("magic", "i", "magic; `daa320ab` marks a record of 5.x whose topic length is an i16"),
    Field("body_crc", "i", "CRC-32 of the stored body without its sign bit"),
    Field("queue_id", "i", "queue id"),
    Field("flag", "i", "flag: the user's own"),
    Field("queue_offset", "q", "queue offset"),
    Field("physical_offset", "q", "physical offset"),
    Field("sys_flag", "i", "system flag"),
    Field("born_timestamp", "q", "born timestamp: set by the producer"),
    Field("born_host", HOST, "born host: address, port i32"),
    Field("store_timestamp", "q", "store timestamp: set by the broker"),
    Field("store_host", HOST, "store host: address, port i32"),
    Field("reconsume_times", "i", "reconsume times"),
    Field("prepared_offset", "q", "prepared transaction offset"),
    Field("body_length", "i", "length of the body"),
)
_INDEX = {field.name: index for index, field in enumerate(HEAD)}

MAGIC_V1 = 0xDAA320A7 - (1 << 32)
MAGIC_V2 = 0xDAA320AB - (1 << 32)  # the second form, written by 5.x for long topic names
# as bytes in a file
MAGICS = tuple(magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2))
MAGIC_BLANK = 0xCBD43194 - (1 << 32)  # the end of a file's records

CRC_MASK = 0x7FFFFFFF  # Java keeps the CRC in a positive int

IPV4_HOST = 8
IPV6_HOST = 20
IPV6_EXTRA = IPV6_HOST - IPV4_HOST
IPV6_BITS = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6

# A filler at the end of a file of the log, or at the end of a reply.
BLANK = struct.Struct(
    ">i"  # bytes left in the file, including these
    "i"  # MAGIC_BLANK
)


def host_sizes(sys_flag: int) -> tuple[int, int]:
    """Return the bytes of born host and store host."""
    return (
        IPV6_HOST if sys_flag & SysFlag.BORN_HOST_V6 else IPV4_HOST,
        IPV6_HOST if sys_flag & SysFlag.STORE_HOST_V6 else IPV4_HOST,
    )


@functools.cache
def part(
    first: str, last: str, born_host: int = IPV4_HOST, store_host: int = IPV4_HOST
) -> struct.Struct:
    """Return the fields from one to another, for hosts of these sizes; a host is one value."""
    fields = HEAD[_INDEX[first] : _INDEX[last] + 1]
    sizes = {"born_host": born_host, "store_host": store_host}
    return struct.Struct(
        ">" + "".join(f"{sizes[f.name]}s" if f.letter == HOST else f.letter for f in fields)
    )


def head(sys_flag: int = 0) -> struct.Struct:
    """Return all fields of the head; a host is two values, address and port."""
    return _HEADS[sys_flag & IPV6_BITS]


def _head(sys_flag: int) -> struct.Struct:
    sizes = iter(host_sizes(sys_flag))
    return struct.Struct(
        ">" + "".join(f"{next(sizes) - 4}si" if f.letter == HOST else f.letter for f in HEAD)
    )


_HEADS = {bits: _head(bits) for bits in (0, SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6, IPV6_BITS)}
HEAD_V4 = _HEADS[0]
RECORD_HEAD = part("size", "body_length")  # a host is one value
SMALLEST_RECORD = HEAD_V4.size + 1 + 2  # a record with empty body, topic and properties


def _places() -> Iterator[tuple[str, int]]:
    position = 0
    for field in HEAD:
        yield field.name, position
        position += IPV4_HOST if field.letter == HOST else struct.calcsize(">" + field.letter)


AT = dict(_places())
"""The position of each field in a record whose hosts are both IPv4 addresses."""


def shift(name: str, sys_flag: int) -> int:
    """Return how many bytes a field is further than in `AT`, because of longer hosts."""
    born, store = host_sizes(sys_flag)
    index = _INDEX[name]
    return (born - IPV4_HOST if index > _INDEX["born_host"] else 0) + (
        store - IPV4_HOST if index > _INDEX["store_host"] else 0
    )


def struct_of(*names: str) -> struct.Struct:
    """Return a struct of these fields, in the order of the head; other bytes are skipped.

    Its size is that of the head up to the last of them.
    """
    letters = ""
    position = 0
    for name in names:
        letter = HEAD[_INDEX[name]].letter
        letters += f"{AT[name] - position}x" if AT[name] > position else ""
        letters += f"{IPV4_HOST}s" if letter == HOST else letter
        position = AT[name] + struct.calcsize(">" + (letter if letter != HOST else f"{IPV4_HOST}s"))
    return struct.Struct(">" + letters)


# Fields that identify a record.
RECORD_IDENTITY = struct_of("size", "magic", "queue_id", "queue_offset")
# Fields of a first quick check.
RECORD_START = struct_of("size", "magic", "body_crc")


def common(born_host: int, store_host: int) -> struct.Struct:
    """Return the fields from "sys_flag" to "prepared_offset", which messages of a batch share."""
    return part("sys_flag", "prepared_offset", born_host, store_host)


@functools.cache
def around_common(size: int) -> struct.Struct:
    """Return the head, with the `size` bytes of `common` as one value."""
    before = part("size", "physical_offset").format
    return struct.Struct(f"{before}{size}s{HEAD[-1].letter}")
