"""Previews that await confirmation, and results that await their reader."""

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
MAX_ENTRIES = 500  # of each kind, for all users together
MAX_PER_USER = 50
MAX_BYTES = 32 * 1024 * 1024  # of all previews, or of all results


@dataclass(frozen=True, slots=True)
class Preview:
    """A change that was shown to a user and not made yet. ``hash`` identifies it, once."""

    hash: str
    user: str
    visitor: str
    cluster: str
    path: str  # including its parameters
    values: Mapping[str, Any]
    plan: Plan
    requests: tuple[str, ...]
    unshown: int  # requests that are not kept
    keys: Counter[Key]
    destroys: str  # the name to type, or empty
    expires: float  # by the monotonic clock
    size: int


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a change."""

    id: str
    user: str
    cluster: str
    title: str
    plan: Plan
    outcomes: tuple[Outcome, ...]
    expires: float


def preview_hash(parts: Mapping[str, Any]) -> str:
    """Return the id of a preview: it depends on its whole content, and cannot be predicted."""
    nonce = random_ids.random_bytes(16)
    option = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
    content = orjson.dumps(dict(parts), default=repr, option=option)
    return hashlib.sha256(nonce + content).hexdigest()


class PendingStore:
    """A bounded store of entries that expire."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Preview | Result] = OrderedDict()
        self._bytes = 0

    def put(self, name: str, thing: Preview | Result) -> None:
        """Keep an entry; the oldest ones are removed if there are too many."""
        self._drop_old()
        of_user = [key for key, one in self._kept.items() if one.user == thing.user]
        if len(of_user) >= MAX_PER_USER:
            self._drop(of_user[0])
        self._kept[name] = thing
        self._bytes += _size(thing)
        while len(self._kept) > MAX_ENTRIES or (self._bytes > MAX_BYTES and len(self._kept) > 1):
            self._drop(next(iter(self._kept)))

    def get(self, name: str) -> Preview | Result | None:
        """Return an entry; None if it has expired."""
        self._drop_old()
        return self._kept.get(name)

    def take(self, name: str) -> Preview | Result | None:
        """Return and remove an entry: None the second time."""
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
