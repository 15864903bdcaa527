"""Registers: values of keys that several clients set, where answers may be missing.

An acknowledged value stays until another one is set. A value without an answer may appear at any
later time: it may still be in flight.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable

# Kind, daemon and name.
Key = tuple[str, str, str]
_Value = Hashable


class Registers:
    """The possible values by key."""

    def __init__(self, wrong: Callable[[str], None]) -> None:
        self._wrong = wrong
        self._settled: dict[Key, list[_Value]] = {}
        self._under_way: dict[Key, list[_Value]] = defaultdict(list)
        self._at_once: dict[Key, list[_Value]] = defaultdict(list)
        self._ghosts: dict[Key, list[_Value]] = defaultdict(list)
        self._changed_at: dict[Key, float] = {}

    def begin(self, key: Key, value: _Value) -> None:
        """A client is about to set a key; None deletes it."""
        self._under_way[key].append(value)

    def acknowledged(self, key: Key, value: _Value, now: float = 0.0) -> None:
        """It was set. Of concurrent values any may have been the last."""
        self._changed_at[key] = now
        self._at_once[key].append(value)
        self._ended(key, value)

    def unanswered(self, key: Key, value: _Value) -> None:
        """It is unknown whether it was or will be set."""
        self._ghosts[key].append(value)
        self._ended(key, value)

    def abandoned(self) -> None:
        """The clients that were setting keys have been killed or interrupted: their results are
        unknown.
        """
        for key, values in self._under_way.items():
            for value in list(values):
                self.unanswered(key, value)

    def forget(self, broker: str, since: float) -> None:
        """Values set at a broker since a moment may be the previous ones."""
        for key in [*self._settled, *self._at_once]:
            if key[1] == broker and self._changed_at.get(key, 0.0) >= since:
                self._settled.pop(key, None)
                self._at_once.pop(key, None)

    def refused(self, key: Key, value: _Value) -> None:
        """It was not set."""
        self._ended(key, value)

    def _ended(self, key: Key, value: _Value) -> None:
        self._under_way[key].remove(value)
        if not self._under_way[key] and self._at_once.get(key):
            self._settled[key] = self._at_once.pop(key)

    def keys(self) -> list[Key]:
        return list(self._settled)

    def check(self, key: Key, value: _Value) -> None:
        """Check the value that a reader finds under a key at the end."""
        allowed = [*self._settled.get(key, [None]), *self._at_once.get(key, []), *self._ghosts[key],
                   *self._under_way[key]]  # fmt: skip
        if value not in allowed:
            self._wrong(f"{key} is {value}, and may be {allowed}")
