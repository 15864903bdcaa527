"""Stores of the Java broker (tests/vectors) on a simulated disk."""

import os
import stat
import tarfile
from pathlib import Path

from mq.daemons.broker.store import layout
from mq.daemons.broker.store_config import MessageStoreConfig
from tests.simulation.crash_points import model
from tests.simulation.crash_points.machine import NAME
from tests.simulation.crash_points.store import Ledger, opened
from tests.simulation.crash_points.workloads import ALL, Workload
from tests.simulation.disk import Descriptors, Disk
from tests.simulation.image import Image
from tests.simulation.world import World
from tests.system.ledger import QUEUES, TOPIC
from tests.vectors.capture_store import MESSAGES, SIZE

VECTORS = Path(__file__).parents[2] / "vectors"
# Settings of the Java broker whose names or defaults differ here.
_SIZES = {
    "mapped_file_size_commit_log": 8192,
    "mapped_file_size_consume_queue": 60,
    "max_hash_slot_num": 10,
    "max_index_num": 40,
}


def image(archive: Path) -> Image:
    """A disk that holds a store, fully synced."""
    disk = Disk(World("java"), NAME, Descriptors())
    disk.mkdir("store")
    with tarfile.open(archive) as members:
        for member in members:
            if member.isdir():
                disk.mkdir(f"store/{member.name}")
                continue
            file = members.extractfile(member)
            assert file is not None
            number = disk.open(f"store/{member.name}", os.O_WRONLY | os.O_CREAT, 0o644)
            opened_file = disk.descriptors.open[number][1]
            data = file.read()
            disk.ftruncate(opened_file, len(data))
            disk.pwrite(opened_file, data.rstrip(b"\0"), 0)
    disk.lose_power(lambda item, at: True)  # everything is on the disk
    return Image.of(disk)


def events(archive: Path) -> list[model.Event]:
    """The messages that the Java broker acknowledged, in the places of its queues."""
    files = image(archive).disk(World("java"), Descriptors()).files()
    entries: dict[tuple[int, int], tuple[int, int]] = {}
    for path, inode in files:
        part, *folders = path.removeprefix("store/").split("/")
        if part != "consumequeue" or stat.S_ISDIR(inode.mode):
            continue
        topic, queue_id, name = folders
        start = int(name) // layout.ENTRY_SIZE
        for index, (physical, size, _) in enumerate(layout.ENTRY.iter_unpack(inode.content())):
            if topic == TOPIC and size:
                entries[int(queue_id), start + index] = physical, physical + size
    found: list[model.Event] = []
    for number in range(MESSAGES):
        key = f"m{number}"
        place = (TOPIC, number % QUEUES, number // QUEUES)
        begin, end = entries[place[1:]]
        body = key.encode().ljust(SIZE, b".")
        message = model.Message(number + 1, place, begin, end, body, key)
        found += (model.Appended(message), model.Stored(message.number), model.Flushed(end))
    return found


async def _go_on(ledger: Ledger, config: MessageStoreConfig) -> None:
    """Start, add messages, stop, and start again."""
    for _ in range(2):
        async with opened(ledger, config) as life:
            for number in range(4):
                await life.put(TOPIC, number % QUEUES, size=400)
            await life.store.checkpointer.checkpoint()
            await life.put(TOPIC, 1)


for _archive in sorted(VECTORS.glob("*/store-*.tar.xz")):
    _name = f"java-{_archive.parent.name}-{_archive.name.split('.')[0].removeprefix('store-')}"
    ALL[_name] = Workload(_name, _go_on, _SIZES, _archive)
