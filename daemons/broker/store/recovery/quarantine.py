"""Quarantine of the log: keeps removed parts in the folder `damaged` of a store, for an
administrator.

Nothing is truncated or deleted before its copy, with its name, is on the disk, and no copy replaces
another: a later start may truncate at the same offset again.
"""

import itertools
import logging
import os
from pathlib import Path

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import Damage, StoreLoadError
from mq.daemons.broker.store.log.mapped_file import MappedFile, data_end
from mq.protocol.record import BLANK, MAGIC_BLANK

log = logging.getLogger(__name__)

DAMAGED_FOLDER = "damaged"


def keep_after(root: Path, files: list[MappedFile], end: int, why: str) -> list[Damage]:
    """Keep the data of a log's files after its end; returns the damages to report.

    ``why`` says what is wrong with the record there; "" if there are only zeros. Records may follow
    zeros: any part of an interrupted write may be on the disk after a power failure.

    Raises StoreLoadError; nothing was removed then, and nothing may be.
    """
    folder = root / DAMAGED_FOLDER
    damages = []
    for file in files:
        if file.end <= end:
            continue
        within = max(end - file.start, 0)
        last = data_end(file.descriptor, within)
        if file.start > end:
            if last:
                what = why or "the log ends before this file"
                damages.append(Damage(str(file.path), file.start, last, what))
                keep_file(folder, file.path, file.descriptor, file.start, last)
        elif not _is_blank(file, within) and (why or last > within):
            what = why or "zeros, with data after them"
            damages.append(Damage(str(file.path), end, last - within, what))
            keep_part(folder, file.descriptor, within, last, end)
            why = ""
    return damages


def _is_blank(file: MappedFile, position: int) -> bool:
    """Whether a blank ends the file at the position; the log may continue in the next file."""
    left = file.size - position
    blank = file.read_part(position, BLANK.size)
    return len(blank) == BLANK.size and BLANK.unpack(blank) == (left, MAGIC_BLANK)


def keep_part(folder: Path, descriptor: int, position: int, end: int, offset: int) -> Path:
    """Copy a part of an open file, from a position up to another; returns the path of the copy.

    The copy is named after ``offset``, the physical offset of its first byte. Raises
    StoreLoadError, with a remedy, if it cannot be kept.
    """
    part = folder / f"{layout.file_name(offset)}.part"
    try:
        _make(folder)
        try:
            _copy(descriptor, position, end, part)
            kept, is_there = _find_name(part, folder, layout.file_name(offset))
            if not is_there:
                files.rename(part, kept)
        finally:
            files.remove(part)
        files.sync_folder(folder)
    except OSError as error:
        raise _cannot_keep(folder, offset, end - position, error) from error
    return kept


def keep_file(folder: Path, path: Path, descriptor: int, offset: int, end: int) -> Path:
    """Keep a file that is about to be deleted and whose last data is before ``end``.

    The file gets a second name if possible, which needs no space. It is copied to another file
    system and on one without links. Raises StoreLoadError.
    """
    try:
        _make(folder)
        files.fsync(descriptor)
        kept, is_there = _find_name(path, folder, path.name)
        if not is_there:
            files.link(path, kept)
        files.sync_folder(folder)
    except OSError:
        return keep_part(folder, descriptor, 0, end, offset)
    return kept


def _make(folder: Path) -> None:
    files.make_folders(folder)
    files.sync_folder(folder.parent)


def _find_name(path: Path, folder: Path, name: str) -> tuple[Path, bool]:
    """Return a free name, or one that already has the same content, and whether it has.

    The content is already there if a start was killed between the copy and the truncation.
    """
    for number in itertools.count():
        kept = folder / (f"{name}.{number}" if number else name)
        if not files.exists(kept):
            return kept, False
        if files.are_equal(path, kept):
            return kept, True
    raise AssertionError


def _copy(descriptor: int, position: int, end: int, target: Path) -> None:
    """Copy and fsync; holes stay holes, and unreadable blocks become holes."""
    with files.opened(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as copy:
        files.ftruncate(copy, end - position)
        try:
            files.copy_data(descriptor, position, end, copy, 0)
        except OSError as error:
            if error.errno not in files.UNREADABLE:
                raise
            count = files.copy_around(descriptor, position, end, copy, 0)
            log.error("%d blocks are unreadable and zeros in the copy %s", count, target)
        files.fsync(copy)


def _cannot_keep(folder: Path, offset: int, size: int, error: OSError) -> StoreLoadError:
    return StoreLoadError(
        f"the data at offset {offset} is not a valid part of the log, but cannot be copied to "
        f"{folder} before it is removed: {error.strerror or error}. Nothing was deleted: free "
        f"{size} bytes there, or make {folder} a link to a folder on a disk with more space, and "
        f"start again"
    )
