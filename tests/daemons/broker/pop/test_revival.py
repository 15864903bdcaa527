"""Popped messages that are not acknowledged are redelivered, a limited number at a time."""

import asyncio
import errno
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.pop import check_points, revival
from mq.protocol.codes import ResponseCode
from tests.daemons.broker.pop.consumers import TOPIC, PopConsumer, Popped, bodies, fill, run
from tests.daemons.broker.running import now
from tests.daemons.peer import Peer
from tests.daemons.stopped_time import stopped_time
from tests.waiting import until


@pytest.mark.parametrize(
    ("limit", "value", "most"), [("_MAX_BYTES", 2, 2), ("TURN_SECONDS", 0.0, 1)]
)
def test_messages_due_at_once_are_redelivered_some_in_each_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: float, most: int
) -> None:
    """256 check points with as many megabytes as a pop delivers were revived in one turn, and one
    write; or with 8,192 small messages, for half a second.
    """
    monkeypatch.setattr(revival, limit, value)

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        pop = broker.services.pop
        await fill(peer, 5)
        with stopped_time():
            for _ in range(5):
                (popped,) = await consumer.pop(maxMsgNums="1")
                assert (await consumer.hide(popped, 1)).code == ResponseCode.SUCCESS
            in_turn: list[int] = []
            put = pop.revival._put

            def counted(*given: object) -> None:
                in_turn[-1] += 1
                put(*given)  # type: ignore[arg-type]

            def turn() -> None:
                in_turn.append(0)
                asyncio.get_running_loop().call_soon(turn)

            turn()
            monkeypatch.setattr(pop.revival, "_put", counted)
        await until(lambda: not len(pop.points))
        assert (sum(in_turn), max(in_turn)) == (5, most)
        again = await consumer.pop(pollTime="20000", bornTime=str(now()))
        assert bodies(again) == [b"%d" % number for number in range(5)]

    run(tmp_path, script)


def test_a_check_point_that_cannot_be_revived_now_does_not_delay_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revival, "_MAX_BYTES", 2)
    monkeypatch.setattr(revival, "RETRY_SECONDS", 3600.0)

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        points = broker.services.pop.points
        await fill(peer, 5)
        with stopped_time():
            for _ in range(5):
                await consumer.pop(maxMsgNums="1", invisibleTime="1")
            first = next(iter(points._table.values()))
            first.acks_in_flight += 1
        await until(lambda: list(points._table.values()) == [first])

    run(tmp_path, script)


def test_very_many_ended_check_points_are_removed_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300,000 took 0.7 s in one turn. A later one is redelivered nevertheless."""
    monkeypatch.setattr(check_points, "_MOST_ENDED", 2)

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        points = broker.services.pop.points
        await fill(peer, 6)
        with stopped_time() as clock:
            for _ in range(5):
                (popped,) = await consumer.pop(maxMsgNums="1", invisibleTime="1")
                assert (await consumer.ack(popped)).code == ResponseCode.SUCCESS
            await consumer.pop(invisibleTime="1")
            assert len(points._due) == 6
            assert points.pop_due(clock.now + 1) is None
            assert len(points._due) == 4
        await until(lambda: not len(points))
        assert bodies(await consumer.pop(pollTime="20000", bornTime=str(now()))) == [b"5"]

    run(tmp_path, script)


def test_unreadable_check_points_do_not_delay_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a disk read that takes longer than a turn, each was retried for ten seconds before the
    next one.
    """
    monkeypatch.setattr(revival, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(revival, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(revival, "MOST_ATTEMPTS", 10**9)

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        pop = broker.services.pop
        await fill(peer, 3)
        read, fails = pop.revival._writer.read_entry, True

        def failing(topic: str, queue_id: int, offset: int) -> object:
            if fails and topic == TOPIC and offset < 2:
                raise OSError(errno.EIO, "the disk")
            return read(topic, queue_id, offset)

        monkeypatch.setattr(pop.revival._writer, "read_entry", failing)
        with stopped_time() as clock:
            for _ in range(3):
                await consumer.pop(maxMsgNums="1", invisibleTime="1")
                clock.advance(1)
        await until(lambda: [point.offsets for point in pop.points._table.values()] == [(0,), (1,)])
        fails = False
        await until(lambda: not len(pop.points))
        assert bodies(await consumer.pop()) == [b"0", b"1", b"2"]

    run(tmp_path, script)


def test_popped_messages_of_another_cluster_name_are_reported_until_none_is_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[Popped] = []

    async def pop_two(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 2)
        left.extend(await consumer.pop())

    async def ack_two(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        for one in left:
            assert (await consumer.ack(one)).code == ResponseCode.SUCCESS

    async def nothing(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        pass

    def warnings() -> list[str]:
        found = [line for line in caplog.messages if "are not delivered again" in line]
        caplog.clear()
        return found

    run(tmp_path, pop_two)
    run(tmp_path, nothing, brokerClusterName="renamed")
    (line,) = warnings()
    assert "start the broker with brokerClusterName=DefaultCluster" in line
    run(tmp_path, ack_two)
    run(tmp_path, nothing, brokerClusterName="renamed")
    assert warnings() == []
