"""Host names of masters: resolved when they are new, and periodically.

A host is a name if it starts with a letter (Utils::NeedDnsXfs); others are addresses. A failed
lookup keeps the previous address: the original then uses the name itself, which its connect cannot
handle.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable

log = logging.getLogger(__name__)

Resolve = Callable[[str], Awaitable[str | None]]


async def resolve_ipv4(name: str) -> str | None:
    """Return an IPv4 address of a host; None if none is available now."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(name, None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:  # ValueError for an invalid name
        log.warning("cannot resolve %s: %s", name, error)
        return None
    return str(found[0][4][0]) if found else None


def is_name(host: str) -> bool:
    """Whether the host must be resolved."""
    return host[:1].isalpha() and ":" not in host


class Names:
    """The watched names, and their addresses."""

    def __init__(self, resolve: Resolve = resolve_ipv4) -> None:
        self._resolve = resolve
        self._addresses: dict[str, str] = {}
        self._watched: dict[str, None] = {}

    def address(self, host: str) -> str:
        """Return the current address of a host; the host itself if it is unknown."""
        return self._addresses.get(host, host)

    async def watch(self, hosts: Iterable[str]) -> None:
        """Resolve the new names among these, and watch them."""
        new = [host for host in dict.fromkeys(hosts) if is_name(host) and host not in self._watched]
        self._watched.update(dict.fromkeys(new))
        await asyncio.gather(*map(self._look_up, new))

    async def look_up(self) -> None:
        """Resolve all watched names again."""
        await asyncio.gather(*map(self._look_up, list(self._watched)))

    async def _look_up(self, name: str) -> None:
        address = await self._resolve(name)
        if address is None:
            return
        before = self._addresses.get(name)
        self._addresses[name] = address
        if before not in (None, address):
            log.info("address of %s changed from %s to %s", name, before, address)
