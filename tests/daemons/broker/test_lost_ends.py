"""Groups that are ahead of a queue whose end was lost in a power failure (ASYNC_FLUSH) or by
damage.
"""

import asyncio
import shutil
from pathlib import Path

import pytest

from mq.daemons.broker.store.recovery.recovery import mark_running
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.broker.pulls import TOPIC, PullBroker, outcome, pull, request
from tests.daemons.broker.store.stores import as_of_a_kill
from tests.daemons.peer import Peer

MOVED = ResponseCode.PULL_OFFSET_MOVED


async def _fill(root: Path, *, loses_power: bool) -> None:
    """A queue of five messages, of which a group has consumed nine."""
    async with PullBroker(root, {}) as broker:
        await broker.put(*[b"old"] * 5)
        broker.stores.offsets.commit("g", TOPIC, 0, 9)
        broker.stores.offsets.commit("g", TOPIC, 1, 2)
        broker.stores.offsets.commit("behind", TOPIC, 0, 3)
    if loses_power:
        (root / "store" / "abort").write_text("of another boot\n")


def test_a_group_that_is_ahead_of_its_queue_gets_the_next_messages(tmp_path: Path) -> None:
    async def main() -> None:
        await _fill(tmp_path, loses_power=True)
        async with PullBroker(tmp_path, {}) as broker:
            offsets = broker.stores.offsets
            assert [offsets.query("g", TOPIC, queue_id) for queue_id in (0, 1)] == [5, 0]
            assert offsets.query("behind", TOPIC, 0) == 3

    asyncio.run(main())


def test_a_group_that_is_ahead_is_reset_though_the_next_start_is_killed(
    tmp_path: Path,
) -> None:
    """Before it saves offsets the next time; and messages have arrived meanwhile."""

    async def main() -> None:
        await _fill(tmp_path, loses_power=True)
        async with PullBroker(tmp_path, {}) as broker:
            await broker.put(*[b"new"] * 9)
            shutil.copytree(tmp_path, tmp_path / "killed", ignore=shutil.ignore_patterns("*.tmp"))
            as_of_a_kill(tmp_path / "killed" / "store")
        async with PullBroker(tmp_path / "killed", {}) as broker:
            assert not broker.stores.messages.report.machine_crashed
            assert broker.stores.offsets.query("g", TOPIC, 0) == 5

    asyncio.run(main())


def test_a_group_that_is_ahead_of_a_damaged_log_gets_the_next_messages(tmp_path: Path) -> None:
    async def main() -> None:
        root = tmp_path / "killed"
        async with PullBroker(tmp_path, {}) as broker:
            await broker.put(*[b"old"] * 9)
            broker.stores.offsets.commit("g", TOPIC, 0, 9)
            await broker.stores.offsets.save()
            entry = broker.stores.messages.entries.at(TOPIC, 0, 5)
            assert entry is not None
            shutil.copytree(tmp_path, root, ignore=shutil.ignore_patterns("*.tmp"))
            as_of_a_kill(root / "store")
        with open(root / "store" / "commitlog" / f"{0:020}", "r+b") as file:
            file.seek(entry[0] + 88)  # its body
            file.write(b"bad")
        async with PullBroker(root, {}) as broker, Peer(broker.listener.port) as peer:
            assert not broker.stores.messages.report.machine_crashed
            assert broker.stores.offsets.query("g", TOPIC, 0) == 5
            await broker.put(*[b"new"] * 2)
            assert outcome(await pull(peer, request(9))) == (MOVED, 5)

    asyncio.run(main())


@pytest.mark.parametrize(("loses_power", "next_offset"), [(True, 5), (False, 8)])
def test_a_running_consumer_misses_no_message_after_a_power_failure(
    tmp_path: Path, loses_power: bool, next_offset: int
) -> None:
    async def main() -> None:
        await _fill(tmp_path, loses_power=loses_power)
        async with PullBroker(tmp_path, {}) as broker, Peer(broker.listener.port) as peer:
            await broker.put(*[b"new"] * 3)
            assert outcome(await pull(peer, request(9))) == (MOVED, next_offset)

    asyncio.run(main())


def test_a_group_that_is_ahead_of_a_log_truncated_after_a_kill_gets_the_next_messages(
    tmp_path: Path,
) -> None:
    """A damaged record is where such a start ends the log."""

    async def main() -> None:
        await _fill(tmp_path, loses_power=False)
        mark_running(tmp_path / "store")
        async with PullBroker(tmp_path, {}) as broker, Peer(broker.listener.port) as peer:
            assert not broker.stores.messages.report.machine_crashed
            assert broker.stores.offsets.query("g", TOPIC, 0) == 5
            await broker.put(*[b"new"] * 3)
            assert outcome(await pull(peer, request(9))) == (MOVED, 5)

    asyncio.run(main())


@pytest.mark.parametrize(("loses_power", "kept"), [(True, 5), (False, 9)])
@pytest.mark.parametrize("with_a_pull", [True, False])
def test_a_consumer_that_commits_beyond_a_lost_end_skips_no_message(
    tmp_path: Path, loses_power: bool, kept: int, with_a_pull: bool
) -> None:
    """It has not got the new end yet, and may stop before it does."""

    async def main() -> None:
        await _fill(tmp_path, loses_power=loses_power)
        async with PullBroker(tmp_path, {}) as broker, Peer(broker.listener.port) as peer:
            if with_a_pull:
                await pull(peer, request(9, sysFlag="5", commitOffset="9", consumerGroup="g"))
            else:
                place = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0"}
                await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": "9"})
            assert broker.stores.offsets.query("g", TOPIC, 0) == kept

    asyncio.run(main())
