"""How fast a slave is sent the log (haFlowControlEnable): so many bytes in each second.

As in Java (FlowMonitor) each connection has maxHaTransferByteInSecond for itself. There a second's
bytes go out at once, and then nothing until the next one; here the second is cut into slices, so
that who waits for a slave waits for a slice at most. What a slice has not used is gone.
"""

from mq.daemons.broker.store_config import MessageStoreConfig

SLICES = 20  # of a second


class FlowControl:
    """What a connection may be sent. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._slice = -1  # the number of the slice that is counted
        self._sent = 0  # bytes, in it

    def room(self, store: MessageStoreConfig, now: float) -> int:
        """Bytes that may be sent now; 0 until `seconds_left` are over."""
        number = int(now * SLICES)
        if number != self._slice:
            self._slice, self._sent = number, 0
        return max(0, max(1, store.max_ha_transfer_byte_in_second // SLICES) - self._sent)

    def took(self, size: int) -> None:
        """So many bytes were sent."""
        self._sent += size

    def seconds_left(self, now: float) -> float:
        """How long the slice lasts still."""
        return (int(now * SLICES) + 1) / SLICES - now
