"""Helpers: processes that a daemon keeps running, as many as configured.

Each is started with a list of arguments, never by a shell, and ends with the daemon, however that
ends: it detects that the pipe from the daemon has no writer any more. One that ends is replaced,
after a pause that grows while they end soon after their start: up to two seconds for those that
have served, up to half a minute for others.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from mq.client.machine import clock
from mq.daemons.instances.child import OF_SYSTEMD
from mq.daemons.log_output import LOG_NAME
from mq.daemons.service import LIFELINE
from mq.daemons.supervision import CALM_SECONDS, FIRST_PAUSE, LONGEST_PAUSE

log = logging.getLogger(__name__)

Ticket = TypeVar("Ticket")

STOP_SECONDS = 5.0
LONGEST_PAUSE_AFTER_SERVICE = 2.0


@dataclass(eq=False)
class Helper(Generic[Ticket]):
    """One process. `ticket` is the caller's data of its start."""

    name: str
    ticket: Ticket
    process: asyncio.subprocess.Process
    began: float
    watching: "asyncio.Task[None] | None" = None


class Helpers(Generic[Ticket]):
    """The processes of one kind. `command` is the command line of one; `on_end` is called with the
    ticket of each that has ended, and returns whether it has served.
    """

    def __init__(self, kind: str, command: Sequence[str], on_end: Callable[[Ticket], bool]) -> None:
        self._kind = kind
        self._command = list(command)
        self._on_end = on_end
        self.running: dict[Helper[Ticket], None] = {}
        self.starts = 0
        self.ended = asyncio.Event()  # set when one has ended
        self._again = 0.0  # no start before this time
        self._pause = 0.0
        self._lifeline: tuple[int, int] | None = None
        self._closed = False

    @property
    def pause(self) -> float:
        """Seconds until another one may be started."""
        return max(0.0, self._again - clock.monotonic())

    async def start(self, ticket: Ticket, variables: dict[str, str]) -> bool:
        """Start one with these environment variables; returns False on failure."""
        if self._closed:
            self._on_end(ticket)
            return False
        if self._lifeline is None:
            self._lifeline = os.pipe()
        self.starts += 1
        name = f"{self._kind}-{self.starts}"
        environment = {k: v for k, v in os.environ.items() if k not in OF_SYSTEMD}
        environment |= {LIFELINE: str(self._lifeline[0]), LOG_NAME: name, **variables}
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(self._lifeline[0],),
                start_new_session=True,  # Ctrl-C is for the daemon, which ends it
            )
        except OSError as error:
            log.error("cannot start %s: %s", name, error)
            self._on_end(ticket)
            self._postpone(0.0, LONGEST_PAUSE)
            return False
        helper = Helper(name, ticket, process, clock.monotonic())
        self.running[helper] = None
        helper.watching = asyncio.get_running_loop().create_task(self._watch(helper))
        log.info("started %s: process %d", name, process.pid)
        return True

    def kill(self, helper: Helper[Ticket]) -> None:
        """Kill one at once."""
        with contextlib.suppress(ProcessLookupError):
            helper.process.kill()

    async def close(self) -> None:
        """End all of them. Idempotent."""
        self._closed = True
        helpers = list(self.running)
        for helper in helpers:
            with contextlib.suppress(ProcessLookupError):
                helper.process.terminate()
        tasks = [helper.watching for helper in helpers if helper.watching is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=STOP_SECONDS)
            for helper in list(self.running):
                self.kill(helper)
            if late:
                await asyncio.wait(late)
        if self._lifeline is not None:
            for descriptor in self._lifeline:
                os.close(descriptor)
            self._lifeline = None

    async def _watch(self, helper: Helper[Ticket]) -> None:
        status = await helper.process.wait()
        del self.running[helper]
        lived = clock.monotonic() - helper.began
        has_served = self._on_end(helper.ticket)
        if not self._closed:
            log.warning("%s ended after %.1f s: status %d", helper.name, lived, status)
            self._postpone(lived, LONGEST_PAUSE_AFTER_SERVICE if has_served else LONGEST_PAUSE)
        self.ended.set()

    def _postpone(self, lived: float, most: float) -> None:
        calm = lived >= CALM_SECONDS or not self._pause
        self._pause = FIRST_PAUSE if calm else min(2 * self._pause, most)
        self._again = clock.monotonic() + self._pause
