"""Offsets in a file: those of consumers that get every message, each for itself."""

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

#: Where Java's clients keep theirs (LocalFileOffsetStore.LOCAL_OFFSET_STORE_DIR).
DEFAULT_DIRECTORY = Path("~/.rocketmq_offsets")


class OffsetSerializeWrapper(Body):
    """What is in the file."""

    offset_table: dict[MessageQueue, int] = field(factory=dict)


class LocalOffsetStore:
    """The offsets of one member of a group: <directory>/<client id>/<group>/offsets.json.

    Of the same form as Java's, whose clients go on with our file and we with theirs. `update`
    remembers, `commit` writes.
    """

    def __init__(self, directory: str | Path, client_id: str, group: str) -> None:
        """Raises ClientError for a client id that cannot be a folder's name."""
        if "/" in client_id or "\0" in client_id or client_id in {"", ".", ".."}:
            raise ClientError(f"a client id of {client_id!r} cannot name the folder of offsets")
        self.path = Path(directory).expanduser() / client_id / group / "offsets.json"
        # What is to be in the file, a new one with each change; None until it is read.
        self._stored: dict[MessageQueue, int] | None = None
        self._written: dict[MessageQueue, int] | None = None  # what is in it
        self._offsets: dict[MessageQueue, int] = {}
        self._is_torn = False  # the file: its .bak is the one that is good

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where this member goes on in `queue`; None if it never committed there.

        Raises ClientError for a file that cannot be read.
        """
        return self._read().get(queue)

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Remember that everything below `offset` is done."""
        self._offsets[queue] = offset

    def known(self, queue: MessageQueue) -> int | None:
        """What `update` was told last."""
        return self._offsets.get(queue)

    def forget(self, queue: MessageQueue) -> None:
        """The queue is not read any more; its place in the file stays."""
        self._offsets.pop(queue, None)

    async def commit(self, queues: Iterable[MessageQueue], *, again: bool = False) -> list[MQError]:
        """Write what has changed, or all `again`; returns what went wrong, to be tried later."""
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
        """For a thread. Of several at once, one for each queue that is reset, the first has what
        all of them are to write."""
        with _writing:
            stored = self._stored
            assert stored is not None
            if stored is not self._written:
                data = OffsetSerializeWrapper(offset_table=stored).encode()
                _replace(self.path, data, keep_former=not self._is_torn)
                self._written, self._is_torn = stored, False


def _load(path: Path) -> dict[MessageQueue, int] | None:
    """The offsets in a file; None when it is absent or torn."""
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ClientError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return OffsetSerializeWrapper.decode(data).offset_table if data.strip() else None
    except RemoteProtocolError as error:
        log.warning("%s is torn, so %s.bak is read: %s", path, path.name, error)
        return None


_writing = threads.Lock()  # two members of one process may share a file


def _replace(path: Path, data: bytes, *, keep_former: bool) -> None:
    """Put a whole new file in place; the one of before becomes .bak (MixAll.string2File)."""
    files.make_folders(path.parent)
    temporary = path.with_name(path.name + ".tmp")
    files.write_new(temporary, data)
    if keep_former and files.exists(path):
        files.replace(path, path.with_name(path.name + ".bak"))
    files.replace(temporary, path)
