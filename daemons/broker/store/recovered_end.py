"""The recovered end: the end of the log at the last recovery that may have lost messages.

A client that remembers a larger offset may have seen lost messages (`Checkpoint.recovered_end`).
"""

import logging
from collections.abc import Callable

from mq.client.machine import files
from mq.daemons.broker.store.checkpoint import Checkpoint
from mq.daemons.broker.store.recovery import Report

log = logging.getLogger(__name__)


def note_recovered_end(
    checkpoint: Checkpoint, report: Report, end: int, is_taken_over: Callable[[], bool]
) -> None:
    """Remember, for the starts to come, where the log ends now if it may have ended later.

    It may also have where what came last was another broker's: `is_taken_over`. A kill alone takes
    nothing: what was known before it stays. On the disk before the store is marked as running, for
    a start behind a kill of this one sees no power cut any more. Only a full disk is no reason not
    to serve what there is: the next checkpoint has it. Raises OSError.
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
        log.error("the checkpoint cannot be written now: %s", error)
