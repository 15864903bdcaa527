"""Streams of events to browsers (server-sent events), counted, and ended when the daemon stops."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
from starlette.responses import StreamingResponse

from mq.daemons.console.api.values import plain
from mq.daemons.console.problems import Refused, problem_of
from mq.daemons.console.route import Event

log = logging.getLogger(__name__)

MOST_OF_USER = 4
MOST = 50
PING_SECONDS = 15.0  # proxies close connections without data for a minute
RETRY_MILLIS = 3000
END_SECONDS = 0.3  # for streams to clean up when the daemon stops


class Streams:
    """The open streams. ``stop`` ends them all and prevents new ones."""

    def __init__(self) -> None:
        self.open = 0
        self.turned_away = 0
        self._of_user: Counter[str] = Counter()
        self._stopping = asyncio.Event()
        self._ending: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """End all streams."""
        self._stopping.set()

    async def wait_ended(self) -> None:
        """Wait within a limit until the streams have cleaned up: the daemon has to stop even if a
        broker
        does not answer."""
        for _ in range(2):  # the second time for cancelled ones
            if self._ending:
                _done, late = await asyncio.wait(set(self._ending), timeout=END_SECONDS)
                for task in late:
                    task.cancel()
        if self._ending:
            log.warning("%d streams did not end", len(self._ending))

    def take(self, user: str) -> None:
        """Count one more stream of a user. Raises Refused if there are too many."""
        if self._stopping.is_set():
            raise Refused(503, "the console is stopping")
        if self.open >= MOST or self._of_user[user] >= MOST_OF_USER:
            self.turned_away += 1
            raise Refused(429, "too many live pages of this user, or of all users")
        self.open += 1
        self._of_user[user] += 1

    def give_back(self, user: str) -> None:
        """Count one less."""
        self.open -= 1
        self._of_user[user] -= 1
        if not self._of_user[user]:
            del self._of_user[user]

    def response(
        self, events: AsyncIterator[Event], user: str, id: str, allowed: Callable[[], bool]
    ) -> StreamingResponse:
        """Return the response that sends ``events`` as long as ``allowed`` is true.

        Raises Refused if there are too many.
        """
        self.take(user)
        return _Response(self._lines(events, id, allowed), lambda: self.give_back(user))

    async def _lines(
        self, events: AsyncIterator[Event], id: str, allowed: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        yield b"retry: %d\n\n" % RETRY_MILLIS
        stopping = asyncio.create_task(self._stopping.wait())
        following: asyncio.Task[Event] | None = None
        try:
            while allowed():
                if following is None:
                    following = asyncio.create_task(_next(events))
                both: set[asyncio.Task[Any]] = {following, stopping}
                await asyncio.wait(
                    both,
                    timeout=PING_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if stopping.done():
                    return
                if not following.done():
                    yield b": ping\n\n"
                    continue
                event, following = await following, None
                if allowed():  # it may have been waited for a long time
                    yield written(event)
            yield written(Event("ended", {"reason": "session"}))
        except StopAsyncIteration:
            yield written(Event("ended", {"reason": "end"}))
        except Exception as error:
            problem = problem_of(error, id)
            yield written(Event("failed", {"error": problem.line, "id": problem.id}))
        finally:
            stopping.cancel()
            # The server is cancelled repeatedly when a browser disconnects; the cleanup after the
            # events must not be.
            ending = asyncio.create_task(_end(events, following))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            await asyncio.wait({ending})


async def _end(events: AsyncIterator[Event], following: "asyncio.Task[Event] | None") -> None:
    """Let a generator of events finish."""
    if following is not None:
        following.cancel()
        await asyncio.wait({following})
    close = getattr(events, "aclose", None)
    if close is not None:
        try:
            await close()
        except Exception:
            log.error("a stream failed at its end", exc_info=True)


async def _next(events: AsyncIterator[Event]) -> Event:
    return await anext(events)


class _Response(StreamingResponse):
    """A stream that is counted until it has ended in any way, even before its start."""

    media_type = "text/event-stream"

    def __init__(self, lines: AsyncIterator[bytes], done: Callable[[], None]) -> None:
        super().__init__(lines, headers={"X-Accel-Buffering": "no"})
        self._lines = lines
        self._done = done

    async def __call__(self, scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._done()
            await self._lines.aclose()  # type: ignore[attr-defined]


def written(event: Event) -> bytes:
    """Return an event in wire format. JSON has no line feeds, so it is one line."""
    name = "".join(c for c in event.name if c.isalnum() or c in "-_")
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(plain(event.data)))
