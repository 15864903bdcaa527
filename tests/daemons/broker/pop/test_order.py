"""Ordered pops: a queue delivers nothing more before the messages in flight are acknowledged."""

import asyncio
import shutil
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from mq.daemons import time_slices
from mq.daemons.broker.app import Broker
from mq.daemons.broker.pop import order
from mq.daemons.broker.pop.order import OrderedPops, OrderInfo, OrderTable, OrderText
from mq.daemons.state_file import write_atomically
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.broker.harness import send
from tests.daemons.broker.killed import copy_as_killed
from tests.daemons.broker.pop.consumers import GROUP, TOPIC, PopConsumer, Popped, fill
from tests.daemons.broker.pop.deletions import DELETIONS
from tests.daemons.broker.running import broker_on
from tests.daemons.peer import PATIENCE, Peer
from tests.daemons.stopped_time import stopped_time


class OrderedConsumer(PopConsumer):
    """Pops queue 0 in order."""

    async def in_order(self, count: int = 2, **fields: str) -> list[Popped]:
        return await self.pop(order="true", maxMsgNums=str(count), queueId="0", **fields)


def run(root: Path, script: Callable[[Broker, Peer, OrderedConsumer], Awaitable[None]]) -> None:
    async def main() -> None:
        async with broker_on(root) as broker, Peer(broker.port) as peer:
            await script(broker, peer, OrderedConsumer(peer, broker))

    asyncio.run(main())


def numbers(popped: list[Popped]) -> list[int]:
    return [int(one.body) for one in popped]


def test_the_next_messages_are_delivered_when_those_in_flight_are_acknowledged(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        await fill(peer, 5)
        first = await consumer.in_order()
        assert numbers(first) == [0, 1]
        assert first[0].receipt.split(" ")[3] == "999"
        assert await consumer.in_order() == []
        async with Peer(broker.port) as other:
            waiting = asyncio.create_task(OrderedConsumer(other, broker).in_order(pollTime="20000"))
            for one in reversed(first):
                assert (await consumer.ack(one)).code == ResponseCode.SUCCESS
            second = await waiting
            assert numbers(second) == [2, 3]
        assert broker.stores.offsets.query(GROUP, TOPIC, 0) == 2
        assert (await consumer.ack_all(second)).code == ResponseCode.SUCCESS
        assert broker.stores.offsets.query(GROUP, TOPIC, 0) == 4
        # a repeated request succeeds
        assert (await consumer.ack(second[0])).code == ResponseCode.SUCCESS

    run(tmp_path, script)


def test_an_unacknowledged_message_is_redelivered_with_its_count(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        await fill(peer, 3)
        with stopped_time():
            first = await consumer.in_order(invisibleTime="300")
            assert (await consumer.ack(first[0])).code == ResponseCode.SUCCESS
        again = await consumer.ask(
            order="true", maxMsgNums="2", queueId="0", invisibleTime="60000", pollTime="20000"
        )
        assert again.code == ResponseCode.SUCCESS
        assert again.fields["msgOffsetInfo"] == "0 0 1,2"
        assert again.fields["orderCountInfo"] == "0 qo0%1 1;0 0 0"
        reply = await consumer.ack(first[1])
        assert reply.code == ResponseCode.NO_MESSAGE  # of a pop whose messages are due again

    run(tmp_path, script)


def test_the_same_attempt_gets_the_same_messages_again_at_once(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        await fill(peer, 3)
        assert numbers(await consumer.in_order(attemptId="one")) == [0, 1]
        assert await consumer.in_order(attemptId="two") == []
        reply = await consumer.ask(order="true", maxMsgNums="2", queueId="0", attemptId="one")
        assert reply.fields["msgOffsetInfo"] == "0 0 0,1"
        assert reply.fields["orderCountInfo"] == "0 0 0"  # older SDKs read only this

    run(tmp_path, script)


@pytest.mark.parametrize("later", [200, 0])
def test_the_redelivery_time_of_a_message_can_be_changed(tmp_path: Path, later: int) -> None:
    """At once, too: no suspended pop was woken for that."""

    async def script(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        await fill(peer, 1)
        (popped,) = await consumer.in_order()
        async with Peer(broker.port) as other:
            waiting = asyncio.create_task(OrderedConsumer(other, broker).in_order(pollTime="20000"))
            fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
            async with asyncio.timeout(30):
                number = "0"
                while number == "0":
                    asked = await peer.ask(RequestCode.POLLING_INFO, fields)
                    number = asked.fields["pollingNum"]
            reply = await consumer.hide(popped, later)
            assert reply.code == ResponseCode.SUCCESS
            assert reply.fields["popTime"] == popped.receipt.split(" ")[1]
            assert numbers(await waiting) == [0]

    run(tmp_path, script)


def test_an_acknowledgement_is_on_the_disk_when_it_is_answered(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        await fill(peer, 2)
        popped = await consumer.in_order()
        assert (await consumer.ack(popped[0])).code == ResponseCode.SUCCESS
        saved = (tmp_path / "config" / "consumerOffset.json").read_text()
        assert f'"{TOPIC}@{GROUP}":{{0:1' in "".join(saved.split())

    run(tmp_path, script)


def test_messages_in_flight_stay_in_flight_over_a_restart(tmp_path: Path) -> None:
    async def before(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        await fill(peer, 2)
        popped = await consumer.in_order(count=1)
        taken.append(popped[0])

    async def after(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        assert await consumer.in_order() == []
        assert (await consumer.ack(taken[0])).code == ResponseCode.SUCCESS
        assert numbers(await consumer.in_order()) == [1]

    taken: list[Popped] = []
    run(tmp_path, before)
    run(tmp_path, after)


def test_messages_acknowledged_before_a_kill_are_not_in_flight_any_more(tmp_path: Path) -> None:
    """The file of messages in flight was older: the group went back, and all were redelivered."""
    killed, copy = tmp_path / "killed", tmp_path / "copy"

    async def before(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        await fill(peer, 6)
        taken.extend(await consumer.in_order(count=6))
        await broker.services.pop.save()
        for one in taken[:4]:
            assert (await consumer.ack(one)).code == ResponseCode.SUCCESS
        copy_as_killed(killed, copy)

    async def after(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        reached = []
        for one in taken[4:]:
            assert (await consumer.ack(one)).code == ResponseCode.SUCCESS
            reached.append(broker.stores.offsets.query(GROUP, TOPIC, 0))
        assert reached == [5, 6]
        await send(peer, TOPIC, b"6")
        assert numbers(await consumer.in_order()) == [6]  # nothing blocks the queue

    taken: list[Popped] = []
    run(killed, before)
    run(copy, after)


def test_an_acknowledgement_does_not_undo_a_reset_after_its_pop(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        await fill(peer, 6)
        offsets = broker.stores.offsets
        assert (await consumer.ack_all(await consumer.in_order())).code == ResponseCode.SUCCESS
        out = await consumer.in_order()
        assert (numbers(out), offsets.query(GROUP, TOPIC, 0)) == ([2, 3], 2)
        offsets.commit(GROUP, TOPIC, 0, 0)
        for one in out:
            assert (await consumer.ack(one)).code == ResponseCode.SUCCESS
            assert offsets.query(GROUP, TOPIC, 0) == 0
        again = await consumer.in_order(count=3)
        assert numbers(again) == [0, 1, 2]
        assert (await consumer.ack_all(again)).code == ResponseCode.SUCCESS
        assert offsets.query(GROUP, TOPIC, 0) == 3

    run(tmp_path, script)


@pytest.mark.parametrize("reset_before", [False, True])
def test_an_acknowledgement_after_a_restart_does_not_undo_a_reset(
    tmp_path: Path, reset_before: bool
) -> None:
    out: list[Popped] = []

    async def reset(peer: Peer) -> None:
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "0"}
        reply = await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        assert reply.code == ResponseCode.SUCCESS

    async def before(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        await fill(peer, 6)
        for one in await consumer.in_order():
            await consumer.ack(one)
        out.extend(await consumer.in_order())
        assert broker.stores.offsets.query(GROUP, TOPIC, 0) == 2
        if reset_before:
            await reset(peer)

    async def after(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        if not reset_before:
            await reset(peer)
        for one in out:
            assert (await consumer.ack(one)).code == ResponseCode.SUCCESS
        assert numbers(await consumer.in_order(6)) == [0, 1, 2, 3, 4, 5]

    run(tmp_path, before)
    run(tmp_path, after)


async def pop_behind_what_is_passed_over(
    peer: Peer, consumer: OrderedConsumer, taken: list[Popped]
) -> None:
    """Pop message 2 of three, after one that is acknowledged and one that does not match."""
    await fill(peer, 1)
    (first,) = await consumer.in_order()
    assert (await consumer.ack(first)).code == ResponseCode.SUCCESS
    await send(peer, TOPIC, b"1", 0, "TAGS\x01other")
    await send(peer, TOPIC, b"2", 0, "TAGS\x01a")
    taken.extend(await consumer.in_order(exp="a", expType="TAG"))


async def moves_its_group(
    taken: list[Popped], broker: Broker, peer: Peer, consumer: OrderedConsumer
) -> None:
    assert numbers(taken) == [2]
    assert (await consumer.ack(taken[0])).code == ResponseCode.SUCCESS
    assert broker.stores.offsets.query(GROUP, TOPIC, 0) == 3


def test_messages_in_flight_before_a_kill_advance_their_group_past_skipped_ones(
    tmp_path: Path,
) -> None:
    """Its offset was saved less often than its messages in flight, and looked as if it had been
    reset.
    """
    killed, copy = tmp_path / "killed", tmp_path / "copy"

    async def before(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        await pop_behind_what_is_passed_over(peer, consumer, taken)
        await broker.services.pop.save()
        copy_as_killed(killed, copy)

    taken: list[Popped] = []
    run(killed, before)
    run(copy, partial(moves_its_group, taken))


def test_messages_in_flight_advance_their_group_after_a_kill_during_another_deletion(
    tmp_path: Path,
) -> None:
    """A deletion saved the messages in flight, and the offsets after that."""
    killed, copy = tmp_path / "killed", tmp_path / "copy"

    async def before(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        await pop_behind_what_is_passed_over(peer, consumer, taken)
        await PopConsumer(peer, broker, "other").pop(order="true")

        async def kill() -> None:
            copy_as_killed(killed, copy)

        broker.stores.offsets.before_removals_are_saved.append(kill)
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        fields = {**DELETIONS[code], "groupName": "other"}
        assert (await peer.ask(code, fields)).code == ResponseCode.SUCCESS

    taken: list[Popped] = []
    run(killed, before)
    run(copy, partial(moves_its_group, taken))


def test_nothing_is_in_flight_for_a_group_whose_deletion_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offsets were deleted, but its messages in flight were not: a new group of that name got
    nothing, and old receipts advanced it past messages that it had not received.
    """
    killed, copy = tmp_path / "killed", tmp_path / "copy"
    out: list[Popped] = []

    def kill(target: Path, content: bytes) -> None:
        copy_as_killed(killed, copy)
        write_atomically(target, content)

    async def before(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        await fill(peer, 4)
        for one in await consumer.in_order():
            assert (await consumer.ack(one)).code == ResponseCode.SUCCESS
        out.extend(await consumer.in_order())
        await broker.services.pop.save()
        monkeypatch.setattr(order, "write_atomically", kill)
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        assert (await peer.ask(code, DELETIONS[code])).code == ResponseCode.SUCCESS

    async def after(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        assert (await consumer.ack(out[0])).code == ResponseCode.NO_MESSAGE
        assert numbers(await consumer.in_order()) == [0, 1]

    run(killed, before)
    monkeypatch.undo()
    run(copy, after)


def test_old_receipts_do_not_acknowledge_messages_in_place_of_lost_ones(
    tmp_path: Path,
) -> None:
    """The file of messages in flight was on the disk before the messages."""
    store, cut, again = (tmp_path / name for name in ("store", "cut", "again"))
    out: list[Popped] = []

    async def before() -> None:
        seldom = {"flushIntervalCommitLog": "3600000"}
        async with broker_on(store, **seldom) as broker, Peer(broker.port) as peer:
            consumer = OrderedConsumer(peer, broker)
            await fill(peer, 2)
            for one in await consumer.in_order():
                assert (await consumer.ack(one)).code == ResponseCode.SUCCESS
            await broker.services.pop.save()
            log = broker.stores.messages.log
            flushed = log.flushed
            copy_as_killed(store, cut)  # the state of the disk
            for number in (2, 3):
                await send(peer, TOPIC, b"%d" % number)
            out.extend(await consumer.in_order())
            await broker.services.pop.save()
            assert log.flushed == flushed
            name = Path("config") / "consumerOrderInfo.json"
            shutil.copy(store / name, cut / name)

    async def between(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        for number in (20, 30):
            await send(peer, TOPIC, b"%d" % number)
        copy_as_killed(cut, again)  # before the messages in flight are saved again

    async def after(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        for one in out:
            assert (await consumer.ack(one)).code == ResponseCode.NO_MESSAGE
        assert numbers(await consumer.in_order()) == [20, 30]

    asyncio.run(before())
    run(cut, between)
    run(again, after)


def test_messages_in_flight_are_saved_without_blocking_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With very many in flight, the broker served no other client while they were encoded, and no
    pop while they were written.
    """
    path = tmp_path / "config" / "consumerOrderInfo.json"
    served = threading.Event()
    in_time: list[bool] = []

    def write_late(target: Path, content: bytes) -> None:
        in_time.append(served.wait(PATIENCE / 10))
        write_atomically(target, content)

    async def script(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        pop = broker.services.pop
        await fill(peer, 6, queues=3)

        async def saved() -> None:
            served.clear()
            saving = asyncio.create_task(pop.save())
            await asyncio.sleep(0)
            assert await consumer.in_order() == []
            served.set()
            await saving
            assert path.read_bytes() == OrderTable(table=pop.order._table).encode()

        first, second = [await consumer.pop(order="true", queueId=q) for q in "01"]
        await saved()
        assert (await consumer.ack(first[0])).code == ResponseCode.SUCCESS
        await saved()
        assert (await consumer.hide(second[1], 90_000)).code == ResponseCode.SUCCESS
        await PopConsumer(peer, broker, "other").pop(order="true")
        await saved()
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        assert (await peer.ask(code, DELETIONS[code])).code == ResponseCode.SUCCESS
        assert list(pop.order._table) == [f"{TOPIC}@other"]
        assert path.read_bytes() == OrderTable(table=pop.order._table).encode()
        assert len(in_time) == 4
        assert all(in_time)

    monkeypatch.setattr(order, "write_atomically", write_late)
    run(tmp_path, script)


def test_a_save_does_not_process_all_messages_in_flight_in_one_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts encoded in steps were joined at once: 0.2 to 0.4 s for 200,000 queues."""
    monkeypatch.setattr(time_slices, "STEP_SECONDS", 0)
    path = tmp_path / "consumerOrderInfo.json"
    table = {f"T@G{number}": {0: OrderInfo(offsets=[number])} for number in range(20)}
    path.write_bytes(OrderTable(table=table).encode())
    turns: Counter[int] = Counter()
    turn = 0
    up_to_date = OrderText._up_to_date

    def counted(self: OrderText, key: str, queues: dict[int, OrderInfo]) -> Iterator[bytes]:
        turns[turn] += 1
        return up_to_date(self, key, queues)

    async def script() -> None:
        nonlocal turn
        pops = OrderedPops(path)
        pops.start(offset_of=lambda *_: 0, end_of=lambda *_: 100)
        saving = asyncio.ensure_future(pops.save())
        while not saving.done():
            turn += 1
            await asyncio.sleep(0)
        await saving
        assert path.read_bytes() == OrderTable(table=pops._table).encode()

    monkeypatch.setattr(OrderText, "_up_to_date", counted)
    asyncio.run(script())
    assert turns.total() >= len(table)
    assert max(turns.values()) == 1


def test_a_group_reset_forward_while_messages_are_in_flight_continues_there(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        await fill(peer, 5)
        out = await consumer.in_order(count=4)
        broker.stores.offsets.commit(GROUP, TOPIC, 0, 2)
        for one, reached in ((out[0], 2), (out[2], 3), (out[3], 4)):
            assert (await consumer.ack(one)).code == ResponseCode.SUCCESS
            assert broker.stores.offsets.query(GROUP, TOPIC, 0) == reached
        assert numbers(await consumer.in_order()) == [4]

    run(tmp_path, script)


def test_restarted_queues_are_searched_in_their_own_topics_only(
    tmp_path: Path,
) -> None:
    """With 200,000 queues in flight, every forty cleaned ones took 0.13 s of the event loop."""

    class Cleared(set[tuple[str, int]]):
        def __init__(self, *queues: tuple[str, int]) -> None:
            super().__init__(queues)
            self.asked = 0

        def __contains__(self, queue: object) -> bool:
            self.asked += 1
            return super().__contains__(queue)

    info = OrderInfo(pop_time=1, invisible_time=60_000, offsets=[5])
    table = {f"T{number}@G": dict.fromkeys((0, 1), info) for number in range(100)}
    write_atomically(tmp_path / "out", OrderTable(table=table).encode())
    out = OrderedPops(tmp_path / "out", lambda: 2)
    out.start(lambda group, topic, queue_id: 5, lambda topic, queue_id: 6)
    cleared = Cleared(("T7", 1), ("T8", 0))
    out.forget_queues(cleared)
    assert cleared.asked == 4
    blocked = {
        (topic, queue_id): out.is_blocked("", topic, "G", queue_id)
        for topic in ("T7", "T8", "T9")
        for queue_id in (0, 1)
    }
    assert [queue for queue, is_out in blocked.items() if not is_out] == [("T7", 1), ("T8", 0)]
