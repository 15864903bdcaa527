"""The masters of a cluster, of which one is active at a time."""

from collections.abc import Sequence

from mq.client.errors import ClientError
from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.strings import Address, parse_addresses


class Masters:
    """The list of masters, and the current one.

    They are tried in the given order. (The C++ client has a map by host, so it knows only one of
    two on the same host.)
    """

    def __init__(self, addresses: str | Sequence[str]) -> None:
        """`addresses` are "host:port", several separated by commas. Raises ClientError."""
        text = addresses if isinstance(addresses, str) else ",".join(addresses)
        try:
            self._addresses = parse_addresses(text)
        except MalformedText as error:
            raise ClientError(f"invalid addresses of masters: {error}") from None
        self._index = 0

    def __len__(self) -> int:
        return len(self._addresses)

    @property
    def hosts(self) -> list[str]:
        return [address.host for address in self._addresses]

    @property
    def current(self) -> Address:
        return self._addresses[self._index]

    def advance(self) -> Address:
        """Switch to the next one."""
        self._index = (self._index + 1) % len(self._addresses)
        return self.current
