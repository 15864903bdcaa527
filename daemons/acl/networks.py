"""Addresses and networks, and lists of them in settings: `10.0.0.5;10.0.1.0/24;2001:db8::/32`."""

import ipaddress
from collections.abc import Iterable

from mq.daemons.config import ConfigError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_networks(text: str, setting: str = "writeAllowList") -> tuple[Network, ...]:
    """The networks in a list that is the value of a `setting`; a single address is a network.

    Raises:
        ConfigError: names the invalid part.
    """
    found = []
    for part in filter(None, (part.strip() for part in text.replace(",", ";").split(";"))):
        try:
            found.append(ipaddress.ip_network(part))
        except ValueError as error:
            raise ConfigError(
                f"{setting}: {part} is neither an address nor a network ({error}); "
                'write for example "10.0.0.5;10.0.1.0/24"'
            ) from None
    return tuple(found)


def is_in(host: str, networks: Iterable[Network]) -> bool:
    """Whether an address, as reported by a socket, is in one of the networks.

    An IPv4 address in IPv6 form, as on a socket of both families, counts as IPv4.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in networks)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener at this host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
