"""Deletion of old files of a store: whole ones, oldest first, never the last or one in use."""

import asyncio
import logging

from mq.client.machine import files
from mq.daemons.tube.broker.store.segments import Segment, Segments
from mq.daemons.tube.broker.store.topic_store import TopicStore

log = logging.getLogger(__name__)

DEFAULT_MS = 168 * 3600 * 1000
_UNITS = {"m": 60_000, "s": 1000, "h": 3_600_000}


def kept_ms(policy: str) -> int:
    """Return the retention of a deletePolicy: `delete,168h`; also m and s, and hours without a
    unit.

    Any other text means 168 hours, as in Java (MessageStore.parseDeletePolicy).
    """
    action, comma, text = policy.partition(",")
    number, unit = (text[:-1], text[-1:]) if text[-1:] in _UNITS else (text, "h")
    if not (action and comma and number.isascii() and number.isdigit() and len(number) < 10):
        return DEFAULT_MS
    return int(number) * _UNITS[unit]


async def delete_expired(store: TopicStore, keep: int, now: int) -> int:
    """Delete files of a store last written ``keep`` ms or longer before ``now``; return their
    number.

    Files that cannot be deleted are tried again later.
    """
    deleted = 0
    for segments in (store.data, store.index):
        while not store.closed and _is_expired(segments, keep, now):
            segment = segments.detach_first()
            # A cancelled wait must not leave a file in neither state.
            task = asyncio.ensure_future(asyncio.to_thread(_delete, segments, segment))
            task.add_done_callback(lambda done, s=segments, o=segment: _settle(done, s, o))  # type: ignore[misc]
            try:
                await asyncio.shield(task)
            except OSError:
                break
            deleted += 1
    return deleted


def _is_expired(segments: Segments, keep: int, now: int) -> bool:
    first = segments.segments[0]
    return len(segments.segments) > 1 and not first.readers and now - first.modified_ms() > keep


def _delete(segments: Segments, segment: Segment) -> None:
    files.remove(segment.path)
    files.sync_folder(segments.folder)  # in their order: a gap would prevent the next start


def _settle(done: "asyncio.Task[None]", segments: Segments, segment: Segment) -> None:
    if done.cancelled() or (error := done.exception()) is None:
        log.info("deleted %s: it has expired", segment.path)
        segment.close()
        return
    log.error("%s cannot be deleted: %s", segment.path, error,
              extra={"failure": f"deleting in {segments.folder}"})  # fmt: skip
    segments.attach_first(segment)
