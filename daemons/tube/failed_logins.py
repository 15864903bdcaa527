"""Limits the attempts of one address with a wrong secret: a token or a signature."""

import ipaddress

from mq.client.machine import clock

MOST_FAILURES = 20  # of one address per period
PERIOD = 10.0  # seconds
_MOST_ADDRESSES = 4096


class FailedLogins:
    """Counts failures by address. An IPv6 address counts as its /64 network."""

    def __init__(self) -> None:
        self._failures: dict[str, tuple[float, int]] = {}  # end of the period, and number

    def is_blocked(self, host: str) -> bool:
        """Return whether secrets from this address are refused unchecked until its period ends."""
        if not self._failures:
            return False
        ends, count = self._failures.get(_network(host), (0.0, 0))
        return count >= MOST_FAILURES and clock.monotonic() < ends

    def failed(self, host: str) -> None:
        """Count a wrong secret from this address."""
        key, now = _network(host), clock.monotonic()
        ends, count = self._failures.pop(key, (0.0, 0))
        if now >= ends:
            ends, count = now + PERIOD, 0
        self._failures[key] = ends, count + 1
        if len(self._failures) > _MOST_ADDRESSES:
            del self._failures[next(iter(self._failures))]


def host_of(peer: str) -> str:
    """Return the address in "host:port" or "[host]:port"."""
    return peer.rpartition(":")[0].strip("[]")


def _network(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
