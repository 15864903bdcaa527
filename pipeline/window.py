"""Requests in flight: several at a time, to several brokers, without an event loop."""

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from mq.client.errors import ConnectError, MQError, RequestTimeout, for_code
from mq.client.send_result import STATUSES
from mq.client.transport.blocking import BlockingSession
from mq.pipeline.wire import Wire
from mq.protocol.codes import SENDS, ResponseCode
from mq.protocol.command import Command
from mq.protocol.frame import encode

T = TypeVar("T")


class Completion(NamedTuple, Generic[T]):
    """The outcome of a request: the fields of the reply, or the error."""

    token: T
    fields: dict[str, object]
    error: MQError | None


class RequestWindow(Generic[T]):
    """Sends requests and collects their outcomes. Each has a token of the caller."""

    def __init__(self, session: BlockingSession, timeout: float) -> None:
        """`timeout` in seconds is for connecting and for each reply."""
        self._session = session
        self._timeout = timeout
        self._wires: dict[str, Wire] = {}
        self._in_flight: dict[int, tuple[str, T, int]] = {}  # by opaque: address, token, code
        self._opaque = 0
        self._lost: list[Completion[T]] = []

    def __len__(self) -> int:
        return len(self._in_flight) + len(self._lost)

    def next_opaque(self) -> int:
        """Return the number of the next request."""
        self._opaque += 1
        return self._opaque

    def send(self, address: str, command: Command, token: T) -> None:
        """Send a request, whose `opaque` is of `next_opaque`. `next_completion` returns a
        failure.
        """
        if self._session.credentials is not None:
            self._session.credentials.sign(command)
        self._in_flight[command.opaque] = (address, token, command.code)
        try:
            wire = self._wires.get(address)
            if wire is None:
                wire = self._wires[address] = Wire(address, self._timeout, self._session.tls)
            wire.send(encode(command))
        except MQError as error:
            self._lose(address, error)

    def next_completion(self) -> Completion[T]:
        """Wait for the outcome of a request, one of those at the broker of the oldest."""
        while True:
            if self._lost:
                return self._lost.pop(0)
            address, _, code = next(iter(self._in_flight.values()))
            try:
                frame = self._wires[address].receive()
            except RequestTimeout:
                self._lose(address, RequestTimeout(address, self._timeout, code))
                continue
            except MQError as error:
                self._lose(address, error)
                continue
            opaque = frame.header.get("opaque")
            entry = self._in_flight.pop(opaque, None) if isinstance(opaque, int) else None
            if entry is None:
                continue  # a request of the broker
            return _read(address, entry[1], entry[2], frame.header)

    def drain(self) -> Iterable[Completion[T]]:
        """Yield the outcomes of all requests in flight, including those sent meanwhile."""
        while len(self):
            yield self.next_completion()

    def close(self) -> None:
        """Close the connections. Safe to call again."""
        for wire in self._wires.values():
            wire.close()
        self._wires.clear()

    def _lose(self, address: str, error: MQError) -> None:
        """Drop a broken connection; the outcome of its requests is unknown."""
        wire = self._wires.pop(address, None)
        if wire is not None:
            wire.close()
        if not isinstance(error, RequestTimeout | ConnectError):
            error = ConnectError(address, str(error))
        gone = [opaque for opaque, entry in self._in_flight.items() if entry[0] == address]
        for opaque in gone:
            _, token, _ = self._in_flight.pop(opaque)
            self._lost.append(Completion(token, {}, error))


def _read(address: str, token: T, request: int, header: dict[str, object]) -> Completion[T]:
    code, remark, fields = header.get("code"), header.get("remark"), header.get("extFields")
    found = fields if isinstance(fields, dict) else {}
    # For requests other than sends SLAVE_NOT_AVAILABLE means that the broker is a slave, and did
    # nothing.
    if code == ResponseCode.SUCCESS or (request in SENDS and code in STATUSES):
        return Completion(token, found, None)
    number = code if isinstance(code, int) else -1
    return Completion(
        token, found, for_code(number, remark if isinstance(remark, str) else None, address)
    )
