"""Times of a log's files: selects the files that may have messages of a time span."""

from collections.abc import Sequence

from mq.pipeline.store_files import LogFile
from mq.protocol.record import AT, IPV6_EXTRA, MAGIC_V1, MAGIC_V2, shift, struct_of

# Messages are in the order in which they were stored, but clocks may be set by up to this.
_CLOCK_SLIP_MS = 3_600_000

_HEAD = struct_of("magic", "physical_offset", "sys_flag")
_READ = AT["store_timestamp"] + IPV6_EXTRA + 8  # bytes, up to the end of the time


def between(files: Sequence[LogFile], begin: int | None, end: int | None) -> list[LogFile]:
    """Return the files that may have messages stored from `begin` on and before `end` (ms since
    1970).

    The first record of each file decides; a file without a readable one is kept. Raises OSError.
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
        head = opened.read(_READ)
    if len(head) < _READ:
        return None
    magic, physical, sys_flag = _HEAD.unpack_from(head)
    if magic not in (MAGIC_V1, MAGIC_V2) or physical != file.start:
        return None
    at = AT["store_timestamp"] + shift("store_timestamp", sys_flag)
    return int.from_bytes(head[at : at + 8], "big") or None
