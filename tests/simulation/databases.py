"""A TubeMQ master's records on a simulated disk, after kills and power cuts: checks."""

from pathlib import Path
from typing import Any

from mq.daemons.service import CannotStart, InUse
from mq.daemons.tube.master.records import TopicControl
from mq.daemons.tube.master.storage import Changes, SqliteStorage, StorageError
from tests.simulation import identity, seams
from tests.simulation.checks import check
from tests.simulation.world import START, Machine, World

_PATH = Path("/sim/master/metadata/metadata.sqlite")
_CHANGES = 6


class _Story:
    """A machine on which a storage is opened and changed repeatedly."""

    def __init__(self, seed: int) -> None:
        identity.begin()
        self.world = World(seed)
        seams.use(self.world)
        self.machine = Machine(self.world, "master", "10.0.0.1", seams.make_disk("master"))
        self.world.machines.append(self.machine)
        self.kept = 0  # acknowledged changes
        self.begun = 0
        self.read: list[set[str]] = []
        self.refused: list[str] = []

    async def change(self) -> None:
        """Add one topic after the other until it is interrupted."""
        async with SqliteStorage(_PATH) as storage:
            for _ in range(_CHANGES):
                number = self.begun
                self.begun += 1
                one, other = TopicControl(f"a{number}"), TopicControl(f"b{number}")
                changes: Changes = {(TopicControl.kind, each.key): each for each in (one, other)}
                try:
                    await storage.keep(changes)
                except StorageError:
                    continue
                self.kept = self.begun

    async def look(self) -> None:
        async with SqliteStorage(_PATH) as storage:
            self.read.append({record.key for record in await storage.load()})

    async def look_in_vain(self) -> None:
        try:
            await self.look()
        except (InUse, CannotStart) as error:
            self.refused.append(type(error).__name__)

    def run(self, name: str, main: Any, operations: int = 0, *, power: bool = False) -> bool:
        """Run a process, killed or without power at the n-th file operation; returns whether that
        happened.
        """
        process = self.machine.start(name, main)
        process.operations_left = operations
        process.on_last_operation = self.machine.lose_power if power else process.kill
        self.world.run(self.world.now + 30.0, lambda: not process.is_alive)
        if not self.machine.has_power:
            self.machine.boot()
        return not process.has_returned


def _crash(operations: int, *, power: bool, seed: int) -> tuple[bool, list[str]]:
    """Whether there was a crash, and the problems after it."""
    story = _Story(seed)
    try:
        was_ended = story.run("first", story.change, operations, power=power)
        story.run("second", story.look)
    finally:
        seams.use(None)
    found, problems = story.read[0], []
    for number in range(story.begun):
        halves = {f"a{number}", f"b{number}"} & found
        if len(halves) == 1:
            problems.append(f"half of change {number} is there")
        if number < story.kept and not halves:
            problems.append(f"change {number} of {story.kept} kept is not there")
    return was_ended, [f"at {operations}, seed {seed}: {text}" for text in problems]


@check
def records_survive() -> dict[str, Any]:
    """A kill at each file operation, and power cuts with different results."""
    crashes, problems, operations = 0, list[str](), 0
    is_reached = True
    while is_reached:
        operations += 1
        is_reached, found = _crash(operations, power=False, seed=1)
        problems += found
        for seed in range(8):
            problems += _crash(operations, power=True, seed=seed)[1]
        crashes += is_reached
    return {"crashes": crashes, "problems": problems}


@check
def records_have_one_master() -> dict[str, Any]:
    """A second process finds the database in use while the first one is alive."""
    story = _Story(1)
    try:
        first = story.machine.start("first", story.change)
        story.world.run(START + 0.01)
        story.run("second", story.look_in_vain)
        story.world.run(story.world.now + 30.0, lambda: not first.is_alive)
        story.run("third", story.look)
    finally:
        seams.use(None)
    return {"refused": story.refused, "found": len(story.read[-1])}
