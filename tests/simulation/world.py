"""World: the time of a simulation, the order of its events, and its processes.

All processes of all machines run in one thread. Each process has an event loop (loop.py) in a
greenlet, and one more greenlet for each thread that it starts. A blocking call switches to the
world, which continues with the next due event. Time passes only between two such steps.

Events are written to a trace: a checksum of everything, so that two runs can be compared, and lines
for readers.

Randomness comes in many streams, each named after its user: a process, a disk, a direction between
two machines, a fault. So leaving out a fault changes only what the fault affected. That makes a
plan of faults reducible.
"""

import asyncio
import asyncio.events
import heapq
import random
import zlib
from collections.abc import Callable, Coroutine
from enum import Enum
from itertools import count
from struct import Struct
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet

if TYPE_CHECKING:
    from tests.simulation.disk import Disk

# The time of day at the start of a simulation: 2026-01-01T00:00:00Z.
EPOCH = 1_767_225_600.0
# The start value of monotonic clocks; times in traces count from it.
START = 1000.0
# Seconds that pass on average between two steps of one process.
STEP = (0.000_005, 0.000_060)
_LEAST_STEP, _STEP_SPAN = STEP[0], STEP[1] - STEP[0]

Work = Callable[[], object]
# A time, a sequence number and the work, None after cancellation. A list, because each seed has
# tens of thousands of them, and a heap compares lists fast.
Event = list[Any]

_pack = Struct("<qd").pack
_crc32 = zlib.crc32


class Stuck(Exception):
    """Nothing is left to do, or too much was done, before the end of a scenario."""


class State(Enum):
    """The state of a process."""

    running = "running"
    stopped = "stopped"  # by SIGSTOP
    ended = "ended"


class Trace:
    """The recorded events. `checksum` covers all; `lines` are for readers."""

    def __init__(self) -> None:
        self.checksum = 0
        self.count = 0
        self.lines: list[str] = []
        self.details: list[tuple[int, str]] = []  # after this number of lines

    def note(self, text: str) -> None:
        """Record an event without a line."""
        self.count += 1
        self.checksum = zlib.crc32(text.encode(), self.checksum)

    def tell(self, now: float, who: str, text: str) -> None:
        line = f"{now - START:12.6f} {who:<14} {text}"
        self.note(line)
        self.lines.append(line)

    def detail(self, now: float, who: str, text: str) -> None:
        """Add a line that is shown only if a problem names its subject."""
        self.note(text)
        self.details.append((len(self.lines), f"{now - START:12.6f} {who:<14} {text}"))


class Machine:
    """A host: one address, one disk, one clock, some processes."""

    def __init__(self, world: "World", name: str, address: str, disk: "Disk") -> None:
        self.world = world
        self.name = name
        self.address = address
        self.disk = disk
        self.boots = 1
        self.starts = 0  # number of processes started
        self._ahead = 0.0  # seconds by which its clock was ahead at `_since`
        self._since = 0.0
        self._drift = 0.0  # seconds that its clock gains each second
        disk.random = world.stream(f"disk of {name}")
        self.has_power = True
        self.processes: list[Process] = []

    @property
    def wall_offset(self) -> float:
        """Seconds by which its clock is ahead."""
        return self._ahead + self._drift * (self.world.now - self._since)

    @property
    def is_clock_right(self) -> bool:
        """Whether its clock was never set."""
        return self._since == 0.0

    def set_clock(self, *, by: float = 0.0, drift: float | None = None) -> None:
        """Let its clock jump by seconds, and from now on gain ``drift`` seconds a second."""
        self._ahead = self.wall_offset + by
        self._since = self.world.now
        if drift is not None:
            self._drift = drift

    def start(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> "Process":
        """Start a process that runs a coroutine."""
        self.starts += 1
        process = Process(self, name)
        self.processes.append(process)
        process.loop.start(main)
        return process

    def lose_power(self) -> None:
        """End all processes at once; the disk keeps what a power cut leaves. Peers are not
        notified.
        """
        self.has_power = False
        self.world.tell(self.name, "loses power")
        # Decide about unsynced data before leaving a process that may be running.
        self.disk.lose_power()
        for process in list(self.processes):
            if process is not self.world.current:
                process.end(tells_peers=False)
        for process in list(self.processes):
            process.end(tells_peers=False)

    def boot(self) -> None:
        """Have power again, with nothing running and no known connection."""
        self.has_power = True
        self.boots += 1
        self.world.network.booted(self)
        self.world.tell(self.name, "boots")


class Process:
    """A process of a machine, with its loop and its threads."""

    def __init__(self, machine: Machine, name: str) -> None:
        from tests.simulation.loop import SimulatedLoop

        self.world = world = machine.world
        self.machine = machine
        self.name = name
        self.number = next(world.numbers)
        self.state = State.running
        start = f"start {machine.starts} on {machine.name}"
        self.random = world.stream(start)  # randomness of the program
        self.steps = world.stream(f"steps of {start}")  # duration of its steps
        self.started = world.now
        self.exit: BaseException | None = None
        self.has_returned = False  # whether it has finished its work
        # Die at the n-th file operation from now on; 0: never.
        self.operations_left = 0
        self.on_last_operation: Work = self.kill
        self.on_end: Work = lambda: None
        self._late: list[Work] = []  # events that arrived while it was stopped
        self.loop: SimulatedLoop = SimulatedLoop(self)

    def __repr__(self) -> str:
        return f"<{self.name} {self.state.value}>"

    @property
    def is_alive(self) -> bool:
        return self.state is not State.ended

    def kill(self) -> None:
        """SIGKILL."""
        if self.is_alive:
            self.world.tell(self.name, "is killed")
            self.end()

    def end(self, *, tells_peers: bool = True) -> None:
        """End it; the kernel closes its open files and connections."""
        if not self.is_alive:
            return
        self.state = State.ended
        # Coroutines that are collected would run their `finally`, which a killed process does not.
        self.world.graveyard.append(self.loop)
        self.machine.processes.remove(self)
        self.machine.disk.close_all_of(self)
        self.world.network.end_all_of(self, tells_peers=tells_peers)
        self._late.clear()
        self.on_end()
        if self.world.current is self:  # during its own step
            self.world.leave()

    def stop(self) -> None:
        """SIGSTOP: nothing of it runs until `go_on`."""
        if self.state is State.running:
            self.state = State.stopped
            self.world.tell(self.name, "is stopped")

    def go_on(self) -> None:
        """SIGCONT."""
        if self.state is State.stopped:
            self.state = State.running
            self.world.tell(self.name, "goes on")
            late, self._late = self._late, []
            for work in late:
                self.world.soon(work, self.steps)

    def enter(self, thread: greenlet) -> None:
        """Run one of its greenlets until that switches back. Called by the world only."""
        if self.state is State.ended:
            return
        if self.state is State.stopped:
            self._late.append(lambda: self.enter(thread))
            return
        self.world.enter(self, thread)

    def block(self, seconds: float) -> None:
        """Make the calling greenlet wait; others of the process run."""
        thread = getcurrent()
        self.world.at(self.world.now + seconds, lambda: self.enter(thread))
        self.world.leave()

    def wait_for(self, waiters: list[greenlet]) -> None:
        """Make the calling greenlet wait in a list until another one removes and wakes it."""
        waiters.append(getcurrent())
        self.world.leave()

    def wake(self, thread: greenlet) -> None:
        self.world.soon(lambda: self.enter(thread), self.steps)

    def run_in_thread(self, work: Work, delay: float) -> None:
        """Start a thread."""
        thread = greenlet(lambda: self._run_thread(work))
        self.world.keep.append(thread)
        self.world.at(self.world.now + delay, lambda: self.enter(thread))

    def _run_thread(self, work: Work) -> None:
        work()
        self.world.leave_for_good()


class World:
    """Everything, from one seed."""

    def __init__(self, seed: int | str, noise: int = 0) -> None:
        from tests.simulation.network import Network

        self.seed = seed
        self.noise = noise
        self.random = self.stream("world")
        self.now = START
        self.trace = Trace()
        self.numbers = count(1)
        self.current: Process | None = None
        self.machines: list[Machine] = []
        self.network = Network(self)
        self.steps = 0
        self.faults: dict[str, int] = {}
        self.situations: dict[str, int] = {}
        # Greenlets that may never run again; if they were collected during a run, their `finally`
        # would run.
        self.keep: list[greenlet] = []
        self.graveyard: list[object] = []
        self._events: list[Event] = []  # a heap, by time, then by order of request
        self._order = count()
        self._until = START  # `run` lets time pass until then
        self._hub: greenlet | None = None

    def stream(self, name: str, *, is_noisy: bool = True) -> random.Random:
        """A random stream for one purpose, derived from the seed and a name.

        Another ``noise`` changes all noisy streams: the same story with other delays.
        """
        noise = f"/noise {self.noise}" if is_noisy and self.noise else ""
        return random.Random(f"{self.seed}{noise}/{name}")

    def tell(self, who: str, text: str) -> None:
        self.trace.tell(self.now, who, text)

    def detail(self, who: str, text: str) -> None:
        """Record a detail, such as a single message: a reader sees it if a problem names the
        message.
        """
        self.trace.detail(self.now, who, text)

    def injected(self, fault: str) -> None:
        """Count a fault for the report."""
        self.faults[fault] = self.faults.get(fault, 0) + 1

    def met(self, situation: str) -> None:
        """Count a situation that is not a fault but worth knowing."""
        self.situations[situation] = self.situations.get(situation, 0) + 1

    def at(self, when: float, work: Work) -> Event:
        """Do something at a time. Events of one time run in the order of their requests."""
        event = [when if when > self.now else self.now, next(self._order), work]
        heapq.heappush(self._events, event)
        return event

    @staticmethod
    def cancel(event: Event) -> None:
        event[2] = None

    def soon(self, work: Work, chance: random.Random) -> None:
        """Do something at once, but not within the requesting step."""
        self.at(self.now + step(chance), work)

    def run(self, until: float, is_done: Callable[[], bool] | None = None) -> None:
        """Let time pass up to a moment, or until a condition holds.

        Raises Stuck if no event is left.
        """
        self._hub = getcurrent()
        self._until = until
        events, pop = self._events, heapq.heappop
        while is_done is None or not is_done():
            if not events:
                raise Stuck("no event is left")
            if events[0][0] > until:
                self.now = max(self.now, until)
                return
            when, _, work = pop(events)
            if work is not None:
                self.now = when
                self.steps += 1
                work()

    def goes_on(self, process: Process, when: float) -> bool:
        """Whether a running process may continue directly, because it is the next one due.

        The time is then ``when``, as if the process had been left and entered.
        """
        events = self._events
        while events and events[0][2] is None:
            heapq.heappop(events)
        if (events and events[0][0] <= when) or when > self._until:
            return False
        self.now = when
        self.steps += 1
        trace = self.trace
        trace.checksum = _crc32(_pack(process.number, when), trace.checksum)
        return True

    def _note_entry(self, process: Process) -> None:
        trace = self.trace
        trace.checksum = _crc32(_pack(process.number, self.now), trace.checksum)

    def enter(self, process: Process, thread: greenlet) -> None:
        """Switch to a greenlet of a process. It returns through `leave` or `give_way`."""
        before, self.current = self.current, process
        self._note_entry(process)
        thread.switch()
        asyncio.events._set_running_loop(None)
        self.current = before

    def give_way(self) -> None:
        """Switch to the world from a greenlet without a running loop."""
        assert self._hub is not None
        self._hub.switch()

    def leave(self) -> None:
        """Switch to the world from a greenlet of a process."""
        process, loop = self.current, asyncio.events._get_running_loop()
        self.give_way()
        assert self.current is process, "another process was entered"
        asyncio.events._set_running_loop(loop)

    def leave_for_good(self) -> None:
        self.give_way()
        raise AssertionError("a thread that had ended went on")


def step(chance: random.Random) -> float:
    """Seconds that pass between two steps of a process."""
    return _LEAST_STEP + _STEP_SPAN * chance.random()
