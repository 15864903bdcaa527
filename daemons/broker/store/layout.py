"""The binary layout of a store, as in Java 4.9.x. docs/store-format.md explains an example.

All numbers are signed and big-endian, all times are milliseconds since 1970. Reader, writer and
recovery take every size, magic and name from here.
"""

import struct
from pathlib import Path

from mq.protocol.record import BLANK

# Files --------------------------------------------------------------------------------------

FILE_NAME_DIGITS = 20


def file_name(offset: int) -> str:
    """The name of a log or queue file: the offset of its first byte, in 20 digits."""
    return f"{offset:0{FILE_NAME_DIGITS}d}"


def file_offset(name: str) -> int | None:
    """The offset in a file name; None if the name is not an offset."""
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
ABORT_FILE = "abort"  # exists while a broker runs; at a start it means that the last one crashed
LOCK_FILE = "lock"
DELETIONS_FILE = "deletions.json"  # ours: Java neither reads nor writes it

# The commit log -----------------------------------------------------------------------------

INT = struct.Struct(">i")
LONG = struct.Struct(">q")
SHORT = struct.Struct(">h")

SECTOR = 512  # bytes that a disk writes all or not at all
# The properties of a record must not contain this: a sector that did not reach the disk before a
# power failure reads the same (mq.daemons.broker.store.log.records.is_torn).
UNWRITTEN = bytes(SECTOR)

# The records themselves are defined in mq.protocol.record. A record is only written if this much
# room is left after it, so that a blank always fits.
END_OF_FILE_ROOM = BLANK.size

# maxMessageSize limits the body; topic, properties and head come on top.
RECORD_OVER_BODY = 65536

# Consume queues -----------------------------------------------------------------------------

ENTRY = struct.Struct(
    ">q"  # physical offset of the record
    "i"  # its size
    "q"  # tags code
)
ENTRY_SIZE = ENTRY.size  # 20
ENTRY_PLACE = "qi8x"  # of `struct`: an entry without its tags code
# Precedes the first entry if a queue starts at an offset other than 0.
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
# Followed by the flushed offset of the master (StoreCheckpoint of 5.x).
CONFIRM_AT = 32
# Added by this broker, in bytes that Java neither reads nor writes: the physical offset up to which
# log, queues and index are known to be on disk. It is valid only while Java's three fields have the
# values with which it was written; otherwise a Java broker has used this store since.
FINE_CHECKPOINT_AT = 1024
FINE_CHECKPOINT = struct.Struct(
    ">8s"  # FINE_CHECKPOINT_MAGIC
    "q"  # physical offset
    "q"  # the three of CHECKPOINT, repeated
    "q"
    "q"
    "I"  # CRC-32 of the preceding bytes
)
FINE_CHECKPOINT_MAGIC = b"mq-safe1"
# Added by this broker, too: the end of the log when it may have lost its end.
FOUND_END_AT = 2048
FOUND_END = struct.Struct(
    ">8s"  # FOUND_END_MAGIC
    "q"  # physical offset
    "I"  # CRC-32 of the preceding bytes
)
FOUND_END_MAGIC = b"mq-ends1"
