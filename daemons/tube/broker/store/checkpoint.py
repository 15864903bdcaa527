"""The durable part of a store: the file `checkpoint` in its folder. Our own.

28 bytes: magic, offset in the data, offset in the index (i64 each), CRC-32 of these 24 (u32). Java
ignores it, and only appends after these offsets.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from mq.daemons.state_file import read_with_backup, write_atomically

_FORM = struct.Struct(">8sqq")
_CHECK = struct.Struct(">I")
_MAGIC = b"mq-tube1"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Offsets: all data before them is on the disk, and the index of every record before the first
    is before the second."""

    data: int
    index: int


def read(path: Path) -> Checkpoint | None:
    """Return the checkpoint; None without a file. Raises OSError if it cannot be read."""
    return read_with_backup(path, _decode)


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the file, durably. Raises OSError."""
    body = _FORM.pack(_MAGIC, checkpoint.data, checkpoint.index)
    write_atomically(path, body + _CHECK.pack(crc32(body)))


def _decode(data: bytes) -> Checkpoint:
    if len(data) != _FORM.size + _CHECK.size:
        raise ValueError("it has the wrong length")
    magic, at_data, at_index = _FORM.unpack_from(data)
    if magic != _MAGIC or _CHECK.unpack_from(data, _FORM.size)[0] != crc32(data[: _FORM.size]):
        raise ValueError("its checksum is wrong")
    return Checkpoint(at_data, at_index)
