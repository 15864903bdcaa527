"""Fast parser for the properties of common sends; builds no dict.

Nearly all messages of a producer have properties with the same names in the same order. A sequence
of names that is frequent gets a regular expression that finds in one step the values that a broker
needs and the text that is stored (all but WAIT). Properties that match no pattern are parsed in
full (see `SendHandlers`).
"""

import re
from collections.abc import Callable, Iterable, Set
from typing import Any, NamedTuple

from mq.daemons.broker.store import key_hash, layout
from mq.protocol.properties import (
    BROKERS_OWN,
    KEY_SEPARATOR,
    MAX_LENGTH,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    PropertyKey,
)
from mq.protocol.tags import tags_code

_SEPARATORS = NAME_VALUE_SEPARATOR + PROPERTY_SEPARATOR
_WAIT = PropertyKey.WAIT_STORE
# Names that require more than storing. The native path leaves messages with them to Python, too.
UNUSUAL = BROKERS_OWN | {PropertyKey.DELAY_LEVEL, PropertyKey.TRANSACTION_PREPARED}
_OF_TIMER = "TIMER_D"
_END = PROPERTY_SEPARATOR.encode()
_pack_length = layout.SHORT.pack

# Limits of remembered names and tags, because clients choose them. At the limit the table is
# cleared.
_MOST_NAMES, _MOST_TAGS = 256, 1024
_LONGEST = 512  # limit in characters of remembered names, or of a remembered tag
_MOST_PROPERTIES = 32
# Compiling a pattern costs as much as parsing a hundred messages, so it pays off after that many.
_OFTEN = 100

# Properties field of the record, tags code, hashes of the keys, whether the sender wants a reply
# once the message is written (without a flush).
Read = tuple[bytes, int, list[int], bool]
Names = tuple[str, ...]


class _Shape(NamedTuple):
    """How texts with certain names are parsed.

    ``groups`` are the groups of the stored text before WAIT, of the stored text after WAIT, and of
    WAIT, tag, unique id and keys, in this order.
    """

    match: Callable[[str], re.Match[str] | None]
    groups: tuple[int, ...]
    names: frozenset[str]


_NONE = _Shape(re.compile("(?!)").match, (), frozenset())


class UsualProperties:
    """Reads the properties of sends. ``added`` is the property that each message gets, as text."""

    def __init__(self, added: str) -> None:
        self._added = f"{PROPERTY_SEPARATOR}{added}".encode()
        self._last = _NONE  # the shape of the previous message
        self._shapes: dict[Names, _Shape | None] = {}
        self._seen: dict[Names, int] = {}  # number of occurrences, for names without a shape
        self._codes: dict[str, int] = {}

    def read(self, text: str, topic: str) -> Read | None:
        """Return the parsed properties of a message, or None if they need the full parser.

        The full parser is needed for a delayed or transactional message, names that only a broker
        may write, duplicate names, a name or value that is missing or contains a separator, and
        properties that are too long.
        """
        found = self._find(text)
        if found is None:
            return None
        before, after, wait, tag, unique, keys = found
        field = _field(f"{before}{after}".encode(), self._added)
        if field is None:
            return None
        return field, self._code(tag), _hashes(topic, unique, keys), wait == "false"

    def read_in_batch(
        self, raw: bytes, topic: str, common: Set[str], added: bytes
    ) -> tuple[bytes, int, list[int]] | None:
        """Like `read`, for one message of a batch, whose own WAIT is stored unchanged.

        ``added`` is the text that every message of the batch gets, with a separator before it. A
        message that has one of the names in ``common`` needs the full parser. Raises
        UnicodeDecodeError.
        """
        text = raw.decode()
        found = self._find(text)
        if found is None or not self._last.names.isdisjoint(common):
            return None
        *_, tag, unique, keys = found
        field = _field(raw.removesuffix(_END), added)
        if field is None:
            return None
        return field, self._code(tag), _hashes(topic, unique, keys)

    def _find(self, text: str) -> tuple[str | Any, ...] | None:
        """Return the groups that the text's shape matched; that shape becomes the last one."""
        match, groups, _ = self._last
        found = match(text)
        if found is None:
            shape = self._shape(text)
            if shape is None:
                return None
            self._last = shape
            found = shape.match(text)
            if found is None:
                return None
            groups = shape.groups
        return found.group(*groups)

    def _shape(self, text: str) -> _Shape | None:
        """Return the shape of the names in a text, or None if they are unusual or rare."""
        segments = text.removesuffix(PROPERTY_SEPARATOR).split(PROPERTY_SEPARATOR)
        if len(segments) > _MOST_PROPERTIES:
            return None
        names = tuple(segment.partition(NAME_VALUE_SEPARATOR)[0] for segment in segments)
        try:
            return self._shapes[names]
        except KeyError:
            pass
        if sum(map(len, names)) > _LONGEST:
            return None
        seen = self._seen.pop(names, 0) + 1
        if seen < _OFTEN:
            if len(self._seen) >= _MOST_NAMES:
                self._seen.clear()
            self._seen[names] = seen
            return None
        if len(self._shapes) >= _MOST_NAMES:
            self._shapes.clear()
        shape = self._shapes[names] = _shape_of(names)
        return shape

    def _code(self, tag: str) -> int:
        """The tags code of a tag, 0 if the tag is empty."""
        code = self._codes.get(tag)
        if code is None:
            code = tags_code(tag)
            if len(tag) <= _LONGEST:
                if len(self._codes) >= _MOST_TAGS:
                    self._codes.clear()
                self._codes[tag] = code
        return code


def names_timer(names: Iterable[str]) -> bool:
    """Whether the name of a property belongs to the timer."""
    return any(name.startswith(_OF_TIMER) for name in names)


def _field(raw: bytes, added: bytes) -> bytes | None:
    """Properties as a record holds them, length first; None if they are too long."""
    size = len(raw) + len(added)
    return None if size > MAX_LENGTH else b"".join((_pack_length(size), raw, added))


def _hashes(topic: str, unique: str, keys: str) -> list[int]:
    hashes = [key_hash(topic, unique)] if unique else []
    if keys:
        for key in keys.split(KEY_SEPARATOR):
            if key:
                hashes.append(key_hash(topic, key))
    return hashes


def _shape_of(names: Names) -> _Shape | None:
    if (
        len(set(names)) < len(names)
        or "" in names
        or not UNUSUAL.isdisjoint(names)
        or names_timer(names)
    ):
        return None
    pattern = re.compile(_pattern(names))
    index = pattern.groupindex
    places = {name: index[f"value{place}"] for place, name in enumerate(names)}
    nothing = index["nothing"]
    values = (_WAIT, PropertyKey.TAGS, PropertyKey.UNIQUE_KEY, PropertyKey.KEYS)
    groups: tuple[int, ...] = (index.get("before", nothing), index.get("after", nothing))
    groups += tuple(places.get(name, nothing) for name in values)
    return _Shape(pattern.fullmatch, groups, frozenset(names))


def _pattern(names: Names) -> str:
    """A regular expression with a group for each value and for the stored text."""
    segments = [
        f"{re.escape(name)}{NAME_VALUE_SEPARATOR}(?P<value{place}>[^{_SEPARATORS}]+)"
        for place, name in enumerate(names)
    ]
    at = names.index(_WAIT) if _WAIT in names else len(names)
    before = PROPERTY_SEPARATOR.join(segments[:at])
    after = PROPERTY_SEPARATOR.join(segments[at + 1 :])
    wait = PROPERTY_SEPARATOR.join(segments[at : at + 1])
    if before:
        before = f"(?P<before>{before})"
        # The text after WAIT starts with the separator, wherever WAIT is.
        wait = wait and PROPERTY_SEPARATOR + wait
        after = after and f"(?P<after>{PROPERTY_SEPARATOR}{after})"
    else:
        after = after and f"{PROPERTY_SEPARATOR}(?P<after>{after})"
    return f"{before}{wait}{after}{PROPERTY_SEPARATOR}?(?P<nothing>)"
