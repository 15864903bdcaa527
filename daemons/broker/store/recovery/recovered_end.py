"""The recovered end: the end of the log at the last recovery that may have lost messages.

A client that remembers a larger offset may have seen lost messages (`Checkpoint.recovered_end`).
"""

import logging
from collections.abc import Callable

from mq.client.machine import files
from mq.daemons.broker.store.checkpoint import Checkpoint
from mq.daemons.broker.store.recovery.recovery import Report

log = logging.getLogger(__name__)


def note_recovered_end(
    checkpoint: Checkpoint, report: Report, end: int, is_taken_over: Callable[[], bool]
) -> None:
    """Save the current end of the log, for later starts, if the log may have been longer.

    ``is_taken_over`` returns whether another broker stored the newest message, in which case the
    log may have been longer, too. A kill alone loses nothing, so the known recovered end stays. It
    is saved before the store is marked as running, because a start after a kill of this process no
    longer notices the power failure. A full disk alone does not prevent the start: the next
    checkpoint saves the value. Raises OSError.
    """
    known = checkpoint.recovered_end
    is_cut = report.machine_crashed or report.damages or (known is not None and known > end)
    is_news = report.crashed and known is None
    if is_cut or is_news or is_taken_over():
        checkpoint.recovered_end = end
    if checkpoint.recovered_end == known:
        return
    try:
        checkpoint.save()
    except OSError as error:
        if error.errno not in files.FULL:
            raise
        log.error("cannot write the checkpoint: %s; the next one has the recovered end", error)
