"""Tries to log in: after some that failed the next has to wait, longer each time.

    by address   five fail, then 1, 2, 4, ... 60 s to the next. An IPv6 network of 64 bits is one
                 address: whoever has one address of it has all
    by account   twenty fail, then 5 s between two, whatever addresses they come from; but not for
                 an address that the account was logged in from before

What has to wait does not reach the hash, and does not count. So who guesses from one address never
keeps out the rightful user, who is elsewhere.
"""

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass

from mq.client.machine import clock

FREE_OF_ADDRESS = 5
FREE_OF_ACCOUNT = 20
ACCOUNT_PAUSE = 5.0
LONGEST_PAUSE = 60.0
FORGET_SECONDS = 900.0
MOST = 10_000  # addresses, accounts and pairs that are remembered


@dataclass(slots=True)
class _Tries:
    failures: int = 0
    last: float = 0.0
    until: float = 0.0


class _Table(OrderedDict[str, _Tries]):
    def of(self, key: str, now: float) -> _Tries:
        found = self.get(key)
        if found is None or now - found.last > FORGET_SECONDS:
            found = self[key] = _Tries(last=now)
            if len(self) > MOST:
                self.popitem(last=False)
        self.move_to_end(key)
        return found


class Throttle:
    """Remembers tries that failed."""

    def __init__(self) -> None:
        self._addresses = _Table()
        self._accounts = _Table()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self.turned_away = 0

    def may_try(self, account: str, address: str) -> bool:
        """Whether a try may be made now. It counts as one that failed until it is told otherwise:
        of many at the same time each is one."""
        now = clock.monotonic()
        place, name = _network(address), account[:64]
        of_address, of_account = self._addresses.of(place, now), self._accounts.of(name, now)
        known = (name, place) in self._known
        if of_address.until > now or (of_account.until > now and not known):
            self.turned_away += 1
            return False
        for tries in (of_address, of_account):
            tries.failures += 1
            tries.last = now
        beyond = of_address.failures - FREE_OF_ADDRESS
        if beyond >= 0:
            of_address.until = now + min(2.0 ** min(beyond, 10), LONGEST_PAUSE)
        if of_account.failures >= FREE_OF_ACCOUNT:
            of_account.until = now + ACCOUNT_PAUSE
        return True

    def succeeded(self, account: str, address: str) -> None:
        """The try was no failure: take it back. Those before it stay, or one who has an account
        could guess the password of another one without ever having to wait."""
        now = clock.monotonic()
        place, name = _network(address), account[:64]
        self._addresses.of(place, now).failures -= 1
        self._accounts.of(name, now).failures -= 1
        self._known[name, place] = None
        self._known.move_to_end((name, place))
        if len(self._known) > MOST:
            self._known.popitem(last=False)


def _network(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
