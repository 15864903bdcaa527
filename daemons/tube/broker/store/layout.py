"""The files of a TubeMQ store: names, sizes, numbers (docs/store-format.md, TubeMQ).

A store is a folder `TOPIC-STOREID` with data files, and a folder `index` in it. Files grow at their
end, are named by the offset of their first byte, and end where the next one begins.
"""

import struct

DATA_SUFFIX = ".tube"
INDEX_SUFFIX = ".index"
INDEX_FOLDER = "index"
CHECKPOINT = "checkpoint"  # ours; Java reads files by their suffix
DAMAGED = "damaged"  # ours: parts that a recovery has cut

# Partition numbers of store n start at n times this (TBaseConstants.META_STORE_INS_BASE).
STORE_BASE = 10_000

HEAD = struct.Struct(
    ">i"  # length: bytes that follow this field, 48 + payload
    "i"  # token
    "i"  # CRC-32 of the payload, without its sign bit
    "i"  # partition
    "q"  # offset of its record in the index
    "q"  # receive time, ms
    "i"  # IPv4 of the sender
    "i"  # key code: hash of the filter item, -1 without one
    "q"  # message id
    "i"  # flag
)
HEAD_SIZE = HEAD.size  # 52
PREFIX = HEAD_SIZE - 4  # what `length` counts of the head
TOKEN = 0x2C998B8

INDEX = struct.Struct(
    ">i"  # partition
    "q"  # offset in the data
    "i"  # size there, head included
    "i"  # key code
    "q"  # receive time, ms
)
INDEX_SIZE = INDEX.size  # 28

# 20 MiB that a cluster may allow, and 8 MiB that Java reserves for the rest
# (DataStoreUtils.STORE_MAX_MESSAGE_STORE_LEN). A longer record is invalid.
MAX_RECORD = HEAD_SIZE + 28 * 1024 * 1024

assert (HEAD_SIZE, INDEX_SIZE) == (52, 28)


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def store_key(topic: str, store_id: int) -> str:
    """Return the name of a store's folder."""
    return f"{topic}-{store_id}"
