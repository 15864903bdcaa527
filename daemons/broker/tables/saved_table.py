"""A table of a broker with its data version, kept in a file as Java's ConfigManager keeps it.

What an administrator changes is on the disk before it can be seen; it is written in a thread, and
what changes meanwhile stays. What is made by the way is saved a little later, in a thread, together
with others.

A slave's table is a copy of its master's, which is taken over as a whole with the master's version.
What is made there by the way, for a consumer that reads from the slave, is in memory only and gone
with the next copy: the file and the version tell what the master has.
"""

from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Generic, TypeVar

from mq.client.machine import clock
from mq.daemons.broker.tables.table_text import TableText, next_version
from mq.daemons.state_file import StateFile
from mq.protocol.bodies import DataVersion
from mq.protocol.bodies.schema import Body

M = TypeVar("M", bound=Body)


class SavedTable(Generic[M]):
    """Members by name. ``field`` is the name of the table in the file at ``path``; ``born`` are the
    members that are there from the start, and ``saved`` is what was read from the file, which
    goes before them. ``is_copy`` says whether it is a slave's.
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
        # Not the data version: that of a master may be behind the one of the table before.
        self._writes = count()
        self.file = StateFile(path, lambda: self._encode(self.table, self.data_version))
        self.table: dict[str, M] = dict(born)
        self.data_version = DataVersion(timestamp=clock.milliseconds(), counter=0)
        self._is_copy = is_copy
        if saved is not None:
            members, self.data_version = saved
            self.table.update(members)

    def _encode(self, table: Mapping[str, M], version: DataVersion) -> tuple[bytes, int]:
        """The file, and the number of this write of it."""
        return self._text.encode(table, version), next(self._writes)

    async def save_pending(self) -> None:
        """Write the file, in a thread, if members were made that are not in it. Raises OSError."""
        await self.file.save_pending()

    async def copy(
        self,
        members: Mapping[str, M],
        version: DataVersion,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Have what a master has, with its version; `then` is called when it can be seen.

        Raises OSError: it could not be saved; nothing has changed.
        """
        own = self.table  # its members are kept where they are equal: their text is known
        table = {n: own[n] if own.get(n) == member else member for n, member in members.items()}

        def count_it() -> None:
            self.table, self.data_version = table, version
            then()

        await self.file.replace(lambda: self._encode(table, version), count_it)

    def _changed(self, *, at_once: bool = False) -> None:
        """The table has changed by the way: have it saved soon, or now unless that takes too much
        of the time."""
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
        """Make a change that is on the disk before it can be seen; `then` is called when it can.

        It is made in the table of the moment at which it counts: members may have been made while
        it was written. Raises OSError; nothing has changed then.
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
        """Take a member out in the same way; returns whether there was one. Where there was none,
        `otherwise` is called. Raises OSError."""
        if name not in self.table:
            otherwise()
            return False
        await self._change(lambda table: {n: m for n, m in table.items() if n != name}, then)
        return True
