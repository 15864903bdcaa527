"""Previews that wait for a confirmation, and results that wait to be looked at."""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from mq.client.machine import clock, random_ids
from mq.daemons.console.changes.recorder import Key
from mq.daemons.console.route import Outcome, Plan

PREVIEW_SECONDS = 300.0
RESULT_SECONDS = 600.0
MOST = 500  # of each, of all users together
MOST_OF_USER = 50
MOST_BYTES = 32 * 1024 * 1024  # of all previews, or of all results


@dataclass(frozen=True, slots=True)
class Preview:
    """A change that was shown to a user and not made yet. ``hash`` names it, once."""

    hash: str
    user: str
    visitor: str
    cluster: str
    path: str  # with the parameters in it
    values: Mapping[str, Any]
    plan: Plan
    requests: tuple[str, ...]
    unshown: int  # requests beyond those that are kept
    keys: Counter[Key]
    destroys: str  # the name to type, or empty
    expires: float  # by the monotonic clock
    size: int


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a change."""

    id: str
    user: str
    cluster: str
    title: str
    plan: Plan
    outcomes: tuple[Outcome, ...]
    expires: float


def preview_hash(parts: Mapping[str, Any]) -> str:
    """The name of a preview: it depends on all that it shows, and nobody can foresee it."""
    nonce = random_ids.random_bytes(16)
    option = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
    content = orjson.dumps(dict(parts), default=repr, option=option)
    return hashlib.sha256(nonce + content).hexdigest()


class PendingStore:
    """Things that wait for their user, for a time, and not too many of them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Preview | Result] = OrderedDict()
        self._bytes = 0

    def put(self, name: str, thing: Preview | Result) -> None:
        """Keep it; the oldest go where there are too many."""
        self._drop_old()
        of_user = [key for key, one in self._kept.items() if one.user == thing.user]
        if len(of_user) >= MOST_OF_USER:
            self._drop(of_user[0])
        self._kept[name] = thing
        self._bytes += _size(thing)
        while len(self._kept) > MOST or (self._bytes > MOST_BYTES and len(self._kept) > 1):
            self._drop(next(iter(self._kept)))

    def get(self, name: str) -> Preview | Result | None:
        """Look at it; None when its time is over."""
        self._drop_old()
        return self._kept.get(name)

    def take(self, name: str) -> Preview | Result | None:
        """Have it, and nobody else: None the second time."""
        found = self.get(name)
        if found is not None:
            self._drop(name)
        return found

    def _drop(self, name: str) -> None:
        self._bytes -= _size(self._kept.pop(name))

    def _drop_old(self) -> None:
        now = clock.monotonic()
        for name in [name for name, one in self._kept.items() if one.expires <= now]:
            self._drop(name)


def _size(thing: Preview | Result) -> int:
    if isinstance(thing, Preview):
        return thing.size
    return sum(len(one.target) + len(one.text) for one in thing.outcomes)
