"""Several daemons under one command: started together, monitored and restarted individually,
stopped together.

Each is a process, because a daemon has one event loop, which uses one core. When this process ends
in any way, they end, too: each detects that the pipe from this process has no writer any more.
"""

import asyncio
import logging
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from mq.daemons.instances.child import Child, State
from mq.daemons.lifecycle import Lifecycle
from mq.daemons.service import EX_CONFIG, CannotStart
from mq.daemons.supervision import LONGEST_PAUSE

log = logging.getLogger(__name__)


class Instances(Lifecycle):
    """`async with Instances("brokers", commands)`: daemons in their own processes.

    ``commands`` are the command lines by name; those in ``first`` have started to serve before the
    others are started. Entering waits until each serves or has failed for the first time. Raises
    CannotStart or OSError if none serves.
    """

    def __init__(
        self, kind: str, commands: Mapping[str, Sequence[str]], first: Collection[str] = ()
    ) -> None:
        self.children: list[Child] = []
        self._kind = kind
        self._commands = commands
        self._first = first
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    async def _start(self, parts: AsyncExitStack) -> None:
        folder = parts.enter_context(tempfile.TemporaryDirectory(prefix="mq-brokers-"))
        lifeline, ours = os.pipe()
        parts.callback(os.close, lifeline)
        parts.callback(os.close, ours)
        parts.push_async_callback(self._stop)
        others = [name for name in self._commands if name not in self._first]
        for names in (self._first, others):
            await self._begin(names, Path(folder), lifeline)
        serving = any(child.state is State.SERVING for child in self.children)
        if not serving and not self._stopping:
            raise self._none_serves()

    async def _begin(self, names: Collection[str], folder: Path, lifeline: int) -> None:
        watchdog = int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6
        begun: list[tuple[Child, asyncio.Task[None]]] = []
        for name in names if not self._stopping else ():
            notices = folder / str(len(self.children))
            command = self._commands[name]
            child = Child(name, command, os.environ, notices, lifeline, watchdog)
            self.children.append(child)
            task = asyncio.create_task(self._keep(child), name=name)
            self._tasks.append(task)
            begun.append((child, task))
        for child, task in begun:
            waiting = asyncio.ensure_future(child.has_begun.wait())
            await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if task.done():
                task.result()

    async def _keep(self, child: Child) -> None:
        """Run a child; an error before it has started to serve ends entering, a later one only this
        attempt.
        """
        while True:
            try:
                return await child.keep()
            except Exception:
                if not child.has_begun.is_set():
                    raise
                log.critical("monitoring of %s failed; restarting it", child.name, exc_info=True)
                child.abort()
                await asyncio.sleep(LONGEST_PAUSE)

    def abort(self) -> None:
        """Kill all of them at once; this process ends without waiting for them."""
        for child in self.children:
            child.abort()

    def stop_starting(self) -> None:
        """Stop the started children, and start no others; entering ends when they have ended."""
        self._stopping = True
        for child in self.children:
            child.stop()

    def ready_text(self) -> str:
        return self.status_text()

    def status_text(self) -> str:
        """The number of serving children, and the state of each other one."""
        if self._stopping:
            return f"stopped before all {self._kind} have started"
        serving = [child.name for child in self.children if child.state is State.SERVING]
        others = [child for child in self.children if child.state is not State.SERVING]
        text = f"{len(serving)} of {len(self.children)} {self._kind} serve: {', '.join(serving)}"
        return text + "".join(f"; {child.name} {child.state}" for child in others)

    def reload(self) -> None:
        for child in self.children:
            child.reload()

    def state(self) -> Iterator[str]:
        """A line for each child; they log their own state."""
        for child in self.children:
            last = f", the last time it {child.last_end}" if child.last_end else ""
            yield (
                f"{child.name} {child.state}, process {child.pid}, {child.restarts} restarts{last}"
            )
            child.dump()

    def _none_serves(self) -> Exception:
        ends = ", ".join(f"{child.name} {child.last_end}" for child in self.children)
        text = f"none of the {self._kind} serves: {ends}"
        if all(child.state is State.GIVEN_UP for child in self.children):
            return CannotStart(f"{text} (status {EX_CONFIG}: settings or store)")
        return OSError(text)

    async def _stop(self) -> None:
        for child in self.children:
            child.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
