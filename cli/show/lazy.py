"""Values that are made when they are printed: rows and documents one by one, long texts in pieces.

A message may be a thousand times larger decompressed than sent: a command holds and computes only
what it prints, and only once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
S = TypeVar("S")

PIECE = 96 * 1024  # bytes of a body per piece: a multiple of three, for base64


class LongText:
    """A text that is made in pieces, again in each iteration.

    `str()` returns the whole text.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], Iterable[str]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[str]:
        return iter(self._make())

    def __str__(self) -> str:
        return "".join(self)

    def is_longer_than(self, size: int) -> bool:
        """Return whether it has more than `size` characters."""
        for piece in self:
            size -= len(piece)
            if size < 0:
                return True
        return False

    def beginning(self, size: int) -> str:
        """Return its first `size` characters."""
        found = ""
        for piece in self:
            found += piece[: size - len(found)]
            if len(found) >= size:
                break
        return found


Text = str | LongText


def pieces_of(text: Text) -> Iterable[str]:
    """Return the pieces of a text."""
    return (text,) if isinstance(text, str) else text


def converted(pieces: Iterable[S], convert: Callable[[S], str]) -> Iterator[str]:
    """Yield each piece converted. Equal successive pieces are converted once.

    A few compressed bytes often become many equal pieces.
    """
    last: S | None = None
    text = ""
    for piece in pieces:
        if piece != last:
            last, text = piece, convert(piece)
        yield text


class Mapped(Sequence[T], Generic[T]):
    """A sequence whose items are made from another sequence at each access; none is kept."""

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
    """Return items made from others: at once, unless those are lazy."""
    if isinstance(items, Mapped):
        return Mapped(function, items)
    return [function(item) for item in items]
