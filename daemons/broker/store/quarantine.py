"""Keeping for a human what is about to be taken out of the log: the folder `damaged` of a store.

Nothing is cut or deleted before its copy, with its name, is on the disk, and no copy ever takes the
place of another: the same offset may be cut again by a later start.
"""

import itertools
import logging
import os
from pathlib import Path

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import Damage, StoreLoadError
from mq.daemons.broker.store.mapped_file import MappedFile, data_end
from mq.protocol.record import BLANK, MAGIC_BLANK

log = logging.getLogger(__name__)

DAMAGED_FOLDER = "damaged"


def put_aside(root: Path, files: list[MappedFile], end: int, why: str) -> list[Damage]:
    """Keep what the files of a log hold behind its end; returns what there is to say about it.

    ``why`` is what is wrong with the record there, "" if there are only zeros. Behind zeros there
    may still be records: of what a power cut interrupts any part may be on the disk.

    Raises StoreLoadError; nothing has been cut then, and nothing may be.
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
            what = why or "zeros, with something behind them"
            damages.append(Damage(str(file.path), end, last - within, what))
            keep_part(folder, file.descriptor, within, last, end)
            why = ""
    return damages


def _is_blank(file: MappedFile, position: int) -> bool:
    """Whether the file was closed there: the log goes on, or does not, in the next one."""
    left = file.size - position
    blank = file.read_part(position, BLANK.size)
    return len(blank) == BLANK.size and BLANK.unpack(blank) == (left, MAGIC_BLANK)


def keep_part(folder: Path, descriptor: int, position: int, end: int, offset: int) -> Path:
    """Copy a part of an open file, from a position up to another; returns where it is kept.

    The copy is named after ``offset``, the physical one of its first byte. Raises StoreLoadError,
    which says what to do, if it cannot be kept.
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
    """Keep a file that is about to be deleted, whose last data is before ``end``.

    It gets a second name where that is possible, which needs no room, and is copied where not: to
    another file system, or on one without links. Raises StoreLoadError.
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
    """A name that no other content has, and whether this one has it already.

    It has where a start was killed between keeping and cutting.
    """
    for number in itertools.count():
        kept = folder / (f"{name}.{number}" if number else name)
        if not files.exists(kept):
            return kept, False
        if files.are_equal(path, kept):
            return kept, True
    raise AssertionError


def _copy(descriptor: int, position: int, end: int, target: Path) -> None:
    """Copy and fsync; holes stay holes, and blocks that cannot be read become holes."""
    with files.opened(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as copy:
        files.ftruncate(copy, end - position)
        try:
            files.copy_data(descriptor, position, end, copy, 0)
        except OSError as error:
            if error.errno not in files.UNREADABLE:
                raise
            count = files.copy_around(descriptor, position, end, copy, 0)
            log.error("%d blocks cannot be read and are zeros in the copy %s", count, target)
        files.fsync(copy)


def _cannot_keep(folder: Path, offset: int, size: int, error: OSError) -> StoreLoadError:
    return StoreLoadError(
        f"what lies at {offset} of the log is no part of it and has to go, but cannot be kept in "
        f"{folder}: {error.strerror or error}. Nothing was deleted: make room for {size} bytes "
        f"there, or make {folder} a link to a folder on a disk that has it, and start again"
    )
