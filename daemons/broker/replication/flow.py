"""Flow control: limits the bytes that a slave is sent in each second (haFlowControlEnable).

As in Java (FlowMonitor) each connection has maxHaTransferByteInSecond for itself. Java sends the
bytes of a second at once, and then nothing until the next second; here the second is divided into
slices, so that a sender that waits for a slave waits for one slice at most. Unused bytes of a slice
are lost.
"""

from mq.daemons.broker.store_config import MessageStoreConfig

SLICES = 20  # of a second


class FlowControl:
    """The budget of a connection. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._slice = -1  # the number of the current slice
        self._sent = 0  # bytes sent in it

    def room(self, store: MessageStoreConfig, now: float) -> int:
        """Bytes that may be sent now; 0 until `seconds_left` have passed."""
        number = int(now * SLICES)
        if number != self._slice:
            self._slice, self._sent = number, 0
        return max(0, max(1, store.max_ha_transfer_byte_in_second // SLICES) - self._sent)

    def took(self, size: int) -> None:
        """Count sent bytes."""
        self._sent += size

    def seconds_left(self, now: float) -> float:
        """The remaining time of the slice."""
        return (int(now * SLICES) + 1) / SLICES - now
