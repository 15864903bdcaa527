"""The partitions that are held, and whose turn it is."""

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mq.client.tube.partitions import PartitionTable, RegisteredPartition
from mq.protocol.tube.codes import Code
from mq.protocol.tube.strings import BrokerInfo, Partition
from tests.client.tube.virtual_time import JumpingLoop, run_fast
from tests.conftest import share


def partition(number: int, broker: int = 1) -> Partition:
    return Partition(BrokerInfo(broker, "10.0.0.1", 8123), "orders", number)


def test_partitions_are_taken_in_the_order_in_which_they_became_idle() -> None:
    async def scenario() -> None:
        table = PartitionTable(lambda: None)
        for number in (2, 0, 1):
            table.add(partition(number))
        taken = [table.take() for _ in range(4)]
        assert [one and one.key for one in taken] == [
            *("1:orders:2", "1:orders:0", "1:orders:1", None),
        ]
        assert table.status() == Code.ALL_PARTITION_INUSE
        first, second, third, _ = taken
        assert first and second and third and first.stamp and second.stamp and third.stamp
        table.put_back(second, second.stamp, consumed=True, delay=0.0)
        table.put_back(third, third.stamp, consumed=True, delay=5.0)
        table.put_back(first, first.stamp, consumed=True, delay=0.01)
        again = [table.take(), table.take(), table.take()]
        assert again == [second, first, None]
        assert table.status() == Code.ALL_PARTITION_WAITING
        await asyncio.sleep(5)
        assert table.take() is third

    run_fast(scenario())


def test_each_use_has_a_stamp_of_its_own() -> None:
    async def scenario() -> None:
        table = PartitionTable(lambda: None)
        table.add(partition(0))
        stamps = []
        for _ in range(100):
            held = table.take()
            assert held is not None and held.stamp is not None
            stamps.append(held.stamp)
            assert not table.put_back(held, held.stamp - 1, consumed=True, delay=0)
            assert table.put_back(held, held.stamp, consumed=True, delay=0)
        assert sorted(set(stamps)) == stamps

    run_fast(scenario())


def test_a_partition_that_has_left_is_not_what_it_was_when_it_comes_back() -> None:
    async def scenario() -> None:
        table = PartitionTable(lambda: None)
        table.add(partition(0))
        held = table.take()
        assert held is not None and held.stamp is not None
        stamp = held.stamp
        table.remove(held.key)
        assert table.remove(held.key) is None and len(table) == 0
        assert table.status() == Code.NO_PARTITION_ASSIGNED
        table.add(partition(0))
        assert not table.put_back(held, stamp, consumed=True, delay=0)

    run_fast(scenario())


def test_one_that_is_to_leave_has_no_turn_and_has_it_again_if_it_stays() -> None:
    async def scenario() -> None:
        table = PartitionTable(lambda: None)
        for number in range(3):
            table.add(partition(number))
        used = table.take()
        assert used is not None and used.stamp is not None
        with pytest.raises(RuntimeError), table.leaving(["1:orders:0", "1:orders:1", "x"]) as found:
            assert [held.key for held in found] == ["1:orders:0", "1:orders:1"]
            other = table.take()
            assert other is not None and other.key == "1:orders:2"
            table.put_back(used, used.stamp, consumed=True, delay=1.0)
            assert table.take() is None
            raise RuntimeError
        keys = [held.key for held in (table.take(), table.take()) if held is not None]
        assert keys == ["1:orders:0", "1:orders:1"]

    run_fast(scenario())


def test_uses_expire_by_when_their_messages_were_given() -> None:
    async def scenario() -> None:
        table = PartitionTable(lambda: None)
        for number in range(3):
            table.add(partition(number))
        given, ahead, confirming = table.take(), table.take(), table.take()
        assert given is not None and ahead is not None and confirming is not None
        table.give(given)
        table.give(confirming)
        confirming.confirming = True
        assert table.given == 2
        await asyncio.sleep(10)
        assert table.expire(5.0) == [given]
        assert table.given == 1
        assert table.take() is given and not given.last_consumed

    run_fast(scenario())


class Turns(RuleBasedStateMachine):
    """Whatever happens, a partition is in one place, and what is idle has its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = JumpingLoop()
        asyncio.set_event_loop(self.loop)
        self.used: list[tuple[RegisteredPartition, int]] = []
        self.woken = 0

        async def make() -> PartitionTable:
            return PartitionTable(self._wake)

        self.table = self.loop.run_until_complete(make())

    def _wake(self) -> None:
        self.woken += 1

    def teardown(self) -> None:
        asyncio.set_event_loop(None)
        self.loop.close()

    @rule(number=st.integers(0, 3))
    def add(self, number: int) -> None:
        self.table.add(partition(number))

    @rule(number=st.integers(0, 3))
    def remove(self, number: int) -> None:
        self.table.remove(str(partition(number).key))

    @rule(give=st.booleans())
    def take(self, give: bool) -> None:
        held = self.table.take()
        if held is not None:
            assert held.stamp is not None
            self.used.append((held, held.stamp))
            if give:
                self._in_loop(lambda: self.table.give(held))

    @precondition(lambda self: self.used)
    @rule(data=st.data(), delay=st.sampled_from([0.0, 1.0]), consumed=st.booleans())
    def put_back(self, data: st.DataObject, delay: float, consumed: bool) -> None:
        held, stamp = data.draw(st.sampled_from(self.used))
        self._in_loop(lambda: self.table.put_back(held, stamp, consumed=consumed, delay=delay))

    @rule(seconds=st.sampled_from([0.5, 2.0]))
    def wait(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    @rule()
    def expire(self) -> None:
        self._in_loop(lambda: self.table.expire(self.loop.time()))

    @rule(number=st.integers(0, 3), goes=st.booleans())
    def leave(self, number: int, goes: bool) -> None:
        def act() -> None:
            with self.table.leaving([str(partition(number).key)]) as found:
                for held in found if goes else ():
                    self.table.remove(held.key)

        self._in_loop(act)

    def _in_loop(self, act: object) -> None:
        async def run() -> None:
            assert callable(act)
            act()

        self.loop.run_until_complete(run())

    @invariant()
    def each_is_in_one_place(self) -> None:
        idle = set(self.table._idle)
        for held in self.table:
            places = [held.key in idle, held.stamp is not None, held.timer is not None]
            assert places.count(True) == 1, (held.key, places)
        assert idle <= {held.key for held in self.table}
        assert self.table.given == sum(held.given is not None for held in self.table)


TestTurns = Turns.TestCase
TestTurns.settings = settings(max_examples=share(30), stateful_step_count=30)
