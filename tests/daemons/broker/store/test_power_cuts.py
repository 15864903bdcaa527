"""Power failures, kills after them, and both during the following start: acknowledged messages
exist, once, at their queue offsets, and are found by their keys.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from mq.client.machine import files
from mq.daemons.broker.store.index.key_query import query_by_key
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.recovery import recovery
from mq.daemons.broker.store.recovery.recovery import Recovery
from mq.daemons.broker.store_config import FlushDiskType
from tests.conftest import share
from tests.daemons.broker.store.power import Machine
from tests.daemons.broker.store.stores import bodies, crashed_copy, leave_refused, put, with_store

SYNC = FlushDiskType.SYNC_FLUSH


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(monkeypatch, tmp_path)
    yield made
    made.close()


def body(number: int) -> bytes:
    return b"m%d" % number + b"." * 100


async def fill(store: MessageStore, start: int, stop: int, queues: int = 2) -> None:
    for number in range(start, stop):
        await put(
            store,
            "orders",
            number % queues,
            body(number),
            properties=b"KEYS\x01k%d" % number,
            keys=(f"k{number}",),
        )


async def check(store: MessageStore, count: int, queues: int = 2) -> None:
    """Check that all messages of `fill` up to count exist, and nothing else."""
    for queue_id in range(queues):
        expected = [body(number) for number in range(count) if number % queues == queue_id]
        assert bodies(store, "orders", queue_id) == expected
    for number in range(count):
        _, _, records = query_by_key(store, "orders", f"k{number}", 32, 0, 1 << 62)
        assert [body(number) in record for record in records] == [True], f"k{number}"


def test_acknowledged_messages_survive_an_immediate_power_failure(
    tmp_path: Path, machine: Machine
) -> None:
    """Before the first checkpoint, in a new store."""

    async def work(store: MessageStore) -> None:
        await fill(store, 0, 10)
        machine.lose_power(tmp_path / "a", tmp_path / "b")

    async def reopened(store: MessageStore) -> None:
        assert store.report.machine_crashed
        await check(store, 10)

    with_store(tmp_path / "a", work, flush=SYNC)
    with_store(tmp_path / "b", reopened, flush=SYNC)


def test_a_kill_soon_after_the_start_after_a_power_cut_loses_nothing(
    tmp_path: Path, machine: Machine
) -> None:
    """The start after the power failure rebuilt queues and index from before the safe offset,
    because of the index. At the next start the boot id shows that the machine has not crashed.
    """

    async def work(store: MessageStore) -> None:
        await fill(store, 0, 100)
        await store.checkpointer.checkpoint()
        await put(store, "others", 0, *[b"x" * 900] * 8)  # two more files of the log
        await store.checkpointer.checkpoint()
        machine.lose_power(tmp_path / "a", tmp_path / "b")

    async def killed_at_once(store: MessageStore) -> None:
        assert store.report.machine_crashed
        await check(store, 100)
        machine.kill(store.root, tmp_path / "c")

    async def reopened(store: MessageStore) -> None:
        assert store.report.crashed and not store.report.machine_crashed
        await check(store, 100)

    with_store(tmp_path / "a", work, flush=SYNC)
    with_store(tmp_path / "b", killed_at_once, flush=SYNC)
    with_store(tmp_path / "c", reopened, flush=SYNC)


@pytest.mark.parametrize("verify_back", [0, 1 << 20])
def test_new_messages_of_a_log_truncated_before_its_safe_offset_survive_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verify_back: int
) -> None:
    """The safe offset was past the truncated end: later messages there would count as verified."""

    async def work(store: MessageStore) -> None:
        await fill(store, 0, 40)
        await store.checkpointer.checkpoint()
        crashed_copy(store, tmp_path / "b")

    async def cut(store: MessageStore) -> int:
        assert store.report.damages
        count = sum(len(bodies(store, "orders", queue_id)) for queue_id in (0, 1))
        assert count < 40
        await fill(store, count, 41)
        crashed_copy(store, tmp_path / "c")
        return 41

    async def reopened(store: MessageStore) -> None:
        await check(store, 41)

    with_store(tmp_path / "a", work, flush=SYNC)
    log_file = max((tmp_path / "b" / "commitlog").iterdir())
    data = bytearray(log_file.read_bytes())
    data[300] ^= 1  # in the body of a record not far from its start
    log_file.write_bytes(data)
    with_store(tmp_path / "b", cut, flush=SYNC)
    monkeypatch.setattr(recovery, "VERIFY_BACK", verify_back)
    with_store(tmp_path / "c", reopened, flush=SYNC)


class Killed(BaseException):
    """The process ends here."""


def _killed_behind(step: Callable[..., None], die: Callable[[], object]) -> Callable[..., None]:
    def killed(*arguments: object) -> None:
        step(*arguments)
        die()
        raise Killed

    return killed


STEPS = ("_truncate_derived", "_replay", "_rebuild_suspects")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("end", ["kill", "power"])
def test_an_interrupted_start_after_a_power_failure_loses_nothing(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch, step: str, end: str
) -> None:
    """The start is killed, or the power fails again, after one of the steps of a recovery; three
    times.
    """

    async def work(store: MessageStore) -> None:
        await fill(store, 0, 100)
        await store.checkpointer.checkpoint()
        await put(store, "others", 0, *[b"x" * 900] * 8)
        await store.checkpointer.checkpoint()
        await fill(store, 100, 110)
        machine.lose_power(tmp_path / "a", tmp_path / "0")

    async def reopened(store: MessageStore) -> None:
        await check(store, 110)

    with_store(tmp_path / "a", work, flush=SYNC)
    real = getattr(Recovery, step)
    for number in range(3):
        root, following = tmp_path / str(number), tmp_path / str(number + 1)

        die = machine.lose_power if end == "power" else machine.kill

        with monkeypatch.context() as patch:
            patch.setattr(Recovery, step, _killed_behind(real, partial(die, root, following)))
            with pytest.raises(Killed):
                with_store(root, reopened, flush=SYNC)
    with_store(tmp_path / "3", reopened, flush=SYNC)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(share(12)))
def test_nothing_acknowledged_is_lost_whatever_a_power_cut_keeps_of_the_rest(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Starts, messages, checkpoints, stops, kills and power failures in any order."""
    chance = random.Random(seed)
    count = 0
    monkeypatch.setattr(recovery, "VERIFY_BACK", chance.choice((0, 1 << 27)))

    ends: list[str] = []

    def is_kept() -> bool:
        return chance.random() < 0.5

    async def life(root: Path, following: Path, upto: int, store: MessageStore) -> int:
        await check(store, upto, queues=3)
        writing = asyncio.ensure_future(store.checkpointer.run())
        for _ in range(chance.randrange(4)):
            behind = upto + chance.randrange(30)
            await fill(store, upto, behind, queues=3)
            upto = behind
            if chance.random() < 0.3:
                await store.checkpointer.checkpoint()
        if ends[-1] == "power":
            machine.lose_power(root, following, is_kept)
        elif ends[-1] == "kill":
            machine.kill(root, following)
        writing.cancel()
        return upto

    for number in range(6):
        root, following = tmp_path / str(number), tmp_path / str(number + 1)
        ends.append(chance.choice(("power", "power", "kill", "kill", "stop", "stop and power")))
        count = with_store(
            root,
            partial(life, root, following, count),
            flush=SYNC,
            items=40,
            flush_interval_consume_queue=1,
        )
        if ends[-1] == "stop":
            machine.kill(root, following)
        elif ends[-1] == "stop and power":
            machine.lose_power(root, following, is_kept)


@pytest.mark.parametrize("folder", ["commitlog", "index"])
def test_a_file_with_an_unsynced_name_after_a_kill_survives_a_power_failure(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """The next start finds the file, and puts acknowledged messages into it: its name has to
    survive.
    """
    real = files.sync_folder

    async def work(store: MessageStore) -> None:
        def killed_before(path: Path) -> None:
            if path.name == folder and not (tmp_path / "b").exists():
                machine.kill(store.root, tmp_path / "b")
            real(path)

        with monkeypatch.context() as patch:
            patch.setattr(files, "sync_folder", killed_before)
            await fill(store, 0, 1)
        if folder == "index":  # a checkpoint brings its name to the disk
            machine.kill(store.root, tmp_path / "b")
        assert (tmp_path / "b").exists()

    count = 0

    async def restarted(store: MessageStore) -> None:
        nonlocal count
        count = sum(len(bodies(store, "orders", queue_id)) for queue_id in (0, 1))
        await fill(store, count, count + 4)
        count += 4

    async def reopened(store: MessageStore) -> None:
        assert not store.report.crashed
        await check(store, count)

    with_store(tmp_path / "a", work, flush=SYNC)
    with_store(tmp_path / "b", restarted, flush=SYNC)
    files.sync_folder(tmp_path / "b")  # the disk had the time to learn of the clean stop
    machine.lose_power(tmp_path / "b", tmp_path / "c")
    with_store(tmp_path / "c", reopened, flush=SYNC)


def test_a_power_failure_after_a_stop_does_not_restore_refused_messages(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refused bytes were on the disk by then, and the zeros that the stop wrote over them were
    not.
    """

    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"first")
        await leave_refused(store, monkeypatch)
        assert await store.flusher.drain()

    async def reopened(store: MessageStore) -> None:
        assert bodies(store, "orders", 0) == [b"first"]

    with_store(tmp_path / "a", work)
    machine.lose_power(tmp_path / "a", tmp_path / "b")
    with_store(tmp_path / "b", reopened)
