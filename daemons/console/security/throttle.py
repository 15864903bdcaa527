"""Failed logins: after several failures the next attempt has to wait, longer each time.

    by address   five failures, then 1, 2, 4, ... 60 s until the next attempt. An IPv6 network of 64
                 bits counts as one address: its users control all of it
    by account   twenty failures, then 5 s between two, from any addresses; except for an
                 address that has logged in to the account before

An attempt that has to wait is not hashed and not counted. So an attacker at one address cannot lock
out the user, who is at another one.
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
MOST = 10_000  # the maximum number of remembered addresses, accounts and pairs


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
    """Remembers failed attempts."""

    def __init__(self) -> None:
        self._addresses = _Table()
        self._accounts = _Table()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self.turned_away = 0

    def may_try(self, account: str, address: str) -> bool:
        """Return whether an attempt may be made now. It counts as a failure until it succeeds, so
        that
        simultaneous attempts all count."""
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
        """Take back the failure of this attempt.

        Earlier ones remain, so an attacker with an account cannot guess other passwords without
        waiting."""
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
