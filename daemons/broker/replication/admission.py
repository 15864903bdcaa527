"""Who may connect to the port of replication: whoever may, can read all that the broker stores."""

import logging

from mq.daemons.acl.networks import Network, is_in, is_loopback, parse_networks
from mq.daemons.broker.config import BrokerSettings

log = logging.getLogger(__name__)

SETTING = "haAllowedAddresses"

# Peers about which one line has been logged. Behind so many all are begun anew.
_MOST_REMEMBERED = 1000


class Admission:
    """Decides by the address of a peer (haAllowedAddresses).

    Where the setting is empty, everybody may who reaches the port, as with Java; but with access
    control this machine only: an account that may read nothing would read everything here.
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
        """What is to be done for a peer that is not admitted."""
        return f"{host} may not replicate: if it is a slave, name it in {SETTING}"


class OncePerPeer:
    """Logs what peers do wrong: a line for each address and kind, not for each time."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str]] = set()

    def warn(self, host: str, kind: str, text: str, *arguments: object) -> None:
        """Log a warning unless one of this kind has been logged about this address."""
        if (host, kind) in self._said:
            log.debug(text, *arguments)
            return
        if len(self._said) >= _MOST_REMEMBERED:
            self._said.clear()
        self._said.add((host, kind))
        log.warning(text, *arguments, extra={"failure": "replication"})

    def forget(self, host: str) -> None:
        """What was wrong with an address is right now."""
        self._said = {(one, kind) for one, kind in self._said if one != host}
