"""Groups that were deleted with their offsets: nothing that they had popped comes again to a group
of that name that is made anew.

It is written down that each of their check points has ended, so that a kill does not bring them
back. A group may have very many: a deletion marks them, and who awaits it writes the ends, some in
each turn of the loop. Those that the store does not take now are tried again until it does.
"""

import asyncio
import errno
import logging
from collections.abc import Iterable, Iterator
from itertools import islice, starmap
from typing import Protocol

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.pop.records import PopCheckPoint
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.errors import StoreRefused

log = logging.getLogger(__name__)

_AT_ONCE = 256  # ends that are written in one turn of the loop


class Reading(Protocol):
    """A revive queue, and the next of its entries to be read."""

    queue: ConsumeQueue
    position: int

    def wake(self) -> None: ...


class Points(Protocol):
    """The table of all check points."""

    def end(self, point: PopCheckPoint) -> None: ...

    def appended(self) -> dict[Reading, int]: ...


def _is_under_way(revive: Reading, upto: int) -> bool:
    """Whether something before an entry is still to be read: what is refused is not there any
    more, and nothing is read before the start."""
    queue = revive.queue
    return revive in queue.waiting and revive.position < min(upto, queue.appended)


class DeletedGroups:
    """The check points of deleted groups, until each has ended."""

    def __init__(self, settings: BrokerSettings, points: Points) -> None:
        self._settings = settings
        self._points = points
        self._forgotten: dict[PopCheckPoint, None] = {}
        # Up to where the revive queues went when one of them was forgotten or ended the last time.
        self._upto: dict[Reading, int] = {}
        self.settled = asyncio.Event()  # something of the revive topic was read, or refused

    def begin(self, points: Iterable[PopCheckPoint]) -> None:
        """Give nothing of these again; `settle`, or `end_some`, writes it down."""
        for point in points:
            point.is_forgotten = True
            self._forgotten[point] = None
        self._upto = self._points.appended()

    def gone(self, point: PopCheckPoint) -> None:
        """A check point has ended, or was refused."""
        self._forgotten.pop(point, None)

    def clear(self) -> None:
        self._forgotten.clear()

    async def settle(self) -> None:
        """Write the ends, and wait until they, and what was on its way when a group was deleted,
        are read, or refused.

        A start that read that for the first time would move the group, made anew, behind it. Raises
        OSError where something cannot be written, or takes too long: it may not be flushed, or no
        slave may have it.
        """
        points = list(self._forgotten)
        for first in range(0, len(points), _AT_ONCE):
            self._end(points[first : first + _AT_ONCE])
            await asyncio.sleep(0)
        upto = self._upto
        try:
            async with asyncio.timeout(self._settings.store.sync_flush_timeout / 1000):
                while any(starmap(_is_under_way, upto.items())):
                    self.settled.clear()
                    await self.settled.wait()
        except TimeoutError:  # an OSError without a text
            if any(starmap(_is_under_way, upto.items())):
                raise OSError(errno.EIO, "what was popped before is not stored yet") from None
        if any(self._unended()):
            raise OSError(errno.EIO, "what was popped before could not be ended")

    def end_some(self) -> None:
        """Write some of the ends that could not be written before."""
        try:
            self._end(list(islice(self._unended(), _AT_ONCE)))
        except OSError as error:
            log.warning("%s", error.strerror, extra={"failure": "revive"})

    def _unended(self) -> Iterator[PopCheckPoint]:
        return (point for point in self._forgotten if not point.is_reviving)

    def _end(self, points: list[PopCheckPoint]) -> None:
        """Write the ends of those that have not ended meanwhile. Raises OSError."""
        for point in points:
            if point.is_reviving or point not in self._forgotten:
                continue
            try:
                # One that is refused later stays here to be tried again.
                self._points.end(point)
            except (StoreRefused, OSError) as error:
                raise OSError(
                    errno.EIO, f"check points of group {point.group} end later: {error}"
                ) from error
        if points:
            self._upto = self._points.appended()
