"""Offsets that groups commit through a snode."""

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler, Reply
from mq.daemons.snode.offsets import Key
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests import answered
from tests.client.scripted import scripted
from tests.daemons.broker.acl.accounts import home
from tests.daemons.broker.acl.guarded import ACCOUNTS, MINE, SigningPeer
from tests.daemons.peer import Peer
from tests.daemons.snode.pulls import beat
from tests.daemons.snode.world import ENODE, OTHER, World, beside, broker_settings, world
from tests.waiting import until

KEY = {"consumerGroup": "g", "topic": "T", "queueId": "1", "enodeName": ENODE}


async def commit(peer: Peer, offset: int, **changed: str) -> Command:
    fields = {**KEY, "commitOffset": str(offset), **changed}
    return await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)


async def query(peer: Peer) -> Command:
    return await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, KEY)


def at_enode(one: World) -> int:
    return one.broker.stores.offsets.query("g", "T", 1)


async def until_at(one: World, offset: int) -> None:
    await until(lambda: at_enode(one) == offset)


@answered.by_snode(RequestCode.UPDATE_CONSUMER_OFFSET)
def test_an_offset_is_kept_here_and_sent_to_the_enode_at_the_stop(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            assert (await commit(peer, 7)).code == ResponseCode.SUCCESS
            assert (await query(peer)).fields["offset"] == "7"
            assert at_enode(one) == -1
            await one.snode.__aexit__()
            assert at_enode(one) == 7

    asyncio.run(main())


def test_offsets_are_sent_to_the_enode_periodically(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, persistOffsetInterval="20") as one, Peer(one.port) as peer:
            await one.make_topic("T")
            for offset in (7, 9):
                await commit(peer, offset)
                await until_at(one, offset)
            await until(lambda: one.snode.offsets.unsent == 0)

    asyncio.run(main())


def test_with_forward_offsets_a_commit_reaches_the_enode_before_its_reply(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, forwardOffsets="true") as one, Peer(one.port) as peer:
            await one.make_topic("T")
            assert (await commit(peer, 7)).code == ResponseCode.SUCCESS
            assert at_enode(one) == 7
            one.broker.stores.offsets.commit("g", "T", 1, 5)
            assert (await query(peer)).fields["offset"] == "5"  # it is queried each time
            assert one.snode.offsets.acked(ENODE, "T", "g", 1) == 7

    asyncio.run(main())


@pytest.mark.parametrize("forwards", ["true", "false"])
def test_a_group_without_a_known_offset_gets_not_found(tmp_path: Path, forwards: str) -> None:
    async def main() -> None:
        async with world(tmp_path, forwardOffsets=forwards) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            fields = {"setZeroIfNotFound": "false"}
            reply = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, KEY | fields)
            async with Peer(one.broker.port) as direct:
                true = await direct.ask(RequestCode.QUERY_CONSUMER_OFFSET, KEY | fields)
            assert (reply.code, reply.remark) == (true.code, true.remark)
            assert reply.code == ResponseCode.QUERY_NOT_FOUND

    asyncio.run(main())


@answered.by_snode(RequestCode.QUERY_CONSUMER_OFFSET)
def test_without_a_commit_here_the_enodes_offset_is_returned(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            one.broker.stores.offsets.commit("g", "T", 1, 42)
            assert (await query(peer)).fields["offset"] == "42"

    asyncio.run(main())


def test_a_smaller_offset_is_accepted_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            await commit(peer, 9)
            assert "less than store" not in caplog.text
            assert (await commit(peer, 4)).code == ResponseCode.SUCCESS
            assert (await query(peer)).fields["offset"] == "4"
            assert "requestOffset=4, storeOffset=9" in caplog.text

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())


def test_offsets_are_sent_to_the_enode_when_the_members_of_a_group_change(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            await beat(peer, "c1")
            await commit(peer, 7)
            async with Peer(one.port) as other:
                await beat(other, "c2")
                await until(lambda: at_enode(one) == 7)
                await until(lambda: len(one.snode.offsets) == 0)
            one.broker.stores.offsets.commit("g", "T", 1, 8)  # through another snode
            assert (await query(peer)).fields["offset"] == "8"

    asyncio.run(main())


def test_offsets_of_an_unavailable_enode_wait_for_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, persistOffsetInterval="20") as one, Peer(one.port) as peer:
            await one.make_topic("T")
            await commit(peer, 7)
            port = str(one.broker.port)
            await one.broker.__aexit__(None, None, None)
            await one.snode.offsets.send_all()
            await until(lambda: one.snode.offsets.unsent <= 1)
            if one.snode.offsets.unsent:  # it was not sent before the end
                again = broker_settings(tmp_path, ENODE, one.name_server.address, listenPort=port)
                async with Broker(again) as broker:
                    await until(lambda: broker.stores.offsets.query("g", "T", 1) == 7)

    asyncio.run(main())


def test_an_offset_of_an_unknown_enode_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            reply = await commit(peer, 7, enodeName="nobody")
            assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert len(one.snode.offsets) == 0

    asyncio.run(main())


def test_beyond_a_limit_offsets_are_sent_to_the_enode_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, maxCachedOffsets="1") as one, Peer(one.port) as peer:
            await one.make_topic("T")
            await commit(peer, 7)
            assert (await commit(peer, 8, queueId="2")).code == ResponseCode.SUCCESS
            assert one.broker.stores.offsets.query("g", "T", 2) == 8
            assert len(one.snode.offsets) == 1

    asyncio.run(main())


def test_offsets_sent_to_the_enode_are_queried_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            await commit(peer, 7)
            await one.snode.offsets.send_all()
            one.broker.stores.offsets.commit("g", "T", 1, 9)  # through another snode
            assert (await query(peer)).fields["offset"] == "9"
            await commit(peer, 8)  # on purpose
            assert (await query(peer)).fields["offset"] == "8"

    asyncio.run(main())


def test_an_invalid_name_is_not_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await commit(peer, 7, consumerGroup="g" * 100_000)
            assert len(one.snode.offsets) == 0

    asyncio.run(main())


def test_with_forwarded_signatures_the_enode_stores_and_returns_offsets(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        guarded = {"aclEnable": "true", "rocketmqHome": str(home(tmp_path, ACCOUNTS))}
        key = {**KEY, "consumerGroup": "mine_group", "topic": "mine"}
        async with (
            world(tmp_path, brokers=guarded) as one,
            SigningPeer(one.port, MINE) as peer,
            Peer(one.port) as stranger,
        ):
            await one.make_topic("mine")
            await stranger.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET, {**key, "commitOffset": "1000000"}
            )
            asked = {**key, "setZeroIfNotFound": "false"}
            reply = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked)
            assert reply.code == ResponseCode.QUERY_NOT_FOUND
            done = await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**key, "commitOffset": "7"})
            assert done.code == ResponseCode.SUCCESS
            assert one.broker.stores.offsets.query("mine_group", "mine", 1) == 7

    asyncio.run(main())


def test_offsets_that_are_sent_twice_at_the_stop_delay_no_others(tmp_path: Path) -> None:
    """The last members leave while all offsets are sent for the last time."""

    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T", queues=400)
            await beat(peer, "c1", "leaves")
            for number in range(400):
                await commit(peer, 7, queueId=str(number))
            await commit(peer, 7, consumerGroup="leaves")
            await one.snode.__aexit__()
            offsets = one.broker.stores.offsets
            assert {offsets.query("g", "T", number) for number in range(400)} == {7}
            assert offsets.query("leaves", "T", 1) == 7

    asyncio.run(main())


def test_a_late_offset_does_not_revert_a_commit_elsewhere(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            at = one.broker.stores.offsets
            for here, there, then in (
                (100, None, 100),
                (200, 500, 500),  # through another snode, which had the queue from then on
                (600, None, 600),
                (550, None, 550),  # on purpose
                (560, 20, 560),  # an enode that has lost unwritten data
            ):
                await commit(peer, here)
                if there is not None:
                    at.commit("g", "T", 1, there)
                await one.snode.offsets.send_all()
                assert at_enode(one) == then
                assert one.snode.offsets.unsent == 0
                assert (await query(peer)).fields["offset"] == str(then)

    asyncio.run(main())


def test_many_offsets_are_sent_by_few_tasks(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T", queues=500)
            for number in range(500):
                await commit(peer, 7, queueId=str(number))
            sending = asyncio.create_task(one.snode.offsets.send_all())
            most = 0
            while not sending.done():
                await asyncio.sleep(0)
                most = max(most, len(asyncio.all_tasks()))
            assert most < 300
            assert one.snode.offsets.unsent == 0

    asyncio.run(main())


def enode_that(answers: Mapping[RequestCode, ResponseCode], asked: list[Command]) -> Handler:
    """An enode that replies with these codes, and then with success."""

    def answer(request: Command, channel: Channel) -> Command:
        asked.append(request)
        code = answers.get(RequestCode(request.code), ResponseCode.SUCCESS)
        fields = {"offset": "500"} if request.code == RequestCode.QUERY_CONSUMER_OFFSET else None
        return request.reply(code, fields)

    return answer


def committed(asked: list[Command]) -> list[str]:
    return [
        request.fields["commitOffset"]
        for request in asked
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET
    ]


def test_no_offset_is_reverted_while_an_enode_does_not_return_the_groups_offset(
    tmp_path: Path,
) -> None:
    answers: dict[RequestCode, ResponseCode] = {}
    asked: list[Command] = []

    async def main() -> None:
        handler = enode_that(answers, asked)
        async with beside(handler, tmp_path) as (one, peer):
            await commit(peer, 100, enodeName=OTHER)
            await one.snode.offsets.send_all()
            assert committed(asked) == ["100"]
            # Meanwhile the group reached 500 through another snode.
            await commit(peer, 200, enodeName=OTHER)
            answers[RequestCode.QUERY_CONSUMER_OFFSET] = ResponseCode.SYSTEM_BUSY
            await one.snode.offsets.send_all()
            assert (committed(asked), one.snode.offsets.unsent) == (["100"], 1)
            answers.clear()
            await one.snode.offsets.send_all()
            assert (committed(asked), one.snode.offsets.unsent) == (["100"], 0)

    asyncio.run(main())


@pytest.mark.parametrize(
    "code", [ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST]
)
def test_an_offset_waits_for_a_master_that_does_not_know_its_topic_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: ResponseCode
) -> None:
    answers = {RequestCode.UPDATE_CONSUMER_OFFSET: code}
    asked: list[Command] = []

    async def main() -> None:
        handler = enode_that(answers, asked)
        async with beside(handler, tmp_path) as (one, peer):
            offsets = one.snode.offsets
            await commit(peer, 7, enodeName=OTHER)
            await offsets.send_all()
            assert (offsets.unsent, offsets.sent) == (1, 0)
            answers.clear()
            await offsets.send_all()
            assert (offsets.unsent, offsets.sent) == (0, 1)
            # Nothing is kept for a topic that is deleted for good.
            monkeypatch.setattr("mq.daemons.snode.offsets.GIVE_UP_SECONDS", 0.0)
            answers[RequestCode.UPDATE_CONSUMER_OFFSET] = code
            await commit(peer, 600, enodeName=OTHER)
            await offsets.send_all()
            assert (offsets.unsent, offsets.sent) == (0, 1)

    asyncio.run(main())


def test_a_change_of_members_keeps_the_offsets_sent_to_an_enode_before(tmp_path: Path) -> None:
    answers: dict[RequestCode, ResponseCode] = {}
    asked: list[Command] = []

    async def main() -> None:
        handler = enode_that(answers, asked)
        async with beside(handler, tmp_path) as (one, peer):
            offsets = one.snode.offsets
            await commit(peer, 100, enodeName=OTHER)
            await offsets.send_all()
            # A member changes to another snode, through which the group reaches 500.
            await commit(peer, 200, enodeName=OTHER)
            answers[RequestCode.QUERY_CONSUMER_OFFSET] = ResponseCode.SYSTEM_BUSY
            offsets.group_changed("g")
            await until(lambda: offsets.failed == 1)
            answers.clear()
            await offsets.send_all()
            assert (committed(asked), offsets.unsent) == (["100"], 0)

    asyncio.run(main())


def test_at_a_stop_an_enode_that_is_busy_for_a_moment_is_asked_again(tmp_path: Path) -> None:
    answers: dict[RequestCode, ResponseCode] = {}
    asked: list[Command] = []
    usual = enode_that(answers, asked)

    def busy_once(request: Command, channel: Channel) -> Reply | Awaitable[Reply]:
        answer = usual(request, channel)
        if request.code == RequestCode.QUERY_CONSUMER_OFFSET:
            answers.clear()
        return answer

    async def main() -> None:
        async with beside(busy_once, tmp_path) as (one, peer):
            await commit(peer, 100, enodeName=OTHER)
            await one.snode.offsets.send_all()
            await commit(peer, 600, enodeName=OTHER)
            answers[RequestCode.QUERY_CONSUMER_OFFSET] = ResponseCode.SYSTEM_BUSY
            await one.snode.__aexit__()
        assert committed(asked) == ["100", "600"]

    asyncio.run(main())


def test_offsets_lost_at_a_stop_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers = {RequestCode.UPDATE_CONSUMER_OFFSET: ResponseCode.SYSTEM_BUSY}
    asked: list[Command] = []

    async def main() -> None:
        handler = enode_that(answers, asked)
        async with beside(handler, tmp_path) as (one, peer):
            await commit(peer, 7, enodeName=OTHER)
            await one.snode.__aexit__()
        assert len(committed(asked)) > 1
        assert "1 offsets are lost" in caplog.text

    asyncio.run(main())


def test_an_enode_that_hangs_delays_no_offsets_of_others_at_a_stop(tmp_path: Path) -> None:
    """Neither those of an available enode, nor those of one that is busy for a moment."""
    forever = asyncio.Event()
    busy = {RequestCode.UPDATE_CONSUMER_OFFSET: ResponseCode.SYSTEM_BUSY}
    asked: list[Command] = []
    usual = enode_that(busy, asked)

    async def hangs(request: Command, channel: Channel) -> Command:
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            await forever.wait()
        return request.reply()

    def busy_once(request: Command, channel: Channel) -> Reply | Awaitable[Reply]:
        answer = usual(request, channel)
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            busy.clear()
        return answer

    async def main() -> None:
        async with (
            scripted({int(code): busy_once for code in RequestCode}) as third,
            beside(hangs, tmp_path) as (one, peer),
        ):
            one.pretend("broker-c", int(third.split(":")[1]))
            await one.snode.enodes.refresh()
            await one.make_topic("T")
            for number in range(100):
                await commit(peer, 7, queueId=str(number), enodeName=OTHER)
            await commit(peer, 7)
            await commit(peer, 7, enodeName="broker-c")
            await one.snode.__aexit__()
            assert at_enode(one) == 7
            assert committed(asked) == ["7", "7"]
            forever.set()

    asyncio.run(main())


@pytest.mark.parametrize("change", ["another master", "started anew"])
def test_the_time_of_an_unknown_topic_counts_for_each_master_separately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Otherwise an offset was dropped at the first reply of a broker that had just become the
    master.
    """
    now = 0.0
    answers = {RequestCode.UPDATE_CONSUMER_OFFSET: ResponseCode.TOPIC_NOT_EXIST}
    asked: list[Command] = []
    channels: list[Channel] = []
    usual = enode_that(answers, asked)
    monkeypatch.setattr("mq.daemons.snode.offsets.clock", SimpleNamespace(monotonic=lambda: now))

    def answer(request: Command, channel: Channel) -> Reply | Awaitable[Reply]:
        channels.append(channel)
        return usual(request, channel)

    async def main() -> None:
        nonlocal now
        async with (
            scripted({int(code): answer for code in RequestCode}) as another,
            beside(answer, tmp_path) as (one, peer),
        ):
            offsets = one.snode.offsets
            await commit(peer, 7, enodeName=OTHER)
            await offsets.send_all()
            now = 1000.0
            if change == "another master":
                one.pretend(OTHER, int(another.split(":")[1]))
                await one.snode.enodes.refresh()
            else:
                ended = one.snode.enodes.session.ended(one.snode.enodes.masters[OTHER])
                channels[-1].close()
                await asyncio.wait([ended])
            await offsets.send_all()
            assert (offsets.unsent, len(committed(asked))) == (1, 2)
            now = 2000.0  # nothing is kept for a topic that is deleted for good
            await offsets.send_all()
            assert offsets.unsent == 0

    asyncio.run(main())


def test_an_offset_that_a_pull_commits_meanwhile_is_not_reverted(tmp_path: Path) -> None:
    """While the group's offset was being queried, a pull committed a smaller one."""
    asked, told = asyncio.Event(), asyncio.Event()

    async def slow(request: Command, channel: Channel) -> Command:
        if request.code == RequestCode.QUERY_CONSUMER_OFFSET:
            asked.set()
            await told.wait()
        return request.reply(ResponseCode.SUCCESS, {"offset": "500"})

    async def main() -> None:
        async with beside(slow, tmp_path) as (one, peer):
            offsets = one.snode.offsets
            await commit(peer, 100, enodeName=OTHER)
            await offsets.send_all()
            await commit(peer, 200, enodeName=OTHER)
            sending = asyncio.create_task(offsets.send_all())
            await asked.wait()
            offsets.remember(Key(OTHER, "T", "g"), 1, 50, "pull")
            told.set()
            await sending
            assert offsets.acked(OTHER, "T", "g", 1) == 50

    asyncio.run(main())
