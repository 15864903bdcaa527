"""Runs a coroutine on a machine with a given disk, with a copy of the disk at each operation."""

import gc
import hashlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.simulation import seams
from tests.simulation.disk import Descriptors, Disk
from tests.simulation.image import Image
from tests.simulation.inode import Keeps
from tests.simulation.world import START, Machine, Stuck, World

NAME = "broker"
ROOT = f"/sim/{NAME}/store"
# Longer than any workload or start, in simulated seconds.
LIMIT = 120.0
# Worlds have cycles. Collected during a run they would execute `finally` blocks of killed code.
_WORLDS_BETWEEN_COLLECTIONS = 300
_worlds = 0


@dataclass(frozen=True)
class Point:
    """The moment before an operation, or after the last."""

    number: int  # number of finished operations
    operation: str  # the next operation
    path: str
    image: Image
    events: int  # number of events in the ledger
    now: float


@dataclass
class Run:
    """The result of a coroutine on a machine."""

    points: list[Point]
    failure: BaseException | None
    lines: list[str] = field(repr=False)
    now: float
    operations: int
    # The kinds of operations, each with its folder of the store.
    kinds: frozenset[tuple[str, str]]


class _Log(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.tell(NAME, f"{record.levelname.lower()}: {record.getMessage()}")


def run(
    image: Image | None,
    main: Callable[[], Awaitable[None]],
    events: Callable[[], int],
    *,
    boot: int = 1,
    now: float = START,
    keeps_points: bool = True,
) -> Run:
    """Run to the end, on an empty disk without an image; ``events`` counts the events so far."""
    global _worlds
    _worlds += 1
    if _worlds % _WORLDS_BETWEEN_COLLECTIONS == 0:
        gc.collect()
    world = World("crash points")
    world.now = now
    seams.use(world)
    handler = _Log(world)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        if image is None:
            disk = seams.make_disk(NAME)
        else:
            disk = seams.disks[NAME] = image.disk(world, seams.descriptors)
        return _run(world, disk, main, events, boot, keeps_points)
    finally:
        root.removeHandler(handler)
        seams.use(None)


def _run(
    world: World,
    disk: Disk,
    main: Callable[[], Awaitable[None]],
    events: Callable[[], int],
    boot: int,
    keeps_points: bool,
) -> Run:
    machine = Machine(world, NAME, "10.0.0.1", disk)
    machine.boots = boot
    world.machines.append(machine)
    points: list[Point] = []
    versions: list[int] = []

    kinds: set[tuple[str, str]] = set()

    def watch(operation: str, path: str) -> None:
        kinds.add((operation, path.split("/")[1] if "/" in path else ""))
        if not keeps_points:
            return
        done, version = events(), disk.version
        if points and (versions[-1], points[-1].events) == (version, done):
            return  # nothing has changed since the previous point
        image = points[-1].image if points and versions[-1] == version else Image.of(disk)
        versions.append(version)
        points.append(Point(disk.operations - 1, operation, path, image, done, world.now))

    async def whole() -> None:
        await main()

    disk.watch = watch
    process = machine.start(NAME, whole)
    failure: BaseException | None = None
    try:
        world.run(world.now + LIMIT, lambda: not process.is_alive)
        failure = process.exit
        if process.is_alive:
            failure = Stuck(f"it takes longer than {LIMIT:g} s")
    except Stuck as error:
        failure = error
    if keeps_points:
        disk.operations += 1
        watch("end", "")
    return Run(points, failure, world.trace.lines, world.now, disk.operations, frozenset(kinds))


def behind_power_cut(image: Image, keeps: Keeps) -> Image:
    """The content of a disk after a power cut."""
    world = World("power cut")
    disk = image.disk(world, Descriptors())
    disk.lose_power(keeps)
    return Image.of(disk)


def digest(image: Image) -> bytes:
    """Equal for two disks that cannot be distinguished, now or after a power cut."""
    summary = hashlib.blake2b(digest_size=16)
    frozen = dict(image.files)
    folders = dict(image.folders)
    seen: dict[int, int] = {}

    def add(number: int) -> None:
        if number in seen:
            summary.update(b"=%d" % seen[number])
            return
        seen[number] = len(seen)
        if number in folders:
            for name, inside in sorted(folders[number]):
                summary.update(f"/{name}\0".encode())
                add(inside)
            summary.update(b"<")
            return
        file = frozen[number]
        summary.update(b"%d:" % len(file.content))
        summary.update(file.content)
        if file.changes:
            summary.update(b"+%d:" % len(file.platter))
            summary.update(file.platter)
            for change in file.changes:
                summary.update(b"@%d:%d" % (change.position, -1 if change.data is None else 0))
                summary.update(change.data or b"")

    add(image.root)
    for one in image.names:
        summary.update(repr((one.name, one.new_name)).encode())
    return summary.digest()
