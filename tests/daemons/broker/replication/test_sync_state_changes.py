"""The answers of controllers to changes of the sync state set, and which slaves senders wait for
meanwhile.
"""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.replication import sync_state
from mq.daemons.broker.replication.controlled import ControllerRefused
from mq.protocol.codes import ResponseCode
from tests.daemons.broker.replication.pair import end_of, send
from tests.daemons.broker.replication.sets import (
    ScriptedControllers,
    ScriptedMember,
    asked_set,
    empty_member,
    follow,
    set_master,
    shown,
    state_of,
)
from tests.daemons.peer import Peer
from tests.waiting import until


def test_a_slave_that_has_left_is_waited_for_until_the_controllers_agree(tmp_path: Path) -> None:
    """Java 5.5.0 drops it at once: messages answered then are lost if it becomes master."""

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


def test_two_members_that_leave_together_are_both_removed(tmp_path: Path) -> None:
    """One leaves while the controllers are asked about the other (Java's PR 9897)."""

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
def test_a_change_with_unknown_outcome_counts_like_a_made_one(
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
                # Long after that, a controller reports the old set.
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
                await until(lambda: state_of(first).refused_changes > 0)
            await until(lambda: not state_of(first).slaves)
            assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS

    asyncio.run(main())


def test_a_slave_unknown_to_the_controllers_delays_no_sender(tmp_path: Path) -> None:
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


def test_a_report_of_the_old_set_during_a_request_does_not_resolve_it(tmp_path: Path) -> None:
    """A query of the set may be answered before the request, or the request's answer be lost."""

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
            # The controllers may have added the slave: it may be elected now.
            assert (await send(peer, b"a table")).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert shown(first) == 1
            controllers.failure = TimeoutError("nobody answers")
            controllers.gate.set()
            await until(lambda: state_of(first).refused_changes > 0)
            controllers.tell(frozenset({1}), 1)
            assert state_of(first).waited_for == {1, 2}

    asyncio.run(main())
