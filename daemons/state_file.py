"""Files of a daemon's state: whole or absent, never half written.

A write goes to a temporary file, is fsynced and renamed; the content it replaces stays beside it
as `.bak`, the name Java's ConfigManager uses. A reader that finds the file missing, empty or torn
takes `.bak`; if that is no better it starts empty. A torn file is kept as `.broken` for whoever
looks into it.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

# A daemon that stops may save while a save of before still runs in its thread.
_writing = threading.Lock()


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the content of `path` by `data`, durably, and keep the former content as `.bak`.

    Raises:
        OSError: nothing was replaced; the file has its former content.
    """
    with _writing:
        _write(path, data)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)  # a full disk needs the space
        raise
    # A second name for the old content, then one rename over the first: at no moment is there
    # neither `path` nor `.bak`, wherever the process is killed.
    backup = path.with_name(path.name + ".bak")
    if path.exists():
        link = path.with_name(path.name + ".bak.tmp")
        with contextlib.suppress(FileNotFoundError):
            link.unlink()
        try:
            os.link(path, link)
        except OSError:  # a file system without hard links
            link.write_bytes(path.read_bytes())
        os.replace(link, backup)
    os.replace(temporary, path)
    _sync_directory(path.parent)


def read_with_backup(path: Path, decode: Callable[[bytes], T]) -> T | None:
    """What `decode` makes of the file or else of its `.bak`; None if there is neither.

    `decode` raises ValueError for content that it cannot use.
    """
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            data = candidate.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            log.error("%s cannot be read: %s", candidate, error.strerror)
            continue
        if not data.strip():
            log.warning("%s is empty", candidate)
            continue
        try:
            return decode(data)
        except ValueError as error:
            log.error("%s is damaged and not used: %s", candidate, error)
            _keep_broken(candidate, data)
    return None


def _keep_broken(path: Path, data: bytes) -> None:
    broken = path.with_name(path.name + ".broken")
    try:
        broken.write_bytes(data)
    except OSError as error:
        log.error("no copy of the damaged file in %s: %s", broken, error.strerror)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
