"""Where a slave finds its master."""

import asyncio


class MasterAddresses:
    """Texts "host:port", "" while nobody has told any.

    ``address`` is where the master answers requests, ``ha_address`` where it replicates from.
    ``flush_offset`` is where its log ended when it began to be master, 0 while it has not said so.
    ``changed`` is set by each change; who acts on one clears it first.
    """

    def __init__(self, ha_address: str = "") -> None:
        """``ha_address``, where it is given (haMasterAddress), is never changed."""
        self.address = ""
        self.ha_address = ha_address
        self.flush_offset = 0
        self.changed = asyncio.Event()
        self._is_fixed = bool(ha_address)

    def tell(self, address: str, ha_address: str) -> None:
        """What is known now. Without an address for replication the last one stays, as in Java."""
        if self._is_fixed or not ha_address:
            ha_address = self.ha_address
        if (address, ha_address) != (self.address, self.ha_address):
            self.address, self.ha_address = address, ha_address
            self.changed.set()


class AssignedMaster(MasterAddresses):
    """The master that controllers have named, for as long as the broker has its role.

    They do not say where it replicates from. What name servers say of another master is older, or
    newer than the role, which then ends.
    """

    def __init__(self, address: str, ha_address: str) -> None:
        super().__init__(ha_address)
        self.address = address

    def tell(self, address: str, ha_address: str) -> None:
        if address == self.address and not self.ha_address:
            super().tell(address, ha_address)
