"""Registers: what was set under a key, where several set it and answers may be missing.

A value that was acknowledged stays until another is set. One whose setting was not answered may be
there at any time from then on: it may still be under way.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable

#: What it is, of which daemon, and its name.
Key = tuple[str, str, str]
_Value = Hashable


class Registers:
    """By key: the values that it may have."""

    def __init__(self, wrong: Callable[[str], None]) -> None:
        self._wrong = wrong
        self._settled: dict[Key, list[_Value]] = {}
        self._under_way: dict[Key, list[_Value]] = defaultdict(list)
        self._at_once: dict[Key, list[_Value]] = defaultdict(list)
        self._ghosts: dict[Key, list[_Value]] = defaultdict(list)
        self._changed_at: dict[Key, float] = {}

    def begin(self, key: Key, value: _Value) -> None:
        """Somebody is about to set a key; None: to delete it."""
        self._under_way[key].append(value)

    def acknowledged(self, key: Key, value: _Value, now: float = 0.0) -> None:
        """That was done. Of several at once any may have been the last."""
        self._changed_at[key] = now
        self._at_once[key].append(value)
        self._ended(key, value)

    def unanswered(self, key: Key, value: _Value) -> None:
        """Nobody knows whether that was done, or will be."""
        self._ghosts[key].append(value)
        self._ended(key, value)

    def abandoned(self) -> None:
        """Whoever was setting keys has been killed or interrupted: nobody is told of these."""
        for key, values in self._under_way.items():
            for value in list(values):
                self.unanswered(key, value)

    def forget(self, broker: str, since: float) -> None:
        """What was set at a broker since a moment may be as it was before, or not."""
        for key in [*self._settled, *self._at_once]:
            if key[1] == broker and self._changed_at.get(key, 0.0) >= since:
                self._settled.pop(key, None)
                self._at_once.pop(key, None)

    def refused(self, key: Key, value: _Value) -> None:
        """That was not done."""
        self._ended(key, value)

    def _ended(self, key: Key, value: _Value) -> None:
        self._under_way[key].remove(value)
        if not self._under_way[key] and self._at_once.get(key):
            self._settled[key] = self._at_once.pop(key)

    def keys(self) -> list[Key]:
        return list(self._settled)

    def check(self, key: Key, value: _Value) -> None:
        """``value`` is what a reader finds under a key at the end."""
        allowed = [*self._settled.get(key, [None]), *self._at_once.get(key, []), *self._ghosts[key],
                   *self._under_way[key]]  # fmt: skip
        if value not in allowed:
            self._wrong(f"{key} is {value}, and may be {allowed}")
