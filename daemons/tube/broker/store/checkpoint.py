"""Up to where all of a store is on the disk: the file `checkpoint` in its folder. Ours.

28 bytes: magic, offset in the data, offset in the index (i64 each), CRC-32 of these 24 (u32). Java
ignores it, and only adds behind what it says.
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
    """Offsets: everything before them is on the disk, and every record before the one has its
    record of the index before the other."""

    data: int
    index: int


def read(path: Path) -> Checkpoint | None:
    """What the file says; None without one. Raises OSError for one that cannot be read."""
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
