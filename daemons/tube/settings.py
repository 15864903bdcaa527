"""Shared by the settings of TubeMQ's masters and brokers: ranges, and the listen address."""

import re
from collections.abc import Iterable

from mq.daemons.acl.networks import is_loopback
from mq.daemons.config import ConfigError
from mq.daemons.host_addresses import EVERYWHERE, LOOPBACK


def check_ranges(settings: Iterable[tuple[str, int, int, int]]) -> None:
    """Raises ConfigError for the first value outside its range; each has its name before it."""
    for name, value, least, most in settings:
        if not least <= value <= most:
            raise ConfigError(f"{name}={value}: expected {least} to {most}")


def check_host_name(name: str) -> None:
    """Raises ConfigError for a name that cannot be sent to clients: their texts have delimiters."""
    if not re.fullmatch(r"[^\s@#,:]{1,256}", name):
        raise ConfigError(f"hostName={name}: expected the name or address of a host")


def listen_host(bind_address: str, host_name: str) -> str:
    """Return the listen address: the configured one, else loopback if clients use loopback."""
    return bind_address or (LOOPBACK if is_loopback(host_name) else EVERYWHERE)
