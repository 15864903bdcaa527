"""Limits the messages per second of an operation."""

import asyncio
import time

from mq.client.operations.errors import InvalidRequest, Parameter


class Rate:
    """Permits at most a number of messages per second, evenly distributed."""

    def __init__(self, per_second: float | None) -> None:
        """Raises InvalidRequest for a rate that is not above 0."""
        if per_second is not None and not per_second > 0:
            raise InvalidRequest(
                Parameter("rate"), f" {per_second:g}: messages a second must be above 0"
            )
        self._seconds = None if per_second is None else 1 / per_second
        self._free = time.monotonic()

    @property
    def pauses(self) -> bool:
        """Whether the next message must wait: collected messages may be sent meanwhile."""
        return self._seconds is not None and self._free + self._seconds > time.monotonic()

    async def wait(self, count: int) -> None:
        """Wait until `count` more messages are permitted."""
        if self._seconds is None or not count:
            return
        now = time.monotonic()
        self._free = max(self._free, now) + count * self._seconds
        if self._free > now:
            await asyncio.sleep(self._free - now)
