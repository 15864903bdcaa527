"""A store that a command works on in a broker's place: locked meanwhile, its owner's afterwards."""

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
    """Hold the lock that a broker holds on its store, so that none starts on it.

    A store without a lock file gets one with `create`; else it is nobody's. The lock is let go of
    early where the process opens the file once more and closes it, as a recovery at its end does
    (fcntl(2)). Raises CommandError, TRY_AGAIN, while a broker runs.
    """
    path = root / layout.LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
    except FileNotFoundError:
        yield  # without a lock file, or a store at all, which is told elsewhere
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
    """Give what is made below `root` meanwhile to the owner of the store at `source`.

    So a broker, which runs as that user, can write what root has repaired. Nobody else may read
    it in between, and what is a copy of a file has its mode. `root` may be `source`.
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
