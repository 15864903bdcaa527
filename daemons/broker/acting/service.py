"""When a slave acts as the master of its set, and when it stops.

    begin   no living broker of the set has a lower id, and nothing has come from the master for a
            while, though a name server may have forgotten it
    end     a broker with a lower id lives, or the log of one comes, or a master says that it starts
    make    way: a master that starts asks what was delivered, so this ends before it is answered

Ending, nothing more is sent, what is on its way is waited for, the tasks are cancelled, and how far
each has come is saved: from there the master goes on.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from mq.client.machine import clock
from mq.daemons.broker.acting.escape import EscapeBridge
from mq.daemons.broker.acting.members import Members
from mq.daemons.supervision import Tasks, Work
from mq.protocol.names import MASTER_ID

log = logging.getLogger(__name__)

TICK = 0.5  # between two looks, whatever is told
# A master that has said that it starts is to register by then; else it was none.
WAY_SECONDS = 15.0
# Until what could not be begun is tried again.
BEGIN_AGAIN_SECONDS = 5.0
# Who waits for the end of it waits no longer.
END_SECONDS = 10.0


class Duty(Protocol):
    """Something that a master does and a slave does not."""

    def begin(self) -> Iterable[tuple[Work, str]]:
        """Take up where the master was; what is to be done until the end. Raises OSError, among
        others: then it has not begun, and is not ended."""

    async def finish(self) -> None:
        """Come to where one can end, with what can still be delivered, but not for long."""

    async def end(self) -> None:
        """Its tasks have ended: save how far it has come. Raises OSError."""


class ActingMaster:
    """Acts as the master when it has to: `run`, until cancelled; `stop` before that, to end well.
    ``is_acting`` says whether it does, ``began`` how often it has begun."""

    def __init__(
        self,
        own_id: int,
        members: Members,
        hears_master: Callable[[], bool],
        duties: Sequence[Duty],
        bridge: EscapeBridge | None,
        tasks: Tasks,
        on_master: Callable[[], None],
    ) -> None:
        """``hears_master`` says whether the log of a master comes; ``bridge`` is there where duties
        deliver. ``on_master`` is called when the master lives that did not before, or it is at
        another address."""
        self.is_acting = False
        self.began = 0
        self._own_id = own_id
        self._members = members
        self._hears_master = hears_master
        self._duties = duties
        self._bridge = bridge
        self._tasks = tasks
        self._running: list[asyncio.Task[None]] = []
        self._begun: list[Duty] = []
        self._left: list[Duty] = []  # that could not be begun yet
        self._again_at = 0.0  # when they are tried again, by the monotonic clock
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()
        self._way_until = 0.0
        self._on_master = on_master
        self._master: str | None = None  # the address of it
        members.changed = self._look

    async def run(self) -> None:
        try:
            while True:
                self._news.clear()
                wanted = self._is_wanted()
                if wanted and not self.is_acting:
                    self._begin()
                elif self.is_acting and not wanted:
                    await self._end()
                elif self._left and clock.monotonic() >= self._again_at:
                    self._begin_left()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK):
                        await self._news.wait()
        finally:
            if self.is_acting:
                await self._end(at_once=True)

    def _look(self) -> None:
        """Others of the set live than before."""
        before, self._master = self._master, (self._members.known or {}).get(MASTER_ID)
        if self._master is not None and self._master != before:
            self._on_master()
        self._news.set()

    def _is_wanted(self) -> bool:
        known = self._members.known
        if known is None or self._own_id not in known:  # or name servers do not know this one yet
            return False
        if any(number < self._own_id for number in known):
            if self._way_until < math.inf:
                self._way_until = 0.0  # it has come
            return False
        return clock.monotonic() >= self._way_until and not self._hears_master()

    @property
    def knows_better(self) -> bool:
        """Whether this slave may be further than the master: while it acts, and then until the
        master that starts has asked, and is seen."""
        return self.is_acting or clock.monotonic() < self._way_until

    async def make_way(self) -> None:
        """A master says that it starts: stop acting, and return when that is done."""
        await self._end_until(clock.monotonic() + WAY_SECONDS)

    async def stop(self) -> None:
        """Stop acting for good."""
        await self._end_until(math.inf)

    async def _end_until(self, moment: float) -> None:
        self._way_until = max(self._way_until, moment)
        self._news.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self._ended.wait()

    def _begin(self) -> None:
        log.warning("the master is gone: this slave acts as the master")
        self.is_acting = True
        self.began += 1
        self._ended.clear()
        if self._bridge is None:
            log.warning("what is due waits for the master (enableRemoteEscape=false)")
        else:
            self._bridge.open()
        self._left = list(self._duties)
        self._begin_left()

    def _begin_left(self) -> None:
        """Begin what is not begun. Whatever goes wrong with one duty leaves the others, and has
        that one begun later."""
        left, self._left = self._left, []
        self._again_at = clock.monotonic() + BEGIN_AGAIN_SECONDS
        for duty in left:
            try:
                works = list(duty.begin())
            except Exception as error:
                self._tasks.failed(f"acting: {type(duty).__name__}", error)
                self._left.append(duty)
                continue
            self._begun.append(duty)
            for work, name in works:
                self._running.append(self._tasks.spawn(work, f"acting: {name}"))

    async def _end(self, *, at_once: bool = False) -> None:
        """Stop. Whatever goes wrong with one duty leaves the others."""
        self._left = []
        if not at_once:
            await asyncio.gather(*(duty.finish() for duty in self._begun))
        if self._bridge is not None:
            await self._bridge.settle()
        running, self._running = self._running, []
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        begun, self._begun = self._begun, []
        for duty in reversed(begun):
            try:
                await duty.end()
            except Exception as error:
                self._tasks.failed(f"acting: {type(duty).__name__}", error)
        self.is_acting = False
        self._ended.set()
        log.warning("this slave does not act as the master any more")
