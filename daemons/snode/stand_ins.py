"""Ports that stand for enodes, for clients that name none: see enodePorts and defaultEnode."""

from collections.abc import Callable, Mapping

from mq.daemons.snode.enodes import Enodes


class StandIns:
    """`by_port` has the enode of each port."""

    def __init__(
        self, enodes: Enodes, default: str, host: str, main_port: Callable[[], int]
    ) -> None:
        """`host` is the snode's address for clients; `default` is defaultEnode."""
        self._enodes = enodes
        self._default = default
        self._host = host
        self._main_port = main_port
        self.by_port: dict[int, str] = {}
        self._ports: Mapping[str, int] = {}

    def open(self, ports: Mapping[str, int]) -> None:
        """Set the ports of the enodes, by enode name."""
        self._ports = ports
        self.by_port = {port: name for name, port in ports.items()}

    def address_of(self, enode: str) -> str | None:
        """The address at which a client that names no enode reaches this one; None if there is
        none.
        """
        port = self._ports.get(enode)
        if port is None:
            alone = self._default or (len(self._enodes.masters) == 1 and enode)
            if alone != enode:
                return None
            port = self._main_port()
        return f"{self._host}:{port}"
