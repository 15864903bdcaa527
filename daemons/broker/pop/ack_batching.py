"""Batches acknowledgements that consumers send one by one, and writes each batch as one record.

Each acknowledgement names one message. Those of one check point that arrive in one turn of the
event loop become one record of the revive topic, as if a client had sent them as a batch, because
the record costs more than everything else of an acknowledgement. They are written with the other
records of that turn.
"""

import logging
from typing import NamedTuple

from mq.daemons.broker.pop.check_points import PopCheckPoints
from mq.daemons.broker.pop.records import Key, PopCheckPoint
from mq.daemons.broker.store import Appender, OnStored, StoreRefused, call
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

_MAX_BATCH = 256  # messages of one record: a pop delivers 32, a made-up receipt may name more


class _BatchKey(NamedTuple):
    """The fields that the acknowledgements of one record share; ``due`` in ms."""

    key: Key
    revive_queue_id: int
    due: int


class _AckBatch(NamedTuple):
    """The acknowledgements of one key: offsets in order, waiting callbacks, and the check point if
    known.
    """

    offsets: dict[int, None]
    waiting: list[OnStored]
    point: PopCheckPoint | None


class AckBatcher:
    """Collects the acknowledgements of a turn, and writes them at its end."""

    def __init__(self, points: PopCheckPoints, appender: Appender) -> None:
        self._points = points
        self._appender = appender
        self._gathered: dict[_BatchKey, _AckBatch] = {}
        appender.before_turn_ends.append(self._write_all)

    def acknowledge(
        self, key: Key, offset: int, revive_queue_id: int, due: int, on_stored: OnStored
    ) -> None:
        """Record in this turn that a message was consumed.

        As `PopCheckPoints.acknowledge`, but every refusal is passed to ``on_stored``.
        """
        place = _BatchKey(key, revive_queue_id, due)
        batch = self._gathered.get(place)
        if batch is None:
            self._appender.open_turn()
            batch = self._gathered[place] = _AckBatch({}, [], self._points.known(key))
            if batch.point is not None:  # keeps it from being revived meanwhile
                batch.point.acks_in_flight += 1
        if batch.point is not None and offset not in batch.offsets:
            batch.point.put_acks((offset,))
        batch.offsets[offset] = None
        batch.waiting.append(on_stored)
        if len(batch.waiting) >= _MAX_BATCH:
            del self._gathered[place]
            self._write(place, batch)

    def _write_all(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for place, batch in gathered.items():
            self._write(place, batch)

    def _write(self, place: _BatchKey, batch: _AckBatch) -> None:
        """Write the acknowledgements of one key. Raises nothing: errors go to the callbacks."""
        offsets, waiting, point = list(batch.offsets), batch.waiting, batch.point
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
            log.exception("cannot write acknowledgements", extra={"failure": "revive"})
            remark = f"cannot write the acknowledgement: {type(error).__name__}: {error}"
            refusal = StoreRefused(ResponseCode.SYSTEM_ERROR, remark)
        if point is not None:  # a written record is counted when it is read
            point.acks_in_flight -= 1
            point.take_acks_back(offsets)
        if refusal is not None:
            call(waiting, refusal)
