"""The sync state set: who joins, who leaves, and what senders wait for meanwhile."""

import asyncio
import struct
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mq.daemons.broker.replication import sync_state
from mq.daemons.broker.replication.controlled import ControllerRefused
from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command
from tests.daemons.broker.pulls import pull
from tests.daemons.broker.pulls import request as pull_request
from tests.daemons.broker.replication.pair import (
    ScriptedSlave,
    content,
    end_of,
    master,
    send,
    until,
)
from tests.daemons.broker.replication.sets import (
    ScriptedControllers,
    ScriptedMember,
    asked_set,
    empty_member,
    followed_set,
    set_master,
    shown,
    state_of,
)
from tests.daemons.broker.store.stores import hold_fsyncs
from tests.daemons.peer import Peer


async def follow(slave: ScriptedMember) -> None:
    """Acknowledge what comes, until cancelled."""
    while True:
        offset, *_, data = await slave.frame()
        if data:
            slave.say(offset + len(data))


def test_a_slave_joins_when_it_has_all(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers(epoch=5)
        async with asked_set(tmp_path, controllers) as (first, peer):
            assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS
            async with empty_member(first) as slave:
                *_, data = await slave.frame()
                assert controllers.asked == []
                slave.say(len(data))
                await until(lambda: state_of(first).members == {1, 2})
                assert controllers.asked == [(frozenset((1, 2)), 5)]
                assert state_of(first).members_epoch == 6

    asyncio.run(main())


def test_from_when_a_slave_is_asked_for_its_word_counts(tmp_path: Path) -> None:
    """The controllers may have agreed before their answer is here (issue 5663)."""

    async def main() -> None:
        controllers = ScriptedControllers()
        async with (
            asked_set(tmp_path, controllers) as (first, peer),
            ScriptedMember(first.ha_master.port) as slave,
        ):
            assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS
            controllers.gate.clear()
            await slave.handshake()
            slave.say(0)
            *_, data = await slave.frame()
            slave.say(len(data))
            await until(lambda: len(controllers.asked) == 1)
            sending = asyncio.create_task(send(peer, b"a table"))
            _, _, _, more = await slave.frame()
            assert not sending.done() and shown(first) == 1
            slave.say(len(data) + len(more))
            assert (await sending).code == ResponseCode.SUCCESS
            assert state_of(first).members == {1}
            controllers.gate.set()
            await until(lambda: state_of(first).members == {1, 2})

    asyncio.run(main())


def test_under_load_a_slave_that_is_a_little_behind_joins(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers()
        async with (
            asked_set(tmp_path, controllers) as (first, peer),
            ScriptedMember(first.ha_master.port) as slave,
        ):
            assert (await send(peer, b"1")).code == ResponseCode.SUCCESS
            one = end_of(first)
            await slave.handshake()
            slave.say(0)
            offset, _, _, data = await slave.frame()
            slave.writer.transport.pause_reading()  # type: ignore[attr-defined]
            slave.say(one)
            await until(lambda: state_of(first).waited_for == {1, 2})
            for number in range(5):  # each is written before the word of the one before
                sending = asyncio.create_task(send(peer, b"%d" % number))
                before = end_of(first)
                await until(lambda: end_of(first) > before)  # noqa: B023
                slave.say(end_of(first))
                assert (await sending).code == ResponseCode.SUCCESS
            await until(lambda: state_of(first).members == {1, 2})
            assert offset == 0 and data

    asyncio.run(main())


def test_who_has_left_is_waited_for_until_the_controllers_agree(tmp_path: Path) -> None:
    """Java 5.5.0 drops it at once: what is answered then is lost if it becomes master."""

    async def main() -> None:
        controllers = ScriptedControllers((1, 2))
        async with set_master(tmp_path, controllers, slaveTimeout="150") as first:
            async with Peer(first.port) as peer:
                async with empty_member(first):
                    await until(lambda: 2 in state_of(first).slaves)
                    controllers.gate.clear()
                await until(lambda: len(controllers.asked) == 1)
                assert controllers.asked == [(frozenset((1,)), 1)]
                reply = await send(peer, b"a chair")
                assert reply.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
                assert shown(first) == 0
                controllers.gate.set()
                await until(lambda: state_of(first).members == {1})
                assert shown(first) == 1
                assert (await send(peer, b"a table")).code == ResponseCode.SUCCESS
                assert shown(first) == 2

    asyncio.run(main())


def test_a_member_that_comes_back_with_less_than_is_confirmed_leaves(tmp_path: Path) -> None:
    """Its machine has lost its power, and its last connection is not known to have ended."""

    async def main() -> None:
        controllers = ScriptedControllers((1, 2))
        async with (
            followed_set(tmp_path, controllers) as (first, peer, slave),
            ScriptedMember(first.ha_master.port) as again,
        ):
            sending = asyncio.create_task(send(peer, b"a chair"))
            _, _, _, data = await slave.frame()
            slave.say(len(data))
            assert (await sending).code == ResponseCode.SUCCESS
            await again.handshake()
            again.say(0)
            await until(lambda: len(controllers.asked) == 1)
            assert controllers.asked[0][0] == {1}
            _, _, _, data = await again.frame()
            again.say(len(data))
            await until(lambda: state_of(first).members == {1, 2})

    asyncio.run(main())


def test_two_that_leave_together_are_both_let_go(tmp_path: Path) -> None:
    """One while the other is being asked for (Java's PR 9897)."""

    async def main() -> None:
        controllers = ScriptedControllers((1, 2, 3))
        async with asked_set(tmp_path, controllers) as (first, peer):
            async with ScriptedMember(first.ha_master.port, broker_id=3) as other:
                async with ScriptedMember(first.ha_master.port) as slave:
                    for one in (slave, other):
                        await one.handshake()
                        one.say(0)
                    await until(lambda: len(state_of(first).slaves) == 2)
                    controllers.gate.clear()
                await until(lambda: len(controllers.asked) == 1)
            await until(lambda: not state_of(first).slaves)
            sending = asyncio.create_task(send(peer, b"a chair"))
            await until(lambda: end_of(first) > 0)
            assert not sending.done()
            controllers.gate.set()
            assert (await sending).code == ResponseCode.SUCCESS
            assert [members for members, _ in controllers.asked] == [{1, 3}, {1}]
            assert state_of(first).members == {1}

    asyncio.run(main())


@pytest.mark.parametrize(
    "failure",
    [TimeoutError(), ConnectionError("none answers"), ControllerRefused(1, "its log is slow")],
)
def test_a_change_of_which_nobody_knows_is_waited_for_like_one_that_was_made(
    failure: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_state, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(sync_state, "SETTLED_SECONDS", 0.05)

    async def main() -> None:
        controllers = ScriptedControllers()
        controllers.failure = failure
        async with set_master(tmp_path, controllers, slaveTimeout="100") as first:
            async with Peer(first.port) as peer:
                async with empty_member(first):
                    await until(lambda: len(controllers.asked) > 1)
                await until(lambda: not state_of(first).slaves)
                reply = await send(peer, b"a chair")
                assert reply.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
                assert state_of(first).waited_for == {1, 2}
                # Long after, a controller has the set as it was.
                await asyncio.sleep(0.1)
                controllers.tell(frozenset((1,)), 1)
                assert state_of(first).waited_for == {1}
                assert shown(first) == 1
                assert (await send(peer, b"a table")).code == ResponseCode.SUCCESS

    asyncio.run(main())


def test_a_change_that_is_refused_was_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_state, "RETRY_SECONDS", 60)

    async def main() -> None:
        controllers = ScriptedControllers()
        controllers.failure = ControllerRefused(2001, "another epoch")
        async with asked_set(tmp_path, controllers) as (first, peer):
            async with empty_member(first):
                await until(lambda: state_of(first).refused_changes == 1)
            await until(lambda: not state_of(first).slaves)
            assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS

    asyncio.run(main())


def test_a_slave_that_the_controllers_do_not_know_keeps_nobody_waiting(tmp_path: Path) -> None:
    class Choosy(ScriptedControllers):
        async def alter(self, members: frozenset[int], epoch: int) -> tuple[frozenset[int], int]:
            self.failure = ControllerRefused(2003, "who is 9") if 9 in members else None
            return await super().alter(members, epoch)

    async def main() -> None:
        controllers = Choosy()
        async with (
            set_master(tmp_path, controllers, slaveTimeout="20000") as first,
            ScriptedMember(first.ha_master.port, broker_id=9) as stranger,
            ScriptedMember(first.ha_master.port) as slave,
            Peer(first.port) as peer,
        ):
            for one in (stranger, slave):
                await one.handshake()
                one.say(0)
            await until(lambda: state_of(first).members == {1, 2})
            await until(lambda: state_of(first).waited_for == {1, 2})
            following = asyncio.create_task(follow(slave))
            assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS
            following.cancel()

    asyncio.run(main())


def test_a_slave_that_stays_behind_leaves(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers((1, 2))
        changes = {"haMaxTimeSlaveNotCatchup": "200", "checkSyncStateSetPeriod": "50"}
        async with followed_set(tmp_path, controllers, **changes) as (first, peer, slave):
            await until(lambda: 2 in state_of(first).slaves)
            await asyncio.sleep(0.4)  # it has all, and stays
            assert controllers.asked == []
            assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS
            assert state_of(first).members == {1}
            await slave.frame()
            slave.say(end_of(first))
            await until(lambda: state_of(first).members == {1, 2})

    asyncio.run(main())


def test_a_member_that_does_not_come_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_state, "FIRST_LOOK", 0.2)

    async def main() -> None:
        controllers = ScriptedControllers((1, 2))
        async with set_master(tmp_path, controllers, slaveTimeout="20000") as first:
            async with Peer(first.port) as peer:
                assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS
                assert state_of(first).members == {1}

    asyncio.run(main())


def test_a_master_that_is_stopped_leaves_the_set_as_it_is(tmp_path: Path) -> None:
    """Else nobody could be elected."""

    async def main() -> None:
        controllers = ScriptedControllers((1, 2))
        async with AsyncExitStack() as parts:
            async with set_master(tmp_path, controllers) as first:
                slave = await parts.enter_async_context(ScriptedMember(first.ha_master.port))
                await slave.handshake()
                slave.say(0)
                await until(lambda: 2 in state_of(first).slaves)
            assert await slave.is_closed()
            assert controllers.asked == []

    asyncio.run(main())


def test_a_held_pull_is_answered_when_its_message_is_confirmed(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers((1, 2))
        async with (
            followed_set(tmp_path, controllers) as (first, peer, slave),
            Peer(first.port) as consumer,
        ):
            await until(lambda: 2 in state_of(first).slaves)
            sending = asyncio.create_task(send(peer, b"1"))
            *_, data = await slave.frame()
            slave.say(len(data))
            await sending
            pulling = asyncio.create_task(
                pull(consumer, pull_request(1, hold=20_000, topic="Orders"))
            )
            queue = first.stores.messages.queue("Orders", 0)
            await until(lambda: bool(queue.waiting))
            sending = asyncio.create_task(send(peer, b"a table"))
            _, _, _, more = await slave.frame()
            while not more:  # what tells it of the confirm offset
                _, _, _, more = await slave.frame()
            await asyncio.sleep(0.02)
            assert not pulling.done()
            slave.say(len(data) + len(more))
            reply = await pulling
            assert reply.code == ResponseCode.SUCCESS and b"a table" in bytes(reply.body)
            await sending

    asyncio.run(main())


def test_the_disk_and_the_set_are_both_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(gate: threading.Event) -> None:
        controllers = ScriptedControllers((1, 2))
        sync = {"flushDiskType": "SYNC_FLUSH"}
        async with followed_set(tmp_path, controllers, **sync) as (first, peer, slave):
            await until(lambda: 2 in state_of(first).slaves)
            gate.clear()
            sending = asyncio.create_task(send(peer, b"a chair"))
            *_, data = await slave.frame()
            slave.say(len(data))  # the set has it first
            await until(lambda: state_of(first).slaves[2].acked == len(data))
            # Nor may slaves show it: a power cut here would take what they have been read from.
            assert state_of(first).confirmed == 0
            assert shown(first) == 0 and not sending.done()
            gate.set()
            assert (await sending).code == ResponseCode.SUCCESS
            assert shown(first) == 1 and state_of(first).confirmed == len(data)
            sending = asyncio.create_task(send(peer, b"a table"))
            before = end_of(first)
            await until(lambda: end_of(first) > before)
            await until(lambda: first.stores.messages.flushed_offset == end_of(first))
            assert shown(first) == 1 and not sending.done()  # the disk has
            slave.say(end_of(first))
            assert (await sending).code == ResponseCode.SUCCESS
            assert shown(first) == 2

    gate = hold_fsyncs(monkeypatch)
    gate.set()
    asyncio.run(main(gate))


def test_strangers_get_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with asked_set(tmp_path, ScriptedControllers()) as (first, peer):
            assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS
            said = (
                b"GET / HTTP/1.1\r\n\r\n",
                struct.pack(">q", 0) * 3,  # a slave without a controller
                struct.pack(">ihhqiq", 1, 0, 0, 0, 2, 0),  # an id that nobody has
                struct.pack(">ihhqiq", 1, 0, 0, 2, 2, -1),
                struct.pack(">ihhqiqiq", 1, 0, 0, 2, 2, 0, 2, 1 << 40),  # what it was never sent
                struct.pack(">ihhqihhq", 1, 0, 0, 2, 1, 0, 0, 3),  # two ids
            )
            for data in said:
                async with ScriptedMember(first.ha_master.port) as stranger:
                    stranger.writer.write(data)
                    assert await stranger.is_closed()
            await until(lambda: not first.ha_master.slaves)
            assert state_of(first).slaves == {}
            assert (await send(peer, b"a table")).code == ResponseCode.SUCCESS

    asyncio.run(main())


def test_one_that_only_learns_never_joins(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers()
        async with (
            set_master(tmp_path, controllers) as first,
            ScriptedMember(first.ha_master.port) as slave,
            ScriptedMember(first.ha_master.port, broker_id=3) as other,
            Peer(first.port) as peer,
        ):
            await slave.handshake(learner=1)
            slave.say(0)
            assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS
            await slave.frame()
            slave.say(end_of(first))
            await other.handshake()
            other.say(end_of(first))
            await until(lambda: state_of(first).members == {1, 3})

    asyncio.run(main())


def test_with_too_few_in_the_set_nothing_is_taken(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers()
        async with asked_set(tmp_path, controllers, minInSyncReplicas="2") as (first, peer):
            reply = await send(peer, b"a chair")
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert reply.remark == "in-sync replicas not enough"
            assert end_of(first) == 0
            async with empty_member(first) as slave:
                await until(lambda: state_of(first).members == {1, 2})
                following = asyncio.create_task(follow(slave))
                assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS
                following.cancel()
            await until(lambda: state_of(first).members == {1})
            assert (await send(peer, b"a table")).code == ResponseCode.SYSTEM_ERROR
            assert b"a table" not in content(first.stores.messages.log)

    asyncio.run(main())


def test_a_second_connection_of_a_slave_ends_the_first(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers((1, 2, 3))
        async with (
            set_master(tmp_path, controllers, slaveTimeout="100") as first,
            ScriptedMember(first.ha_master.port) as slave,
            ScriptedMember(first.ha_master.port) as again,
            Peer(first.port) as peer,
        ):
            controllers.gate.clear()
            await slave.handshake()
            slave.say(0)
            await again.handshake()
            again.say(0)
            assert await slave.is_closed()
            following = asyncio.create_task(follow(again))
            assert (await send(peer, b"x")).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            following.cancel()
            assert shown(first) == 0

    asyncio.run(main())


def test_without_all_ack_it_is_read_at_once_and_answered_when_so_many_have_it(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        changes = {"allAckInSyncStateSet": "false", "inSyncReplicas": "2"}
        async with followed_set(tmp_path, ScriptedControllers(), **changes) as (first, peer, slave):
            sending = asyncio.create_task(send(peer, b"a chair"))
            _, _, confirmed, data = await slave.frame()
            assert confirmed == len(data)
            assert shown(first) == 1 and not sending.done()
            slave.say(len(data))
            assert (await sending).code == ResponseCode.SUCCESS

    asyncio.run(main())


def test_a_master_without_controllers_waits_for_as_many_slaves_as_it_is_told(
    tmp_path: Path,
) -> None:
    async def answer(count: int) -> Command:
        changes = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "3", "slaveTimeout": "100"}
        async with (
            master(tmp_path / str(count), **changes) as first,
            Peer(first.port) as peer,
            AsyncExitStack() as slaves,
        ):
            for _ in range(2):
                slave = await slaves.enter_async_context(ScriptedSlave(first.ha_master.port))
                slave.say(0)
                if count:
                    count -= 1
                    follower = asyncio.create_task(_follow(slave))
                    slaves.callback(follower.cancel)
            await until(lambda: first.ha_master.nearest() == 0)
            return await send(peer, b"a chair")

    assert asyncio.run(answer(1)).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert asyncio.run(answer(2)).code == ResponseCode.SUCCESS


def test_as_many_slaves_are_waited_for_as_there_are_but_not_fewer_than_the_least(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        changes = {
            "brokerRole": "SYNC_MASTER",
            "inSyncReplicas": "3",
            "enableAutoInSyncReplicas": "true",
            "slaveTimeout": "20000",
        }
        async with master(tmp_path, **changes) as first, Peer(first.port) as peer:
            assert (await send(peer, b"1")).code == ResponseCode.SUCCESS  # nobody is there
            port = first.ha_master.port
            async with ScriptedSlave(port) as one, ScriptedSlave(port) as other:
                one.say(0)
                await until(lambda: first.ha_master.wanted() == 1)
                other.say(0)
                await until(lambda: first.ha_master.wanted() == 2)
                sending = asyncio.create_task(send(peer, b"2"))
                before = end_of(first)
                await until(lambda: end_of(first) > before)
                one.say(end_of(first))
                await until(lambda: max(s.acked for s in first.ha_master.slaves) == end_of(first))
                assert not sending.done()
                other.writer.close()  # then one is enough
                assert (await sending).code == ResponseCode.SUCCESS
        least = {**changes, "minInSyncReplicas": "2"}
        async with master(tmp_path, **least) as first, Peer(first.port) as peer:
            end = end_of(first)
            reply = await send(peer, b"3")
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert reply.remark == "in-sync replicas not enough"
            async with ScriptedSlave(first.ha_master.port) as one:
                one.say(end)
                await until(lambda: first.ha_master.nearest() == end)
                following = asyncio.create_task(_follow(one))
                assert (await send(peer, b"4")).code == ResponseCode.SUCCESS
                following.cancel()

    asyncio.run(main())


async def _follow(slave: ScriptedSlave) -> None:
    while True:
        offset, data = await slave.frame()
        slave.say(offset + len(data))


def test_news_of_the_old_set_amid_a_question_do_not_answer_it(tmp_path: Path) -> None:
    """A look at the set may be answered before the question is, or that answer be lost."""

    async def main() -> None:
        controllers = ScriptedControllers()
        settings = {"slaveTimeout": "300"}
        async with asked_set(tmp_path, controllers, **settings) as (first, peer):
            assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS
            controllers.gate.clear()
            async with empty_member(first) as slave:
                *_, data = await slave.frame()
                slave.say(len(data))
                await until(lambda: len(controllers.asked) == 1)
                controllers.tell(frozenset({1}), 1)
            await until(lambda: not state_of(first).slaves)
            # The controllers may have taken the slave in: it may be elected now.
            assert (await send(peer, b"a table")).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert shown(first) == 1
            controllers.failure = TimeoutError("nobody answers")
            controllers.gate.set()
            await until(lambda: state_of(first).refused_changes == 1)
            controllers.tell(frozenset({1}), 1)
            assert state_of(first).waited_for == {1, 2}

    asyncio.run(main())


def test_of_strangers_that_leave_nothing_is_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with set_master(tmp_path, ScriptedControllers()) as first:
            for number in (7, 8, 9):
                async with ScriptedMember(first.ha_master.port, number) as stranger:
                    await stranger.handshake()
                await until(lambda: not state_of(first).slaves)
            assert not state_of(first)._gone

    asyncio.run(main())
