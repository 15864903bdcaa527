"""Addresses in settings: where to listen, which others are told, and lists of host:port."""

import socket

from mq.daemons.config import ConfigError

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"


def parse_name_servers(text: str) -> list[str]:
    """The addresses in `host:port;host:port`; none in an empty text.

    Raises:
        ConfigError: says what the format is.
    """
    return parse_addresses("namesrvAddr", text)


def parse_addresses(setting_name: str, text: str) -> list[str]:
    """The same of any setting."""
    addresses = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        host, colon, port = part.rpartition(":")
        if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ConfigError(
                f"{setting_name}={text}: {part} is not host:port; "
                'write for example "127.0.0.1:9876;192.168.0.1:9876"'
            )
        addresses.append(part)
    return addresses


def local_address() -> str:
    """The address other hosts most likely reach this one at; loopback if there is no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; it asks the routing table for a source.
            # 192.0.2.1 is reserved for documentation and lies behind the default route.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return LOOPBACK
