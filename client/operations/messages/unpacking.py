"""Decompresses bodies one by one, to bound the memory.

A pull of 32 small records may expand to 2 GB: code that shows or counts stored messages keeps them
as stored, and decompresses each one when it is processed.
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
    """Return the message with its body decompressed to at most `limit` bytes: a copy if it is
    compressed. If that fails the body stays as stored, and `body_error` is the reason.
    """
    if not message.sys_flag & SysFlag.COMPRESSED:
        return message
    other = copy(message)
    restore_body(other, limit)
    return other


class Unpacked(Sequence["StoredMessage"]):
    """Messages that were decoded without decompression, each `unpacked` on every access. Only
    failures are kept.

    `damaged` contains the reasons by message id, of the messages accessed so far.
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
