"""Offsets in a file, for broadcasting consumers, where every member gets every message."""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

from mq.client.errors import ClientError, MQError
from mq.client.machine import files, threads
from mq.protocol.bodies import MessageQueue
from mq.protocol.bodies.schema import Body, field
from mq.protocol.errors import RemoteProtocolError

log = logging.getLogger(__name__)

#: The directory of Java's clients (LocalFileOffsetStore.LOCAL_OFFSET_STORE_DIR).
DEFAULT_DIRECTORY = Path("~/.rocketmq_offsets")


class OffsetSerializeWrapper(Body):
    """The content of the file."""

    offset_table: dict[MessageQueue, int] = field(factory=dict)


class LocalOffsetStore:
    """The offsets of one member of a group, in <directory>/<client id>/<group>/offsets.json.

    The format is Java's: either kind of client can continue with the other's file. `update` changes
    memory, `commit` writes the file.
    """

    def __init__(self, directory: str | Path, client_id: str, group: str) -> None:
        """Raises ClientError for a client id that cannot be the name of a folder."""
        if "/" in client_id or "\0" in client_id or client_id in {"", ".", ".."}:
            raise ClientError(f"a client id of {client_id!r} cannot name the folder of offsets")
        self.path = Path(directory).expanduser() / client_id / group / "offsets.json"
        # The content that the file must get; replaced at each change. None until the file is read.
        self._stored: dict[MessageQueue, int] | None = None
        self._written: dict[MessageQueue, int] | None = None  # the content of the file
        self._offsets: dict[MessageQueue, int] = {}
        self._is_torn = False  # the file is torn, and its .bak is the valid one

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of this member in `queue`; None if there is none.

        Raises ClientError for a file that cannot be read.
        """
        return self._read().get(queue)

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Record that all messages before `offset` are consumed."""
        self._offsets[queue] = offset

    def known(self, queue: MessageQueue) -> int | None:
        """Return the offset of the last `update`."""
        return self._offsets.get(queue)

    def forget(self, queue: MessageQueue) -> None:
        """Forget a queue that is no longer read. Its offset stays in the file."""
        self._offsets.pop(queue, None)

    async def commit(self, queues: Iterable[MessageQueue], *, again: bool = False) -> list[MQError]:
        """Write changed offsets, or with `again` all; returns the errors, for a later retry."""
        try:
            stored = self._read()
            changed = {queue: self._offsets[queue] for queue in queues if queue in self._offsets}
            merged = stored | changed
            if merged != stored or again:
                self._stored = merged
            if self._stored is not self._written:
                await asyncio.to_thread(self._write)
        except ClientError as error:
            return [error]
        except OSError as error:
            return [ClientError(f"{self.path} cannot be written: {error.strerror}")]
        return []

    def _read(self) -> dict[MessageQueue, int]:
        if self._stored is None:
            found = _load(self.path)
            if found is None:
                self._is_torn = True
                found = _load(self.path.with_name(self.path.name + ".bak"))
            self._stored = self._written = found or {}
        return self._stored

    def _write(self) -> None:
        """Write the file; runs in a thread.

        If several queues are reset at once, the first call writes the offsets of all of them.
        """
        with _writing:
            stored = self._stored
            assert stored is not None
            if stored is not self._written:
                data = OffsetSerializeWrapper(offset_table=stored).encode()
                _replace(self.path, data, keep_former=not self._is_torn)
                self._written, self._is_torn = stored, False


def _load(path: Path) -> dict[MessageQueue, int] | None:
    """Return the offsets in a file; None if it is absent or torn."""
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ClientError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return OffsetSerializeWrapper.decode(data).offset_table if data.strip() else None
    except RemoteProtocolError as error:
        log.warning("%s is torn; reading %s.bak: %s", path, path.name, error)
        return None


_writing = threads.Lock()  # two members in one process may share a file


def _replace(path: Path, data: bytes, *, keep_former: bool) -> None:
    """Replace the file atomically; the previous one becomes .bak (MixAll.string2File)."""
    files.make_folders(path.parent)
    temporary = path.with_name(path.name + ".tmp")
    files.write_new(temporary, data)
    if keep_former and files.exists(path):
        files.replace(path, path.with_name(path.name + ".bak"))
    files.replace(temporary, path)
