"""Data that is deleted with a topic or a group, and later data that stays."""

import asyncio
from pathlib import Path

import pytest

from mq.protocol.bodies import SubscriptionGroupConfig
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.broker.harness import Harness, create_topic, send, serve
from tests.daemons.broker.killed import copy_as_killed
from tests.daemons.broker.store.stores import bodies, put
from tests.daemons.peer import Peer


def test_a_message_sent_just_after_a_topic_is_deleted_stays(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await create_topic(peer, "T", 1)
        await send(peer, "T", b"old")
        broker.stores.offsets.commit("g", "T", 0, 1)
        sends: list[asyncio.Task[None]] = []

        async def send_anew() -> None:
            assert broker.stores.topics.create_for_send("T", "TBW102", 1, 0, "127.0.0.1:1")
            await put(broker.stores.messages, "T", 0, b"new")

        def at_once(topic: str) -> None:
            if topic not in broker.stores.topics.table:
                sends.append(asyncio.ensure_future(send_anew()))

        broker.stores.topics.on_change.append(at_once)
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0
        await asyncio.gather(*sends)
        assert bodies(broker.stores.messages, "T", 0) == [b"new"]
        assert broker.stores.offsets.query("g", "T", 0) == -1

    serve(tmp_path, script)


def test_an_offset_committed_just_after_a_group_is_deleted_stays(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        body = SubscriptionGroupConfig(group_name="g").encode()
        await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        broker.stores.offsets.commit("g", "T", 0, 1)

        async def come_back() -> None:
            while "g" in broker.stores.groups.table:  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert broker.stores.groups.find("g")
            broker.stores.offsets.commit("g", "T", 0, 7)

        member = asyncio.ensure_future(come_back())
        fields = {"groupName": "g", "removeOffset": "true"}
        assert (await peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)).code == 0
        await member
        assert broker.stores.offsets.query("g", "T", 0) == 7

    serve(tmp_path, script)


DELETIONS = {
    RequestCode.DELETE_TOPIC_IN_BROKER: {"topic": "T"},
    RequestCode.DELETE_SUBSCRIPTIONGROUP: {"groupName": "g", "removeOffset": "true"},
}


async def consume_and_save(broker: Harness, peer: Peer) -> None:
    """A topic T of which group g has consumed one message, all of it saved."""
    await create_topic(peer, "T", 1)
    await send(peer, "T", b"old")
    body = SubscriptionGroupConfig(group_name="g").encode()
    await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
    broker.stores.offsets.commit("g", "T", 0, 1)
    await broker.stores.offsets.save()


@pytest.mark.parametrize("code", DELETIONS)
def test_a_kill_does_not_restore_deleted_offsets(tmp_path: Path, code: RequestCode) -> None:
    """The group skipped the messages of the topic that was created again."""
    copy = tmp_path / "copy"

    async def before(broker: Harness, peer: Peer) -> None:
        await consume_and_save(broker, peer)
        assert (await peer.ask(code, DELETIONS[code])).code == ResponseCode.SUCCESS
        await create_topic(peer, "T", 1)
        await send(peer, "T", b"new")
        copy_as_killed(tmp_path / "killed" / "store", copy / "store")

    async def after(broker: Harness, peer: Peer) -> None:
        assert broker.stores.offsets.query("g", "T", 0) == -1

    (tmp_path / "killed").mkdir()
    serve(tmp_path / "killed", before)
    serve(copy, after)


@pytest.mark.parametrize("code", DELETIONS)
def test_a_deletion_whose_offsets_cannot_be_saved_is_refused_until_they_are(
    tmp_path: Path, code: RequestCode
) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await consume_and_save(broker, peer)
        file = tmp_path / "store" / "config" / "consumerOffset.json"
        in_the_way = file.with_name(file.name + ".tmp")
        in_the_way.mkdir()
        reply = await peer.ask(code, DELETIONS[code])
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "may reappear after a restart; delete it again" in (reply.remark or "")
        assert "T@g" in file.read_text()
        in_the_way.rmdir()
        assert (await peer.ask(code, DELETIONS[code])).code == ResponseCode.SUCCESS
        assert "T@g" not in file.read_text()

    serve(tmp_path, script)
