"""Offsets that groups commit through a snode."""

import asyncio
import logging
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.daemons.peer import Peer
from tests.daemons.snode.test_clients import beat
from tests.daemons.snode.world import ENODE, World, broker_settings, until, world

KEY = {"consumerGroup": "g", "topic": "T", "queueId": "1", "enodeName": ENODE}


async def commit(peer: Peer, offset: int, **changed: str) -> Command:
    fields = {**KEY, "commitOffset": str(offset), **changed}
    return await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)


async def query(peer: Peer) -> Command:
    return await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, KEY)


def at_enode(one: World) -> int:
    return one.broker.stores.offsets.query("g", "T", 1)


def test_an_offset_is_kept_here_and_goes_to_the_enode_at_the_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            assert (await commit(peer, 7)).code == ResponseCode.SUCCESS
            assert (await query(peer)).fields["offset"] == "7"
            assert at_enode(one) == -1
            await one.snode.__aexit__()
            assert at_enode(one) == 7

    asyncio.run(main())


def test_offsets_go_to_the_enode_again_and_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, persistOffsetInterval="20") as one, Peer(one.port) as peer:
            await one.make_topic("T")
            for offset in (7, 9):
                await commit(peer, offset)
                await until(lambda offset=offset: at_enode(one) == offset)
            assert one.snode.offsets.unsent == 0

    asyncio.run(main())


def test_with_forward_offsets_a_commit_is_the_enodes_when_it_is_answered(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, forwardOffsets="true") as one, Peer(one.port) as peer:
            await one.make_topic("T")
            assert (await commit(peer, 7)).code == ResponseCode.SUCCESS
            assert at_enode(one) == 7
            one.broker.stores.offsets.commit("g", "T", 1, 5)
            assert (await query(peer)).fields["offset"] == "5"  # it is always asked
            assert one.snode.offsets.acked(ENODE, "T", "g", 1) == 7

    asyncio.run(main())


@pytest.mark.parametrize("forwards", ["true", "false"])
def test_a_group_of_which_no_offset_is_known_is_told_so(tmp_path: Path, forwards: str) -> None:
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


def test_what_the_enode_knows_is_told_where_nothing_was_committed_here(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            one.broker.stores.offsets.commit("g", "T", 1, 42)
            assert (await query(peer)).fields["offset"] == "42"

    asyncio.run(main())


def test_a_smaller_offset_is_taken_with_a_warning(
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


def test_offsets_are_the_enodes_when_the_members_of_a_group_change(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            await beat(peer, "c1")
            await commit(peer, 7)
            async with Peer(one.port) as other:
                await beat(other, "c2")
                await until(lambda: at_enode(one) == 7)
                await until(lambda: len(one.snode.offsets) == 0)
            one.broker.stores.offsets.commit("g", "T", 1, 8)  # by another snode
            assert (await query(peer)).fields["offset"] == "8"

    asyncio.run(main())


def test_offsets_of_an_enode_that_is_away_wait_for_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, persistOffsetInterval="20") as one, Peer(one.port) as peer:
            await one.make_topic("T")
            await commit(peer, 7)
            port = str(one.broker.port)
            await one.broker.__aexit__(None, None, None)
            await one.snode.offsets.send_all()
            await until(lambda: one.snode.offsets.unsent <= 1)
            if one.snode.offsets.unsent:  # it was not taken before the end
                again = broker_settings(tmp_path, ENODE, one.name_server.address, listenPort=port)
                async with Broker(again) as broker:
                    await until(lambda: broker.stores.offsets.query("g", "T", 1) == 7)

    asyncio.run(main())


def test_an_offset_of_an_enode_that_nobody_knows_is_not_taken(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            reply = await commit(peer, 7, enodeName="nobody")
            assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert len(one.snode.offsets) == 0

    asyncio.run(main())


def test_beyond_a_limit_offsets_are_the_enodes_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, maxCachedOffsets="1") as one, Peer(one.port) as peer:
            await one.make_topic("T")
            await commit(peer, 7)
            assert (await commit(peer, 8, queueId="2")).code == ResponseCode.SUCCESS
            assert one.broker.stores.offsets.query("g", "T", 2) == 8
            assert len(one.snode.offsets) == 1

    asyncio.run(main())


def test_what_was_sent_to_the_enode_is_its_own_to_tell(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            await commit(peer, 7)
            await one.snode.offsets.send_all()
            one.broker.stores.offsets.commit("g", "T", 1, 9)  # by another snode
            assert (await query(peer)).fields["offset"] == "9"
            await commit(peer, 8)  # on purpose
            assert (await query(peer)).fields["offset"] == "8"

    asyncio.run(main())


def test_a_name_that_nothing_has_is_not_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await commit(peer, 7, consumerGroup="g" * 100_000)
            assert len(one.snode.offsets) == 0

    asyncio.run(main())
