"""Sessions of browsers: a table in memory, by the SHA-256 of the cookie's content.

A session ends after some time without use, after some hours at the latest, at logout, and when the
account has changed. Its id is created at login and was never used before.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from mq.client.machine import clock
from mq.daemons.console.security.accounts import Account
from mq.daemons.console.security.visitors import new_id

MOST_OF_USER = 20
MOST = 2000


@dataclass(slots=True)
class _Session:
    user: str
    mark: str
    begun: float
    used: float


class Sessions:
    """The existing sessions. Times are in seconds."""

    def __init__(self, idle: float, longest: float) -> None:
        self._idle = idle
        self._longest = longest
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, account: Account) -> str:
        """Begin a session; return the content of the cookie. The oldest ones end if there are too
        many.
        """
        now = clock.monotonic()
        own = [key for key, one in self._sessions.items() if one.user == account.name]
        for key in own[: max(0, len(own) - MOST_OF_USER + 1)]:
            del self._sessions[key]
        while len(self._sessions) >= MOST:
            self._sessions.popitem(last=False)
        id = new_id()
        self._sessions[_key(id)] = _Session(account.name, account.mark, now, now)
        return id

    def user_of(self, id: str) -> str | None:
        """Return the name of the session's user; None if it has ended."""
        found = self._alive(id)
        return None if found is None else found.user

    def fits(self, id: str, account: Account | None, *, use: bool) -> bool:
        """Return whether the session belongs to this account in its present state; if not, it ends.

        ``use`` means an action of the user: live updates do not keep a session alive.
        """
        found = self._alive(id)
        if found is None:
            return False
        if account is None or found.mark != account.mark:
            self.end(id)
            return False
        if use:
            found.used = clock.monotonic()
        return True

    def end(self, id: str) -> None:
        """Log out. Idempotent."""
        self._sessions.pop(_key(id), None)

    def _alive(self, id: str) -> _Session | None:
        found = self._sessions.get(_key(id))
        if found is None:
            return None
        now = clock.monotonic()
        if now - found.used > self._idle or now - found.begun > self._longest:
            self.end(id)
            return None
        return found


def _key(id: str) -> str:
    return hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()
