"""Bodies decompressed one by one: as many are held as somebody looks at.

A pull of 32 small records may stand for 2 GB: whoever shows or counts what others have stored keeps
messages as they are stored, and has each decompressed when its turn comes.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, overload

from mq.protocol.compression import MAX_DECOMPRESSED
from mq.protocol.flags import SysFlag
from mq.protocol.message import restore_body

if TYPE_CHECKING:
    from mq.protocol.message import StoredMessage


def unpacked(message: "StoredMessage", limit: int = MAX_DECOMPRESSED) -> "StoredMessage":
    """The message with its body decompressed, to `limit` bytes at most: another one, if it is
    compressed, which goes when nobody holds it. One that cannot be stays as it is stored, and its
    `body_error` says why."""
    if not message.sys_flag & SysFlag.COMPRESSED:
        return message
    other = copy(message)
    restore_body(other, limit)
    return other


class Unpacked(Sequence["StoredMessage"]):
    """Messages that were decoded without decompressing them, each `unpacked` where it is looked at,
    every time anew. Nothing of that is held here but of which that failed.

    `damaged` has why, by the id of the message: of those that somebody has looked at.
    """

    def __init__(
        self, messages: Sequence["StoredMessage"], damaged: dict[str, str] | None = None
    ) -> None:
        self._stored = messages
        self.damaged: dict[str, str] = {} if damaged is None else damaged

    def __len__(self) -> int:
        return len(self._stored)

    @overload
    def __getitem__(self, index: int) -> "StoredMessage": ...
    @overload
    def __getitem__(self, index: slice) -> "Unpacked": ...
    def __getitem__(self, index: int | slice) -> "StoredMessage | Unpacked":
        if isinstance(index, slice):
            return Unpacked(self._stored[index], self.damaged)
        return self._unpacked(self._stored[index])

    def __iter__(self) -> Iterator["StoredMessage"]:
        return map(self._unpacked, self._stored)

    def _unpacked(self, message: "StoredMessage") -> "StoredMessage":
        found = unpacked(message)
        if found.body_error:
            self.damaged[found.message_id] = found.body_error
        return found
