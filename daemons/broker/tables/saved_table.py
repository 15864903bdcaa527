"""A table of a broker with its data version, kept in a file like those of Java's ConfigManager.

An administrator's change is on the disk before it becomes visible. It is written in a thread, and
other changes made meanwhile are kept. Implicit changes are saved a little later, in a thread,
together with others.

A slave's table is a copy of its master's, which replaces the whole table and the version. Members
that a slave creates implicitly, for a consumer that reads from it, are in memory only and vanish
with the next copy: the file and the version are those of the master.

The file has fastjson's format. It is written often, each time for a few changed members, so the
text of a member is cached while the member is the same object: a change must replace the object.
"""

from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Generic, TypeVar

import orjson

from mq.client.machine import clock
from mq.daemons.state_file import StateFile
from mq.protocol import fastjson
from mq.protocol.bodies import DataVersion
from mq.protocol.bodies.schema import Body

M = TypeVar("M", bound=Body)


def next_version(version: DataVersion) -> DataVersion:
    """The next data version of the table."""
    return DataVersion(timestamp=clock.milliseconds(), counter=version.counter + 1)


class TableText:
    """Encodes the file; `field` is the name of the table in it."""

    def __init__(self, field: str) -> None:
        self._field = field.encode()
        self._texts: dict[str, tuple[Body, bytes]] = {}

    def encode(self, table: Mapping[str, Body], version: DataVersion) -> bytes:
        """The content of the whole file."""
        texts: dict[str, tuple[Body, bytes]] = {}
        for name, member in table.items():
            known = self._texts.get(name)
            if known is None or known[0] is not member:
                text = orjson.dumps(name) + b":" + fastjson.dumps_pretty(member.to_plain(), depth=2)
                known = (member, text)
            texts[name] = known
        self._texts = texts
        return b'{\n\t"dataVersion":%b,\n\t"%b":{\n\t\t%b\n\t}\n}' % (
            fastjson.dumps_pretty(version.to_plain(), depth=1),
            self._field,
            b",\n\t\t".join(text for _, text in texts.values()),
        )


class SavedTable(Generic[M]):
    """Members by name.

    ``field`` is the name of the table in the file at ``path``. ``born`` are the initial members;
    ``saved`` is the content of the file, which overrides them. ``is_copy`` reports whether the
    table is a slave's.
    """

    def __init__(
        self,
        path: Path,
        field: str,
        born: Mapping[str, M],
        saved: tuple[Mapping[str, M], DataVersion] | None,
        is_copy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._text = TableText(field)
        # Not the data version: a master's version may be lower than that of the replaced table.
        self._writes = count()
        self.file = StateFile(path, lambda: self._encode(self.table, self.data_version))
        self.table: dict[str, M] = dict(born)
        self.data_version = DataVersion(timestamp=clock.milliseconds(), counter=0)
        self._is_copy = is_copy
        if saved is not None:
            members, self.data_version = saved
            self.table.update(members)

    def _encode(self, table: Mapping[str, M], version: DataVersion) -> tuple[bytes, int]:
        """The file's content, and the number of this write."""
        return self._text.encode(table, version), next(self._writes)

    async def save_pending(self) -> None:
        """Write the file in a thread if it lacks members. Raises OSError."""
        await self.file.save_pending()

    async def copy(
        self,
        members: Mapping[str, M],
        version: DataVersion,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Replace the table by a master's, with its version; `then` is called when it is visible.

        Raises OSError if it could not be saved; nothing has changed then.
        """
        own = self.table  # equal members keep their identity, because their text is cached
        table = {n: own[n] if own.get(n) == member else member for n, member in members.items()}

        def count_it() -> None:
            self.table, self.data_version = table, version
            then()

        await self.file.replace(lambda: self._encode(table, version), count_it)

    def _changed(self, *, at_once: bool = False) -> None:
        """Save an implicit change soon, or now unless that takes too much time."""
        if self._is_copy():
            return
        self.data_version = next_version(self.data_version)
        if at_once:
            self.file.changed_at_once()
        else:
            self.file.changed()

    async def _change(
        self,
        change: Callable[[dict[str, M]], dict[str, M]],
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Make a change that is on the disk before it is visible; `then` is called when it is.

        The change is applied again to the table at that moment, because members may have been
        created during the write. Raises OSError; nothing has changed then.
        """
        before, version = self.data_version, DataVersion()

        def encode() -> tuple[bytes, int]:
            nonlocal before, version
            before, version = self.data_version, next_version(self.data_version)
            return self._encode(change(self.table), version)

        def count_it() -> None:
            self.table = change(self.table)
            alone = self.data_version is before
            self.data_version = version if alone else next_version(self.data_version)
            then()

        await self.file.replace(encode, count_it)

    async def _delete(
        self, name: str, then: Callable[[], None], otherwise: Callable[[], None]
    ) -> bool:
        """Remove a member like `_change`; returns whether it existed. If not, `otherwise` is
        called. Raises OSError.
        """
        if name not in self.table:
            otherwise()
            return False
        await self._change(lambda table: {n: m for n, m in table.items() if n != name}, then)
        return True
