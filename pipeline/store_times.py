"""Which files of a log can have messages of a time."""

import struct
from collections.abc import Sequence

from mq.pipeline.store_files import LogFile
from mq.protocol.message import MAGIC_V1, MAGIC_V2, SYS_FLAG_POSITION

# Messages lie in the order in which they were stored, but clocks are set: by less than this.
_CLOCK_SLIP_MS = 3_600_000

_BORN_HOST_V6 = 0x10
_V6_EXTRA = 12
_STORE_TIMESTAMP_AT = 56
_HEAD = 91
_WHERE = struct.Struct(">4xI20xq")  # magic, offset in the log


def between(files: Sequence[LogFile], begin: int | None, end: int | None) -> list[LogFile]:
    """Those that may have messages stored from `begin` on and before `end`, in ms since 1970.

    Each file's first record tells; where there is none that can be read, the file is kept. Raises
    OSError.
    """
    if begin is None and end is None:
        return list(files)
    first = [_first_time(file) for file in files]
    kept = []
    for number, file in enumerate(files):
        own = first[number]
        following = first[number + 1] if number + 1 < len(files) else None
        if end is not None and own is not None and own - _CLOCK_SLIP_MS >= end:
            continue
        if begin is not None and following is not None and following + _CLOCK_SLIP_MS < begin:
            continue
        kept.append(file)
    return kept


def _first_time(file: LogFile) -> int | None:
    with open(file.path, "rb") as opened:
        head = opened.read(_HEAD)
    if len(head) < _HEAD:
        return None
    magic, physical = _WHERE.unpack_from(head)
    if magic not in (MAGIC_V1, MAGIC_V2) or physical != file.start:
        return None
    sys_flag = int.from_bytes(head[SYS_FLAG_POSITION : SYS_FLAG_POSITION + 4], "big")
    at = _STORE_TIMESTAMP_AT + (_V6_EXTRA if sys_flag & _BORN_HOST_V6 else 0)
    return int.from_bytes(head[at : at + 8], "big") or None
