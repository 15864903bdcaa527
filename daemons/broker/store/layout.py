"""The bytes of a store, as Java 4.9.x lays them out. docs/store-format.md works an example.

All numbers are signed and big-endian, all times are milliseconds since 1970. Reader, writer and
recovery take every size, magic and name from here.
"""

import functools
import struct
from pathlib import Path

# Files --------------------------------------------------------------------------------------

FILE_NAME_DIGITS = 20


def file_name(offset: int) -> str:
    """The name of a log or queue file: the offset of its first byte, in 20 digits."""
    return f"{offset:0{FILE_NAME_DIGITS}d}"


def file_offset(name: str) -> int | None:
    """The offset a file name stands for, or None for a name that is not one."""
    return (
        int(name) if len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdigit() else None
    )


def commit_log_path(root: Path) -> Path:
    return root / "commitlog"


def consume_queue_path(root: Path) -> Path:
    return root / "consumequeue"


def queue_extension_path(root: Path) -> Path:
    return root / "consumequeue_ext"


def index_path(root: Path) -> Path:
    return root / "index"


def config_path(root: Path) -> Path:
    return root / "config"


CHECKPOINT_FILE = "checkpoint"
ABORT_FILE = "abort"  # there while a broker runs; there at a start means the last one crashed
LOCK_FILE = "lock"
DELETIONS_FILE = "deletions.json"  # ours: Java neither reads nor writes it

# The commit log -----------------------------------------------------------------------------

MAGIC_V1 = -626843481  # 0xDAA320A7: the topic's length is an i8
MAGIC_V2 = -626843477  # 0xDAA320AB: the topic's length is an i16 (written by 5.x for long names)
MAGIC_BLANK = -875286124  # 0xCBD43194: nothing more in this file

RECORD_START = struct.Struct(
    ">i"  # total size
    "i"  # magic
    "i"  # CRC-32 of the stored body, its sign bit cleared
)
# Of RECORD_HEAD, what tells whose record it is: size, magic, queue id, queue offset.
RECORD_IDENTITY = struct.Struct(">ii4xi4xq")
# A record up to its body when both hosts are IPv4 addresses.
RECORD_HEAD = struct.Struct(
    ">i"  # total size
    "i"  # magic
    "i"  # body CRC
    "i"  # queue id
    "i"  # flag: the user's own
    "q"  # queue offset
    "q"  # physical offset
    "i"  # system flag
    "q"  # born timestamp
    "8s"  # born host: address, port i32
    "q"  # store timestamp
    "8s"  # store host
    "i"  # reconsume times
    "q"  # prepared transaction offset
    "i"  # body length
)
IPV6_EXTRA = 12  # bytes that an IPv6 host takes over an IPv4 one

SYS_FLAG_AT = 36
BORN_TIMESTAMP_AT = 40
STORE_TIMESTAMP_AT = 56  # 12 later when the born host is an IPv6 one
RECORD_MINIMUM = 91  # a record with empty body, topic and properties
INT = struct.Struct(">i")
LONG = struct.Struct(">q")
SHORT = struct.Struct(">h")

SYS_FLAG_BORN_IPV6 = 0x10
SYS_FLAG_STORE_IPV6 = 0x20


def pack_common(
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_offset: int = 0,
) -> bytes:
    """The middle of a RECORD_HEAD, which the messages of a batch have in common.

    Hosts are of either family: 8 or 20 bytes, as the system flag says.
    """
    form = f">iq{len(born_host)}sq{len(store_host)}siq"
    return struct.pack(
        form,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_offset,
    )


@functools.cache
def record_head_around(length: int) -> struct.Struct:
    """RECORD_HEAD with so many bytes of `pack_common` as one field."""
    return struct.Struct(f">iiiiiqq{length}si")


BLANK = struct.Struct(
    ">i"  # bytes left in the file, these included
    "i"  # MAGIC_BLANK
)
# A record is only put where this much is left behind it, so that a blank always fits.
END_OF_FILE_ROOM = BLANK.size

# The record body may be maxMessageSize; topic, properties and the head come on top.
RECORD_OVER_BODY = 65536

# Consume queues -----------------------------------------------------------------------------

ENTRY = struct.Struct(
    ">q"  # physical offset of the record
    "i"  # its size
    "q"  # tags code
)
ENTRY_SIZE = ENTRY.size  # 20
# What stands before the first entry when a queue begins at an offset that is not 0.
FILLER_SIZE = 0x7FFFFFFF
FILLER_ENTRY = ENTRY.pack(0, FILLER_SIZE, 0)

# Extensions of consume queues ---------------------------------------------------------------

EXTENSION_START = struct.Struct(
    ">h"  # size of the unit; -1 where the file ends
    "q"  # tags code
    "q"  # store timestamp
    "h"  # size of the bit map that follows
)
EXTENSION_LARGEST = 0x7FFF
EXTENSION_ROOM = 4  # bytes left free at the end of a file
# A tags code up to EXTENSION_LAST is an address: an offset in the extension, plus EXTENSION_BASE.
EXTENSION_BASE = -(1 << 63)
EXTENSION_LAST = -(1 << 31) - 1
EXTENSION_END = EXTENSION_LAST - EXTENSION_BASE


def is_extension_address(tags_code: int) -> bool:
    """Whether a queue entry's tags code is an address in the extension."""
    return tags_code <= EXTENSION_LAST


# The index ----------------------------------------------------------------------------------

INDEX_HEADER = struct.Struct(
    ">q"  # begin timestamp
    "q"  # end timestamp
    "q"  # begin physical offset
    "q"  # end physical offset
    "i"  # used slots
    "i"  # items + 1
)
INDEX_SLOT = struct.Struct(">i")  # newest item whose hash falls in this slot, 0 for none
INDEX_ITEM = struct.Struct(
    ">i"  # hash of topic#key
    "q"  # physical offset
    "i"  # seconds since the begin timestamp of the file
    "i"  # the item before it in the same slot, 0 for none
)

# The checkpoint -----------------------------------------------------------------------------

CHECKPOINT_SIZE = 4096
CHECKPOINT = struct.Struct(
    ">q"  # store timestamp of the last flushed message
    "q"  # store timestamp of the last message in flushed consume queues
    "q"  # end timestamp of the last full and flushed index file
)
# Ours, in bytes that Java neither reads nor writes. It says up to which physical offset log, queues
# and index are known to be on disk. It counts only while Java's three fields are still those that
# it was written with: otherwise a Java broker has run on this store since.
FINE_CHECKPOINT_AT = 1024
FINE_CHECKPOINT = struct.Struct(
    ">8s"  # FINE_CHECKPOINT_MAGIC
    "q"  # physical offset
    "q"  # the three of CHECKPOINT, repeated
    "q"
    "q"
    "I"  # CRC-32 of what stands before it
)
FINE_CHECKPOINT_MAGIC = b"mq-safe1"
