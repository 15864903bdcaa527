"""Remembers the results of a filter by the values of the properties that it names.

Most messages of a topic have their properties in the same order, and the values that filters test
are few: types, regions, levels. So a filter learns the shape of the properties it meets, as a
regular expression whose groups are the values it needs. Then one match in the record replaces a
search for each property, and a table lookup replaces the evaluation.

A shape is learned only if it gives the same result as the filter's own search: no property that the
filter names occurs twice or is empty.
"""

import re
from collections.abc import Callable, Iterable

Subject = bytes | memoryview
Shape = Callable[[Subject, int, int], "re.Match[bytes] | None"]
Known = dict[tuple[bytes, ...], bool]

# Bounds of the memory of one filter; a broker remembers a thousand filters.
_MOST_SHAPES = 8
_MOST_ANSWERS = 256
_LONGEST_VALUES = 128
_MOST_PROPERTIES = 64
# Messages between two learned shapes: learning takes as long as evaluating some hundred messages.
_BETWEEN_LESSONS = 200

_SEPARATOR = b"\x02"
_EQUALS = b"\x01"


class MatchCache:
    """The remembered results of a filter.

    Attributes:
        shape: matches the properties between two positions if they look like the last ones; its
          groups are the values that the filter tests.
        known: by these values, whether the filter matches.
    """

    __slots__ = ("_matches", "_names", "_shapes", "_until_lesson", "known", "shape")

    def __init__(self, names: Iterable[str], matches: Callable[[Subject], bool]) -> None:
        """``names`` are the properties that the filter tests; ``matches`` evaluates it."""
        self._names = frozenset(name.encode() for name in names)
        self._matches = matches
        self._until_lesson = 0
        self._shapes: list[tuple[Shape, Known]] = []
        self.shape: Shape = _nothing
        self.known: Known = {}

    def decide(self, view: Subject, start: int, end: int) -> bool:
        """Whether the filter matches the properties between two positions."""
        values = self.shape(view, start, end)
        if values is None:
            values = self._other_shape(view, start, end)
        if values is None:
            return self._matches(view[start:end])
        key = values.groups()
        answer = self.known.get(key)
        if answer is None:
            answer = self._matches(view[start:end])
            if sum(map(len, key)) <= _LONGEST_VALUES:
                if len(self.known) >= _MOST_ANSWERS:
                    self.known.clear()
                self.known[key] = answer
        return answer

    def _other_shape(self, view: Subject, start: int, end: int) -> "re.Match[bytes] | None":
        """Switch to a shape that matches, or learn one; None if there is none."""
        for shape, known in self._shapes:
            values = shape(view, start, end)
            if values is not None:
                self.shape, self.known = shape, known
                return values
        if self._until_lesson > 0:
            self._until_lesson -= 1
            return None
        self._until_lesson = _BETWEEN_LESSONS
        pattern = self._pattern(bytes(view[start:end]))
        if pattern is None:
            return None
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.pop(0)
        self.shape, self.known = re.compile(pattern).fullmatch, {}
        self._shapes.append((self.shape, self.known))
        return self.shape(view, start, end)

    def _pattern(self, properties: bytes) -> bytes | None:
        """A regular expression for properties with these names, or None."""
        parts = properties.removesuffix(_SEPARATOR).split(_SEPARATOR) if properties else []
        if len(parts) > _MOST_PROPERTIES:
            return None
        met: set[bytes] = set()
        patterns = []
        for part in parts:
            name, equals, value = part.partition(_EQUALS)
            wanted = name in self._names
            if not equals or (wanted and (name in met or not value)):
                return None
            met.add(name)
            shown = b"([^\x02]+)" if wanted else b"[^\x02]*"
            patterns.append(re.escape(name) + _EQUALS + shown)
        return _SEPARATOR.join(patterns) + b"\x02?"


def _nothing(view: Subject, start: int, end: int) -> None:
    """The initial shape, which matches nothing."""
