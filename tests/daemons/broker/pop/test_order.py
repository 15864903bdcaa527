"""Ordered pops: a queue gives nothing more before what is out is acknowledged."""

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


def test_the_next_messages_come_when_those_that_are_out_are_acknowledged(tmp_path: Path) -> None:
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
        assert (await consumer.ack(second[0])).code == ResponseCode.SUCCESS  # asked twice: well

    run(tmp_path, script)


def test_what_is_not_acknowledged_comes_again_with_its_count(tmp_path: Path) -> None:
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
        assert reply.code == ResponseCode.NO_MESSAGE  # of a pop that is over

    run(tmp_path, script)


def test_the_same_attempt_is_given_the_same_again_at_once(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        await fill(peer, 3)
        assert numbers(await consumer.in_order(attemptId="one")) == [0, 1]
        assert await consumer.in_order(attemptId="two") == []
        reply = await consumer.ask(order="true", maxMsgNums="2", queueId="0", attemptId="one")
        assert reply.fields["msgOffsetInfo"] == "0 0 0,1"
        assert reply.fields["orderCountInfo"] == "0 0 0"  # what older SDKs look for

    run(tmp_path, script)


@pytest.mark.parametrize("later", [200, 0])
def test_a_message_may_be_asked_for_again_at_another_time(tmp_path: Path, later: int) -> None:
    """At once, too: nobody was woken for that."""

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


def test_what_is_out_stays_out_over_a_restart(tmp_path: Path) -> None:
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


def test_what_was_acknowledged_before_a_kill_is_not_out_any_more(tmp_path: Path) -> None:
    """The file that says what is out was older: the group went back, and all came again."""
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


def test_an_acknowledgement_does_not_undo_a_reset_that_came_behind_its_pop(tmp_path: Path) -> None:
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
def test_nor_does_one_behind_a_restart(tmp_path: Path, reset_before: bool) -> None:
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
    """Pop message 2 of three, behind one that is acknowledged and one that is not for the group."""
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


def test_what_was_out_before_a_kill_moves_its_group_though_it_had_passed_over_others_before_that(
    tmp_path: Path,
) -> None:
    """Its offset was saved less often than what is out, and looked as if it had been put back."""
    killed, copy = tmp_path / "killed", tmp_path / "copy"

    async def before(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        await pop_behind_what_is_passed_over(peer, consumer, taken)
        await broker.services.pop.save()
        copy_as_killed(killed, copy)

    taken: list[Popped] = []
    run(killed, before)
    run(copy, partial(moves_its_group, taken))


def test_so_does_it_where_another_group_was_being_deleted_when_the_kill_came(
    tmp_path: Path,
) -> None:
    """A deletion saved what is out, and the offsets behind that."""
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


def test_nothing_is_out_of_a_group_whose_deletion_a_kill_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offsets were gone, and what was out was not: the group made anew got nothing, and old
    receipts put it behind what it had not been given."""
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


def test_what_was_out_and_was_lost_in_a_power_cut_does_not_acknowledge_what_comes_in_its_place(
    tmp_path: Path,
) -> None:
    """The file that says what is out was on the disk before the messages."""
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
            copy_as_killed(store, cut)  # what the disk has
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
        copy_as_killed(cut, again)  # before what is out is saved the next time

    async def after(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        for one in out:
            assert (await consumer.ack(one)).code == ResponseCode.NO_MESSAGE
        assert numbers(await consumer.in_order()) == [20, 30]

    asyncio.run(before())
    run(cut, between)
    run(again, after)


def test_what_is_out_is_saved_as_it_is_and_nobody_waits_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With very many out the broker served nobody else while they were put into words, and none
    while they were written."""
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


def test_no_turn_of_the_loop_goes_over_all_that_is_out_when_that_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had been put into words in steps was gathered in one: of 200,000 queues 0.2 to 0.4 s."""
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


def test_a_group_that_is_put_on_while_messages_are_out_goes_on_from_there(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: OrderedConsumer) -> None:
        await fill(peer, 5)
        out = await consumer.in_order(count=4)
        broker.stores.offsets.commit(GROUP, TOPIC, 0, 2)
        for one, reached in ((out[0], 2), (out[2], 3), (out[3], 4)):
            assert (await consumer.ack(one)).code == ResponseCode.SUCCESS
            assert broker.stores.offsets.query(GROUP, TOPIC, 0) == reached
        assert numbers(await consumer.in_order()) == [4]

    run(tmp_path, script)


def test_queues_that_begin_anew_are_looked_for_among_what_is_out_of_their_topics(
    tmp_path: Path,
) -> None:
    """With 200,000 queues out each forty that were cleaned took 0.13 s of the loop."""

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
