"""Addresses in settings: listen addresses, announced addresses, and lists of host:port."""

import socket

from mq.client.errors import ClientError
from mq.client.routing.address_server import is_url
from mq.client.transport.caller import parse_address
from mq.daemons.acl.networks import is_loopback
from mq.daemons.config import ConfigError

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"


def parse_name_servers(text: str) -> list[str]:
    """The addresses in `host:port;host:port`, or with commas; none in an empty text.

    Raises:
        ConfigError: explains the format.
    """
    return parse_addresses("namesrvAddr", text)


def parse_addresses(setting_name: str, text: str) -> list[str]:
    """The addresses in the value of any setting, separated by `;` or, as in commands, by commas.

    Raises:
        ConfigError: explains the format.
    """
    if is_url(text):
        raise ConfigError(
            f"{setting_name}={text}: a daemon takes addresses here, not the URL of an address "
            "server; set fetchNamesrvAddrByAddressServer=true and rmqAddressServerDomain"
        )
    addresses = []
    for part in filter(None, (part.strip() for part in text.replace(",", ";").split(";"))):
        try:
            parse_address(part)
        except ClientError:
            raise ConfigError(
                f"{setting_name}={text}: {part} is not host:port; "
                'write for example "127.0.0.1:9876;192.168.0.1:9876"'
            ) from None
        addresses.append(part)
    return addresses


def resolve(bind: str, told: str, *, is_guarded: bool) -> tuple[str, str]:
    """The listen address and the announced address, if one or both are configured.

    Without access control every client that can connect may do everything. So a daemon that is not
    guarded, and whose file configures no announced address, listens on loopback only.
    """
    if bind:
        host = bind
    elif told:
        host = LOOPBACK if is_loopback(told) else EVERYWHERE
    else:
        host = EVERYWHERE if is_guarded else LOOPBACK
    return host, told or (local_address() if host in (EVERYWHERE, "::") else host)


def local_address() -> str:
    """The address at which other hosts most likely reach this one; loopback without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; it asks the routing table for a source.
            # 192.0.2.1 is reserved for documentation and is routed through the default route.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return LOOPBACK
