"""What is made when it is printed: rows and documents one by one, long texts piece by piece.

What one message stands for may be a thousand times what somebody has sent: a command holds and
computes what it prints of it, and that once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
S = TypeVar("S")

PIECE = 96 * 1024  # bytes of a body at a time: whole groups of three, as base64 has them


class LongText:
    """A text that is made in pieces, anew each time that it is gone through.

    `str()` makes it whole, for who cannot do with pieces.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], Iterable[str]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[str]:
        return iter(self._make())

    def __str__(self) -> str:
        return "".join(self)

    def is_longer_than(self, size: int) -> bool:
        """Whether it has more characters."""
        for piece in self:
            size -= len(piece)
            if size < 0:
                return True
        return False

    def beginning(self, size: int) -> str:
        """Its first characters."""
        found = ""
        for piece in self:
            found += piece[: size - len(found)]
            if len(found) >= size:
                break
        return found


Text = str | LongText


def pieces_of(text: Text) -> Iterable[str]:
    """The pieces of a text."""
    return (text,) if isinstance(text, str) else text


def converted(pieces: Iterable[S], convert: Callable[[S], str]) -> Iterator[str]:
    """Each piece converted. One that is as the one before is not converted again: what a few bytes
    were decompressed to is much of the same."""
    last: S | None = None
    text = ""
    for piece in pieces:
        if piece != last:
            last, text = piece, convert(piece)
        yield text


class Mapped(Sequence[T], Generic[T]):
    """A sequence whose items are made of those of another one where they are looked at, every time
    anew; none is held here."""

    def __init__(self, function: Callable[[Any], T], items: Sequence[Any]) -> None:
        self._function = function
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> "Mapped[T]": ...
    def __getitem__(self, index: int | slice) -> "T | Mapped[T]":
        if isinstance(index, slice):
            return Mapped(self._function, self._items[index])
        return self._function(self._items[index])

    def __iter__(self) -> Iterator[T]:
        return map(self._function, self._items)


def mapped(function: Callable[[S], T], items: Sequence[S]) -> Sequence[T]:
    """Items made of others: at once, unless those are made where they are looked at."""
    if isinstance(items, Mapped):
        return Mapped(function, items)
    return [function(item) for item in items]
