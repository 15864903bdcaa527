"""Which master a slave follows, of those that name servers name."""

import logging
from dataclasses import dataclass

from mq.daemons.broker.replication.master_addresses import MasterAddresses

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Master:
    """What one name server says: host:port of the master, and where it is replicated from."""

    address: str
    ha_address: str


_NONE = Master("", "")


class MasterDiscovery:
    """Tells `addresses` which master to follow.

    Several name servers may disagree for a while: one has not noticed yet that the master has gone,
    or has just started and knows nobody. The master that is followed is followed as long as any of
    them names it, and only then the first other one that is named. (A slave of Java follows
    whichever answered first, each time anew.) One that does not answer is taken to mean what it
    said last, until `forget`.
    """

    def __init__(self, addresses: MasterAddresses, own: str) -> None:
        """`own` is this broker's address."""
        self.addresses = addresses
        self.last = ""  # the address that name servers have named last
        self._own = own
        self._named: dict[str, Master] = {}  # by the name server that says so
        self._coming = _NONE  # that is to register yet, as it says itself

    def told(self, name_server: str, address: str | None, ha_address: str | None) -> None:
        """A name server has answered a registration; it names a master, or None."""
        if address and address != self._own:
            self._named[name_server] = Master(address, ha_address or "")
            self._coming = _NONE
            self.last = address
        else:
            self._named.pop(name_server, None)
        self._choose()

    def comes(self, address: str, ha_address: str) -> None:
        """A master says itself that it is there, before it registers. Any that a name server names
        goes before it, now and later."""
        self._coming = Master(address, ha_address)
        self._choose()

    def forget(self, name_server: str) -> None:
        """That name server is asked no more."""
        if self._named.pop(name_server, None) is not None:
            self._choose()

    def _choose(self) -> None:
        followed = self.addresses.address
        named = list(self._named.values())
        chosen = next((master for master in named if master.address == followed), None)
        if chosen is None:
            chosen = named[0] if named else self._coming
        if chosen.address != followed:
            log.info("the master is %s", chosen.address or "gone from the name servers")
        self.addresses.tell(chosen.address, chosen.ha_address)
