"""The selection, order and headings of a result's columns.

It implements `--columns`, `--sort`, `--no-header` and `--utc`. With each of them plain output has
columns instead of the Java mqadmin's text: a script that parses that text does not use them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from mq.cli.runtime.errors import UsageError
from mq.cli.show.lazy import LongText, Mapped, mapped
from mq.cli.show.result import Result, Row
from mq.client.operations.columns import Column, Kind

if TYPE_CHECKING:
    from mq.cli.show.record_format import BodyFormat, RecordFormat
    from mq.protocol.message import StoredMessage

T = TypeVar("T")

MAX_COMPARED = 4096  # characters of a long text that are compared in sorts and held meanwhile


# Called with the size of each body that is too large to be parsed as JSON.
TooLarge = Callable[[int], None]


def _ignore(size: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class View:
    """`columns` and `sort` are names or titles of columns; a leading - means descending order.

    `format` and `body` are for messages: with `format` only they are printed.
    """

    columns: tuple[str, ...] = ()
    sort: tuple[str, ...] = ()
    header: bool = True
    utc: bool = False
    format: "RecordFormat | None" = None
    body: "BodyFormat | None" = None

    @property
    def chosen(self) -> bool:
        """Whether a layout option was given."""
        return bool(self.columns or self.sort or self.utc or not self.header)

    def apply(self, result: Result, too_large: TooLarge = _ignore) -> Result:
        """Return the result with the layout. `too_large` is called when it is iterated.

        Raises UsageError for unknown columns.
        """
        if self.body is not None and result.messages is not None:
            result = _with_bodies(result, self.body, too_large)
        if not self.chosen or not result.columns:
            return result
        if result.parts and not (self.columns or self.sort):
            return result  # only other times, or no headings
        rows, data = result.rows, result.data
        if self.sort:
            order = self._order(result.columns, rows)
            rows = _in_order(rows, order)
            if isinstance(data, list | Mapped) and len(data) == len(order):
                data = _in_order(data, order)
        columns = result.columns
        if self.columns:
            picked = [find(columns, name) for name in self.columns]
            columns = tuple(_titled(columns[index]) for index in picked)
            rows = mapped(lambda row: tuple(row[index] for index in picked), rows)
            data = None
        return replace(result, columns=columns, rows=rows, data=data, plain=None, parts=[])

    def text(
        self,
        messages: Iterable["StoredMessage"],
        clean: Callable[[str], str] = str,
        too_large: TooLarge = _ignore,
    ) -> Iterator[str]:
        """Yield the formatted messages in pieces, with their own text passed through `clean`."""
        assert self.format is not None
        for message in messages:
            _checked(message.body, self.format.body, too_large)
            yield from self.format.pieces(message, clean)
            del message  # before the next one is made

    def check(self, variants: Iterable[Sequence[Column]]) -> None:
        """Raise UsageError for a column that none of these tables has, before anything is done."""
        known = {column.name: column for columns in variants for column in columns}
        for name in (*self.columns, *(name.removeprefix("-") for name in self.sort)):
            find(tuple(known.values()), name)

    def fits(self, columns: Sequence[Column]) -> bool:
        """Return whether a table has all selected and sorted columns."""
        try:
            self.check([columns])
        except UsageError:
            return False
        return True

    def _order(self, columns: Sequence[Column], rows: Sequence[Row]) -> list[int]:
        order = list(range(len(rows)))
        for name in reversed(self.sort):  # sorting is stable: the first name has precedence
            index = find(columns, name.removeprefix("-"))
            values = [_comparable(columns[index].kind, row[index]) for row in rows]
            if not _alike(values):
                values = [None if value is None else str(value) for value in values]
            known = [place for place in order if values[place] is not None]
            known.sort(key=lambda place: values[place], reverse=name.startswith("-"))
            # Unknown values come last in either order.
            order = known + [place for place in order if values[place] is None]
        return order


def _with_bodies(result: Result, body: "BodyFormat", too_large: TooLarge) -> Result:
    """Return the rows and items with their bodies in the form of `--body`."""
    from mq.cli.show.record_format import decoder, value_of

    text = decoder(body)
    messages = result.messages or ()
    names = [column.name for column in result.columns]
    rows, data = result.rows, result.data
    every = range(len(messages))
    if "body" in names and len(rows) == len(messages):
        place = names.index("body")

        def row(index: int) -> Row:
            made = list(before[index])
            made[place] = None  # the old one holds a body
            made[place] = text(_checked(messages[index].body, body, too_large))
            return tuple(made)

        before, rows = rows, Mapped(row, every)
    if isinstance(data, list | Mapped) and len(data) == len(messages):

        def item(index: int) -> dict[str, Any]:
            made = {**items[index], "body": None}  # the old one holds a body
            stored = _checked(messages[index].body, body, too_large)
            made["body"], made["bodyEncoding"] = value_of(stored, body)
            return made

        items, data = data, Mapped(item, every)
    return replace(result, rows=rows, data=data, plain=None)


def _checked(data: bytes, body: "BodyFormat", too_large: TooLarge) -> bytes:
    """Return the body; report it if it is too large for the requested form."""
    if body.value == "json":
        from mq.client.operations.messages.json_bodies import MOST_JSON

        begin = bytes(data[:64]).lstrip()[:1]  # of an object or array
        if len(data) > MOST_JSON and begin in (b"{", b"["):
            too_large(len(data))
    return data


def parse(columns: str | None, sort: str | None, *, no_header: bool, utc: bool) -> View:
    """Return the view of the options. Raises UsageError for an empty list of names."""
    return View(_names("--columns", columns), _names("--sort", sort), not no_header, utc)


def find(columns: Sequence[Column], name: str) -> int:
    """Return the index of a column by JSON name or title, in any case. Raises UsageError."""
    wanted = _fold(name)
    for spellings in ([column.name for column in columns], [column.title for column in columns]):
        for index, spelling in enumerate(spellings):
            if _fold(spelling) == wanted:
                return index
    known = ", ".join(column.name for column in columns)
    raise UsageError(f"no column {name!r}", hint=f"columns: {known}")


def _names(flag: str, text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise UsageError(f"{flag} contains no column")
    return names


def _fold(name: str) -> str:
    return name.replace(" ", "").replace("-", "").replace("_", "").lower()


def _titled(column: Column) -> Column:
    return column if column.title else replace(column, title=column.name)


def _in_order(items: Sequence[T], order: Sequence[int]) -> Sequence[T]:
    if isinstance(items, Mapped):
        return Mapped(items.__getitem__, order)
    return [items[index] for index in order]


def _comparable(kind: Kind, value: Any) -> Any:
    if isinstance(value, LongText):
        return value.beginning(MAX_COMPARED)
    if kind is Kind.TIME and not value:
        return None
    return int(value) if isinstance(value, bool) else value


def _alike(values: Iterable[Any]) -> bool:
    """Return whether all values can be compared with each other."""
    known = [value for value in values if value is not None]
    return all(isinstance(value, int | float) for value in known) or all(
        isinstance(value, str) for value in known
    )
