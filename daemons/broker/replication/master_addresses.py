"""The addresses at which a slave finds its master."""

import asyncio


class MasterAddresses:
    """Addresses as "host:port", "" while unknown.

    ``address`` is for requests to the master, ``ha_address`` for replication. ``flush_offset`` is
    the end of its log when it became master, 0 while unknown. ``changed`` is set by each change; a
    task that handles a change clears it first.
    """

    def __init__(self, ha_address: str = "") -> None:
        """A given ``ha_address`` (haMasterAddress) never changes."""
        self.address = ""
        self.ha_address = ha_address
        self.flush_offset = 0
        self.changed = asyncio.Event()
        self._is_fixed = bool(ha_address)

    def set(self, address: str, ha_address: str) -> None:
        """Set the known addresses. Without a replication address the last one stays, as in Java."""
        if self._is_fixed or not ha_address:
            ha_address = self.ha_address
        if (address, ha_address) != (self.address, self.ha_address):
            self.address, self.ha_address = address, ha_address
            self.changed.set()


class AssignedMaster(MasterAddresses):
    """The master that controllers have named, while the broker has its role.

    Controllers do not report its replication address. Reports of name servers about another master
    are older than the role, or newer, in which case the role ends.
    """

    def __init__(self, address: str, ha_address: str) -> None:
        super().__init__(ha_address)
        self.address = address

    def set(self, address: str, ha_address: str) -> None:
        if address == self.address and not self.ha_address:
            super().set(address, ha_address)
