"""What is deleted with a topic or a group, and what has come since stays."""

import asyncio
from pathlib import Path

from mq.protocol.bodies import SubscriptionGroupConfig
from mq.protocol.codes import RequestCode
from tests.daemons.broker.harness import Harness, create_topic, send, serve
from tests.daemons.broker.store.stores import bodies, put
from tests.daemons.peer import Peer


def test_what_is_sent_a_moment_after_a_topic_is_deleted_stays(tmp_path: Path) -> None:
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


def test_what_a_group_commits_a_moment_after_it_was_deleted_stays(tmp_path: Path) -> None:
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
