"""Master discovery: selects the master that a slave follows from those that name servers report."""

import logging
from dataclasses import dataclass

from mq.daemons.broker.replication.master_addresses import MasterAddresses

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Master:
    """The master that one name server reports: host:port for requests, and its replication
    address."""

    address: str
    ha_address: str


_NONE = Master("", "")


class MasterDiscovery:
    """Sets `addresses` to the master to follow.

    Several name servers may disagree for a while: one has not noticed yet that the master is down,
    or has just started and knows no broker. The current master is kept as long as one of them
    reports it; then the first other reported one is followed. (A slave of Java follows the master
    of each first reply.) The last reply of a name server that does not answer counts until
    `forget`.
    """

    def __init__(self, addresses: MasterAddresses, own: str) -> None:
        """`own` is this broker's address."""
        self.addresses = addresses
        self.last = ""  # the address that name servers reported last
        self._own = own
        self._named: dict[str, Master] = {}  # by the reporting name server
        self._announced = _NONE  # a master that has announced itself and is not registered yet

    def reported(self, name_server: str, address: str | None, ha_address: str | None) -> None:
        """Handle the reply of a name server to a registration, with a master or None."""
        if address and address != self._own:
            self._named[name_server] = Master(address, ha_address or "")
            self._announced = _NONE
            self.last = address
        else:
            self._named.pop(name_server, None)
        self._choose()

    def announced(self, address: str, ha_address: str) -> None:
        """Handle the announcement of a master before it registers. A master that a name server
        reports has priority, now and later.
        """
        self._announced = Master(address, ha_address)
        self._choose()

    def forget(self, name_server: str) -> None:
        """Drop the last reply of a name server that is not asked any more."""
        if self._named.pop(name_server, None) is not None:
            self._choose()

    def _choose(self) -> None:
        followed = self.addresses.address
        named = list(self._named.values())
        chosen = next((master for master in named if master.address == followed), None)
        if chosen is None:
            chosen = named[0] if named else self._announced
        if chosen.address != followed:
            log.info("the master is %s", chosen.address or "not registered any more")
        self.addresses.set(chosen.address, chosen.ha_address)
