"""Acknowledgements that come one by one, as consumers send them, and are written together.

Each names one message. Those of one check point that come in one turn of the loop become one record
of the revive topic, as if a client had sent them as a batch: a record costs more than all else that
is done for an acknowledgement. They are written with what else is appended in that turn.
"""

import logging
from typing import NamedTuple

from mq.daemons.broker.pop.check_points import PopCheckPoints
from mq.daemons.broker.pop.records import Key, PopCheckPoint
from mq.daemons.broker.store.append import Appender
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.waiters import OnStored, call
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

_MOST_TOGETHER = 256  # messages of one record: a pop gives 32, a receipt that is made up names more


class _BatchKey(NamedTuple):
    """What the acknowledgements of one record have in common; ``due`` in ms."""

    key: Key
    revive_queue_id: int
    due: int


class _AckBatch(NamedTuple):
    """Those of one place: offsets in their order, who waits, and the check point if it is known."""

    offsets: dict[int, None]
    waiting: list[OnStored]
    point: PopCheckPoint | None


class AckBatcher:
    """Gathers the acknowledgements of a turn, and writes them at its end."""

    def __init__(self, points: PopCheckPoints, appender: Appender) -> None:
        self._points = points
        self._appender = appender
        self._gathered: dict[_BatchKey, _AckBatch] = {}
        appender.before_turn_ends.append(self._write_all)

    def acknowledge(
        self, key: Key, offset: int, revive_queue_id: int, due: int, on_stored: OnStored
    ) -> None:
        """Have it written in this turn that a message was consumed.

        As `PopCheckPoints.acknowledge`, but ``on_stored`` is told of each refusal.
        """
        place = _BatchKey(key, revive_queue_id, due)
        together = self._gathered.get(place)
        if together is None:
            self._appender.open_turn()
            together = self._gathered[place] = _AckBatch({}, [], self._points.known(key))
            if together.point is not None:  # it is not revived meanwhile
                together.point.acks_under_way += 1
        if together.point is not None and offset not in together.offsets:
            together.point.put_acks((offset,))
        together.offsets[offset] = None
        together.waiting.append(on_stored)
        if len(together.waiting) >= _MOST_TOGETHER:
            del self._gathered[place]
            self._write(place, together)

    def _write_all(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for place, together in gathered.items():
            self._write(place, together)

    def _write(self, place: _BatchKey, together: _AckBatch) -> None:
        """Write those of one place. Nothing is raised: who waits is told."""
        offsets, waiting, point = list(together.offsets), together.waiting, together.point
        refusal: StoreRefused | None = None
        try:
            self._points.acknowledge(
                place.key,
                offsets,
                place.revive_queue_id,
                place.due,
                lambda refusal: call(waiting, refusal),
            )
        except StoreRefused as error:
            refusal = error
        except Exception as error:
            log.exception("acknowledgements cannot be written", extra={"failure": "revive"})
            remark = f"the acknowledgement cannot be written: {type(error).__name__}: {error}"
            refusal = StoreRefused(ResponseCode.SYSTEM_ERROR, remark)
        if point is not None:  # what is written counts by itself
            point.acks_under_way -= 1
            point.take_acks_back(offsets)
        if refusal is not None:
            call(waiting, refusal)
