"""Sockets of datagrams, which the network may lose, double or delay."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulation.connections import Address

if TYPE_CHECKING:
    from tests.simulation.network import Network
    from tests.simulation.world import Process


@dataclass(frozen=True)
class DatagramFaults:
    """What happens to datagrams from or to a machine: probabilities, and seconds at most."""

    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0


NO_FAULTS = DatagramFaults()


class Datagrams(asyncio.DatagramTransport):
    """A socket of datagrams."""

    def __init__(
        self, network: "Network", process: "Process", own: Address, peer: Address | None
    ) -> None:
        super().__init__()
        self.network = network
        self.process = process
        self.own, self.peer = own, peer
        self.protocol: Any = None
        self._closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"sockname": self.own, "peername": self.peer or ""}.get(name, default)

    def is_closing(self) -> bool:
        return self._closing

    def sendto(self, data: Any, addr: Any = None) -> None:
        to = addr or self.peer
        if not self._closing and to is not None:
            self.network.send_datagram(self, bytes(data), (to[0], to[1]))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.network.sockets.pop(self.own, None)
            if self.process.is_alive:
                self.process.loop.call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()
