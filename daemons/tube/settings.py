"""What the settings of TubeMQ's masters and brokers have in common: ranges, and where to listen."""

import re
from collections.abc import Iterable

from mq.daemons.acl.networks import is_loopback
from mq.daemons.config import ConfigError
from mq.daemons.host_addresses import EVERYWHERE, LOOPBACK


def check_ranges(settings: Iterable[tuple[str, int, int, int]]) -> None:
    """Raises ConfigError for the first value that is not from its least to its most; each has its
    name before it."""
    for name, value, least, most in settings:
        if not least <= value <= most:
            raise ConfigError(f"{name}={value}: expected {least} to {most}")


def check_host_name(name: str) -> None:
    """Raises ConfigError for what no client could be told of: their texts have delimiters."""
    if not re.fullmatch(r"[^\s@#,:]{1,256}", name):
        raise ConfigError(f"hostName={name}: expected the name or address of a host")


def listen_host(bind_address: str, host_name: str) -> str:
    """Where to listen: where that is said, else on loopback if that is what clients are told."""
    return bind_address or (LOOPBACK if is_loopback(host_name) else EVERYWHERE)
