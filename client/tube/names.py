"""What the names of masters mean: looked up when they are new, and again and again.

A name is what begins with a letter (Utils::NeedDnsXfs): the rest are addresses. A look-up that
finds nothing leaves what was found before: the original takes the name itself then, which its
connect cannot use.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable

log = logging.getLogger(__name__)

Resolve = Callable[[str], Awaitable[str | None]]


async def resolve_ipv4(name: str) -> str | None:
    """An IPv4 address of a host; None if it has none that can be had now."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(name, None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:  # the latter for what is no name at all
        log.warning("%s could not be looked up: %s", name, error)
        return None
    return str(found[0][4][0]) if found else None


def is_name(host: str) -> bool:
    """Whether this has to be looked up."""
    return host[:1].isalpha() and ":" not in host


class Names:
    """The names that are watched, and what each means."""

    def __init__(self, resolve: Resolve = resolve_ipv4) -> None:
        self._resolve = resolve
        self._addresses: dict[str, str] = {}
        self._watched: dict[str, None] = {}

    def address(self, host: str) -> str:
        """What a host means now; itself, if that is not known."""
        return self._addresses.get(host, host)

    async def watch(self, hosts: Iterable[str]) -> None:
        """Look up the names among these that are new, and from now on each time."""
        new = [host for host in dict.fromkeys(hosts) if is_name(host) and host not in self._watched]
        self._watched.update(dict.fromkeys(new))
        await asyncio.gather(*map(self._look_up, new))

    async def look_up(self) -> None:
        """Look up all of them again."""
        await asyncio.gather(*map(self._look_up, list(self._watched)))

    async def _look_up(self, name: str) -> None:
        address = await self._resolve(name)
        if address is None:
            return
        before = self._addresses.get(name)
        self._addresses[name] = address
        if before not in (None, address):
            log.info("%s has moved from %s to %s", name, before, address)
