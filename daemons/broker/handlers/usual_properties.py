"""Properties of a send as producers mostly write them, read without a dict of them.

Nearly all messages of a producer have properties of the same names in the same order. So names that
come again get a pattern that finds in one step what a broker looks at, and what is stored: all but
WAIT. Whatever fits no pattern is read with care (see `SendHandlers`).
"""

import re
from collections.abc import Callable, Iterable, Set
from typing import Any, NamedTuple

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.index import key_hash
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
#: Names that ask for more than storing. The native path leaves messages with them to Python, too.
UNUSUAL = BROKERS_OWN | {PropertyKey.DELAY_LEVEL, PropertyKey.TRANSACTION_PREPARED}
_OF_TIMER = "TIMER_D"
_END = PROPERTY_SEPARATOR.encode()
_pack_length = layout.SHORT.pack

# What is kept of the names and tags that peers choose, at most; then it begins anew.
_MOST_NAMES, _MOST_TAGS = 256, 1024
_LONGEST = 512  # characters of names, or of a tag, that are kept
_MOST_PROPERTIES = 32
# A pattern costs as much as a hundred messages: names that come so often are worth one.
_OFTEN = 100

#: Properties field of the record, tags code, hashes of the keys, whether written is enough for the
#: sender.
Read = tuple[bytes, int, list[int], bool]
Names = tuple[str, ...]


class _Shape(NamedTuple):
    """How texts with certain names are read. ``groups`` are those of what is stored before WAIT
    and behind it, of WAIT, tag, unique id and keys, in this order."""

    match: Callable[[str], re.Match[str] | None]
    groups: tuple[int, ...]
    names: frozenset[str]


_NONE = _Shape(re.compile("(?!)").match, (), frozenset())


class UsualProperties:
    """Reads the properties of sends. ``added`` is the property that each message gets, as text."""

    def __init__(self, added: str) -> None:
        self._added = f"{PROPERTY_SEPARATOR}{added}".encode()
        self._last = _NONE  # the shape of the message before
        self._shapes: dict[Names, _Shape | None] = {}
        self._seen: dict[Names, int] = {}  # how often, of those that have no shape yet
        self._codes: dict[str, int] = {}

    def read(self, text: str, topic: str) -> Read | None:
        """What a message's properties say and become; None if they are to be read with care.

        That is: a delayed or transactional message, names that only a broker may write, two equal
        names, a name or value that is missing or has a separator in it, too much of it.
        """
        found = self._find(text)
        if found is None:
            return None
        before, behind, wait, tag, unique, keys = found
        field = _field(f"{before}{behind}".encode(), self._added)
        if field is None:
            return None
        return field, self._code(tag), _hashes(topic, unique, keys), wait == "false"

    def read_in_batch(
        self, raw: bytes, topic: str, common: Set[str], added: bytes
    ) -> tuple[bytes, int, list[int]] | None:
        """The same of one message of a batch, whose own WAIT is stored as it is.

        ``added`` is what every message of the batch gets, with a separator before it; a message
        that has one of these names, which are in ``common``, is to be read with care.
        Raises UnicodeDecodeError.
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
        """What the groups of its shape found; that shape is the last one from now on."""
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
        """That of the names in a text, None if they are not usual or have not come often."""
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
        """The tags code of a tag, 0 where there is none."""
        code = self._codes.get(tag)
        if code is None:
            code = tags_code(tag)
            if len(tag) <= _LONGEST:
                if len(self._codes) >= _MOST_TAGS:
                    self._codes.clear()
                self._codes[tag] = code
        return code


def names_timer(names: Iterable[str]) -> bool:
    """Whether one of the names of a message's properties may be a request to the timer."""
    return any(name.startswith(_OF_TIMER) for name in names)


def _field(raw: bytes, added: bytes) -> bytes | None:
    """Properties as a record holds them, their length first; None if they are too long."""
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
    groups: tuple[int, ...] = (index.get("before", nothing), index.get("behind", nothing))
    groups += tuple(places.get(name, nothing) for name in values)
    return _Shape(pattern.fullmatch, groups, frozenset(names))


def _pattern(names: Names) -> str:
    """A regular expression with a group for each value, and for what is stored."""
    segments = [
        f"{re.escape(name)}{NAME_VALUE_SEPARATOR}(?P<value{place}>[^{_SEPARATORS}]+)"
        for place, name in enumerate(names)
    ]
    at = names.index(_WAIT) if _WAIT in names else len(names)
    before = PROPERTY_SEPARATOR.join(segments[:at])
    behind = PROPERTY_SEPARATOR.join(segments[at + 1 :])
    wait = PROPERTY_SEPARATOR.join(segments[at : at + 1])
    if before:
        before = f"(?P<before>{before})"
        # What follows brings the separator with it, in whatever place WAIT was.
        wait = wait and PROPERTY_SEPARATOR + wait
        behind = behind and f"(?P<behind>{PROPERTY_SEPARATOR}{behind})"
    else:
        behind = behind and f"{PROPERTY_SEPARATOR}(?P<behind>{behind})"
    return f"{before}{wait}{behind}{PROPERTY_SEPARATOR}?(?P<nothing>)"
