"""The storage of a master's records: acknowledged changes survive any crash.

alone     a SQLite database: one transaction for each change, on the disk before it is in effect
in a set  etcd, which also elects the active master (docs/decisions/0065): a change is compared with
          the leader's key and with the previous state of its keys, so a master that is no longer
          active changes nothing, and an abandoned write has no late effect
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from mq.client.machine import database, files
from mq.client.machine.threads import DiskThread
from mq.daemons.service import CannotStart, InUse
from mq.daemons.state_file import make_folder
from mq.daemons.tube.master.records import KINDS, CatalogRecord, Malformed

if TYPE_CHECKING:
    from mq.daemons.controller.etcd import Etcd
    from mq.daemons.controller.leadership import Leadership

T = TypeVar("T")

# Kind and key.
Key = tuple[str, str]
# The new records; None deletes.
Changes = Mapping[Key, CatalogRecord | None]

SCHEMA = 1

#: Records in one change: etcd accepts 128 operations and as many comparisons in a transaction by
#: default (--max-txn-ops), and one comparison is for the leader's key.
MOST_CHANGES = 100


class StorageError(Exception):
    """The outcome of a change is unknown; or nothing can be read. The text explains it."""


class NotActive(StorageError):
    """Another master is active: the change was not stored."""


class Storage(Protocol):
    """Stores records."""

    async def load(self) -> list[CatalogRecord]:
        """Return all of them. Raises StorageError."""
        ...

    async def keep(self, changes: Changes) -> None:
        """Store all of the changes, or none; they are durable when it returns.

        Raises StorageError: the outcome is unknown.
        """
        ...


class SqliteStorage:
    """One file. An async context manager; entering raises CannotStart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread: DiskThread
        self._connection: database.Connection

    async def __aenter__(self) -> Self:
        self._thread = DiskThread("metadata")
        try:
            await self._thread.run(self._open)
        except database.OperationalError as error:
            self._thread.stop()
            if "locked" in str(error):
                raise InUse(f"{self._path}: another master uses it") from None
            raise CannotStart(f"{self._path}: {error}") from None
        except (database.Error, OSError) as error:
            self._thread.stop()
            raise CannotStart(f"{self._path}: {error}") from None
        except BaseException:
            self._thread.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._thread.submit(self._connection.close, lambda *_: None)
        self._thread.stop()

    async def load(self) -> list[CatalogRecord]:
        rows = await self._run(self._read)
        return [_decoded(kind, key, value) for kind, key, value in rows]

    async def keep(self, changes: Changes) -> None:
        rows = [(*key, None if r is None else r.encode()) for key, r in changes.items()]
        await self._run(lambda: self._write(rows))

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            found: T = await self._thread.run(work)
        except database.Error as error:
            raise StorageError(f"{self._path}: {error}") from None
        return found

    def _open(self) -> None:
        make_folder(self._path.parent)  # its name, too, must survive a power cut
        connection = database.connect(self._path)
        try:
            (schema,) = connection.execute("PRAGMA user_version").fetchone()
            if schema > SCHEMA:
                raise CannotStart(
                    f"{self._path} has schema {schema}, of a later release: this one knows {SCHEMA}"
                )
            connection.execute("BEGIN")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS records (kind TEXT NOT NULL, key TEXT NOT NULL, "
                "value BLOB NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID"
            )
            connection.execute(f"PRAGMA user_version = {SCHEMA}")
            connection.execute("COMMIT")
            files.sync_folder(self._path.parent)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _read(self) -> list[tuple[str, str, bytes]]:
        return self._connection.execute("SELECT kind, key, value FROM records").fetchall()

    def _write(self, rows: Iterable[tuple[str, str, bytes | None]]) -> None:
        do = self._connection.execute
        do("BEGIN IMMEDIATE")
        try:
            for kind, key, value in rows:
                if value is None:
                    do("DELETE FROM records WHERE kind = ? AND key = ?", (kind, key))
                else:
                    do("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (kind, key, value))
            do("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                do("ROLLBACK")
            raise


class EtcdStorage:
    """Keys with a prefix that ends in "/"."""

    def __init__(self, etcd: "Etcd", prefix: str, leadership: "Leadership") -> None:
        self._etcd = etcd
        self._prefix = prefix
        self._leadership = leadership
        self._changed: dict[str, int] = {}  # etcd's revision of the last change, by key

    async def load(self) -> list[CatalogRecord]:
        from mq.daemons.controller.etcd import EtcdError

        try:
            pairs = await self._etcd.pairs(self._prefix)
        except EtcdError as error:
            raise StorageError(str(error)) from None
        start = len(self._prefix)
        records = [_decoded(*pair.key[start:].partition("/")[::2], pair.value) for pair in pairs]
        self._changed = {pair.key: pair.changed for pair in pairs}
        return records

    async def keep(self, changes: Changes) -> None:
        from mq.daemons.controller.etcd import EtcdError

        values = {
            f"{self._prefix}{kind}/{key}": None if record is None else record.encode()
            for (kind, key), record in changes.items()
        }
        unchanged = {key: {"changed": self._changed.get(key, 0)} for key in values}
        try:
            done = await self._etcd.change_if(values, {**self._leadership.fence, **unchanged})
        except EtcdError as error:
            raise StorageError(str(error)) from None
        if not done.succeeded:
            self._leadership.doubt()
            raise NotActive("another master is active")
        for key, value in values.items():
            if value is None:
                self._changed.pop(key, None)
            else:
                self._changed[key] = done.revision


def _decoded(kind: str, key: str, value: bytes) -> CatalogRecord:
    known = KINDS.get(kind)
    if known is None:
        raise StorageError(f"{kind}/{key}: unknown; a later release wrote it")
    try:
        record = known.decode(value)
    except Malformed as error:
        raise StorageError(str(error)) from None
    if record.key != key:
        raise StorageError(f"{kind}/{key}: holds {record.key}")
    return record
