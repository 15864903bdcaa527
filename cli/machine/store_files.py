"""Locks and ownership of a store that a command changes in place of a broker."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.status import Status
from mq.client.operations import local_files
from mq.daemons.broker.store import layout


@contextmanager
def held(root: Path, *, create: bool) -> Iterator[None]:
    """Hold the broker's lock on a store, so that no broker starts on it.

    Without a lock file it is created with `create`; else nothing is locked. The lock is released
    early if the process opens and closes the file again, as a recovery does at its end (fcntl(2)).
    Raises CommandError, TRY_AGAIN, while a broker runs.
    """
    path = root / layout.LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
    except FileNotFoundError:
        yield  # no lock file, or no store, which is reported elsewhere
        return
    except OSError as error:
        raise local_files.cannot("lock", path, error) from error
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError:
            raise CommandError(
                f"a broker runs on {root}", hint="stop it first", status=Status.TRY_AGAIN
            ) from None
        yield
    finally:
        os.close(descriptor)


@contextmanager
def owned_as(root: Path, source: Path) -> Iterator[None]:
    """Give files created below `root` in the context to the owner of the store at `source`.

    So a broker, which runs as that user, can write files that root repaired. Meanwhile no other
    user can read them; a copied file gets the mode of the original. `root` may be `source`.
    """
    root.parent.mkdir(parents=True, exist_ok=True)
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
        if root.is_dir():
            _give(root, source)


def _give(root: Path, source: Path) -> None:
    owner = source.stat()
    for folder, folders, names in os.walk(root):
        for path in (Path(folder), *(Path(folder, name) for name in (*folders, *names))):
            like = source / path.relative_to(root)
            if root != source and like.exists() and not path.is_symlink():
                path.chmod(stat.S_IMODE(like.stat().st_mode))
            if os.geteuid() == 0 == path.lstat().st_uid:
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
