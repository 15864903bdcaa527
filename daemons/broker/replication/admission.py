"""Admission to the replication port: a peer that may connect can read everything that the broker
stores.
"""

import logging

from mq.daemons.acl.networks import Network, is_in, is_loopback, parse_networks
from mq.daemons.broker.config import BrokerSettings

log = logging.getLogger(__name__)

SETTING = "haAllowedAddresses"

# Peers whose logged warnings are remembered; beyond this number all are forgotten.
_MAX_REMEMBERED = 1000


class Admission:
    """Decides by the address of a peer (haAllowedAddresses).

    If the setting is empty, every peer that reaches the port may connect, as with Java; but with
    access control only this machine, because an account without read permissions could read
    everything here.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._allowed: tuple[Network, ...] = parse_networks(
            settings.store.ha_allowed_addresses, SETTING
        )

    def admits(self, host: str) -> bool:
        if self._allowed:
            return is_in(host, self._allowed)
        return not self._settings.broker.acl_enable or is_loopback(host)

    def refusal(self, host: str) -> str:
        """The log line for a peer that is not admitted, with the remedy."""
        return f"{host} may not replicate: if it is a slave, name it in {SETTING}"


class OncePerPeer:
    """Logs errors of peers: one line for each address and kind, not for each occurrence."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, str]] = set()

    def warn(self, host: str, kind: str, text: str, *arguments: object) -> None:
        """Log a warning unless one of this kind was logged for this address."""
        if (host, kind) in self._logged:
            log.debug(text, *arguments)
            return
        if len(self._logged) >= _MAX_REMEMBERED:
            self._logged.clear()
        self._logged.add((host, kind))
        log.warning(text, *arguments, extra={"failure": "replication"})

    def forget(self, host: str) -> None:
        """Forget the warnings for an address, because it works now."""
        self._logged = {(one, kind) for one, kind in self._logged if one != host}
