"""Groups that were deleted with their offsets: nothing that they popped is redelivered to a group
that is created again under the same name.

The end of each of their check points is written, so that a kill does not restore them. A group may
have very many: the deletion only marks them; the caller that awaits it writes the ends, some in
each turn of the event loop. Ends that the store refuses are retried until it accepts them.
"""

import asyncio
import errno
import logging
from collections.abc import Iterable, Iterator
from itertools import islice, starmap
from typing import Protocol

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.pop.records import PopCheckPoint
from mq.daemons.broker.store import ConsumeQueue, StoreRefused

log = logging.getLogger(__name__)

_AT_ONCE = 256  # ends written in one turn of the event loop


class Reading(Protocol):
    """A revive queue, and the position of its next unread entry."""

    queue: ConsumeQueue
    position: int

    def wake(self) -> None: ...


class Points(Protocol):
    """The table of all check points."""

    def end(self, point: PopCheckPoint) -> None: ...

    def appended(self) -> dict[Reading, int]: ...


def _is_unread(revive: Reading, upto: int) -> bool:
    """Whether entries before an offset are still to be read. Refused records do not count, and
    nothing is read before the start.
    """
    queue = revive.queue
    return revive in queue.waiting and revive.position < min(upto, queue.appended)


class DeletedGroups:
    """The check points of deleted groups, until each has ended."""

    def __init__(self, settings: BrokerSettings, points: Points) -> None:
        self._settings = settings
        self._points = points
        self._forgotten: dict[PopCheckPoint, None] = {}
        # The ends of the revive queues when a check point was last forgotten or ended.
        self._upto: dict[Reading, int] = {}
        self.progress = asyncio.Event()  # set when a record of the revive topic was read or refused

    def begin(self, points: Iterable[PopCheckPoint]) -> None:
        """Redeliver nothing of these check points; `write_ends` or `end_some` writes their ends."""
        for point in points:
            point.is_group_deleted = True
            self._forgotten[point] = None
        self._upto = self._points.appended()

    def ended(self, point: PopCheckPoint) -> None:
        """Note that a check point has ended or was refused."""
        self._forgotten.pop(point, None)

    def clear(self) -> None:
        self._forgotten.clear()

    async def write_ends(self) -> None:
        """Write the ends, and wait until they, and the records in flight when a group was deleted,
        are read or refused.

        If a start read such a record for the first time, it would advance a new group of that name
        past messages. Raises OSError if a record cannot be written, or takes too long, because it
        is not flushed or no slave has it.
        """
        points = list(self._forgotten)
        for first in range(0, len(points), _AT_ONCE):
            self._end(points[first : first + _AT_ONCE])
            await asyncio.sleep(0)
        upto = self._upto
        try:
            async with asyncio.timeout(self._settings.store.sync_flush_timeout / 1000):
                while any(starmap(_is_unread, upto.items())):
                    self.progress.clear()
                    await self.progress.wait()
        except TimeoutError:  # an OSError without a text
            if any(starmap(_is_unread, upto.items())):
                raise OSError(
                    errno.EIO, "check points of the deleted group are not stored yet"
                ) from None
        if any(self._unended()):
            raise OSError(errno.EIO, "check points of the deleted group could not be ended")

    def end_some(self) -> None:
        """Write some of the ends that could not be written before."""
        try:
            self._end(list(islice(self._unended(), _AT_ONCE)))
        except OSError as error:
            log.warning("%s", error.strerror, extra={"failure": "revive"})

    def _unended(self) -> Iterator[PopCheckPoint]:
        return (point for point in self._forgotten if not point.is_reviving)

    def _end(self, points: list[PopCheckPoint]) -> None:
        """Write the ends of check points that have not ended meanwhile. Raises OSError."""
        for point in points:
            if point.is_reviving or point not in self._forgotten:
                continue
            try:
                # If it is refused later, it stays in _forgotten and is retried.
                self._points.end(point)
            except (StoreRefused, OSError) as error:
                raise OSError(
                    errno.EIO, f"check points of group {point.group} end later: {error}"
                ) from error
        if points:
            self._upto = self._points.appended()
