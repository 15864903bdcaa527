"""Heartbeats with very many groups do not delay others."""

import asyncio
import json
from pathlib import Path

import pytest

from mq.daemons import state_file
from mq.daemons.broker.app import Broker
from mq.daemons.broker.clients import client_handlers
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.dispatch import Overloaded
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from tests.daemons.own_time import worst_while
from tests.daemons.peer import PATIENCE, Peer


def heartbeat(count: int, client_id: str = "c@1", start: int = 0) -> bytes:
    """The body that Java writes for so many groups."""
    groups = [
        {
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "consumeType": "CONSUME_PASSIVELY",
            "groupName": f"group-{number}",
            "messageModel": "CLUSTERING",
            "subscriptionDataSet": [
                {"topic": "Orders", "subString": "*", "subVersion": 1, "tagsSet": [], "codeSet": []}
            ],
            "unitMode": False,
        }
        for number in range(start, start + count)
    ]
    told = {"clientID": client_id, "consumerDataSet": groups, "producerDataSet": []}
    return json.dumps(told).encode()


def settings(root: Path, **more: str) -> BrokerSettings:
    fixed = {"brokerName": "broker-a", "listenPort": "0", "storePathRootDir": str(root / "store")}
    return BrokerSettings.load(None, {**fixed, **more})


def test_a_heartbeat_of_a_thousand_groups_delays_no_other_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, writes = state_file._write, 0

    def write(path: Path, data: bytes) -> None:
        nonlocal writes
        writes += 1
        real(path, data)

    monkeypatch.setattr(state_file, "_write", write)

    async def main() -> None:
        loaded = settings(tmp_path)
        async with Broker(loaded) as broker, Peer(broker.port) as peer, Peer(broker.port) as other:
            asked = asyncio.ensure_future(peer.ask(RequestCode.HEART_BEAT, {}, heartbeat(1000)))
            worst = await worst_while(asked, other)
            assert asked.result().code == ResponseCode.SUCCESS
            assert worst < 1.0  # usually 0.05
            assert writes < 100  # 44 s when each group was saved separately
            assert len(broker.clients.consumers.groups) == 1000
            assert broker.stores.topics.get("%RETRY%group-999") is not None
            channel = next(c for c in broker.listener.channels if c.remote == peer.address)
            assert channel.memory > len(heartbeat(1000))
        again = Groups(tmp_path / "store/config/subscriptionGroup.json", BrokerSettings())
        assert {f"group-{number}" for number in range(1000)} <= again.table.keys()

    asyncio.run(main())


def test_groups_created_by_heartbeats_are_saved_together_soon(tmp_path: Path) -> None:
    async def main() -> None:
        async with Broker(settings(tmp_path)) as broker, Peer(broker.port) as peer:
            assert (await peer.ask(RequestCode.HEART_BEAT, {}, heartbeat(50))).code == 0
            path = tmp_path / "store/config/subscriptionGroup.json"
            async with asyncio.timeout(PATIENCE):
                while not path.exists() or b"group-49" not in path.read_bytes():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    asyncio.run(main())


def test_too_many_groups_in_a_heartbeat_are_refused_by_the_name_of_the_setting(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        loaded = settings(tmp_path, heartbeatMaxGroups="20")
        async with Broker(loaded) as broker, Peer(broker.port) as peer:
            reply = await peer.ask(RequestCode.HEART_BEAT, {}, heartbeat(21))
            assert reply.code == ResponseCode.SYSTEM_BUSY
            assert "heartbeatMaxGroups" in (reply.remark or "")
            huge = b" " * client_handlers.MOST_HEARTBEAT_BYTES + heartbeat(1)
            reply = await peer.ask(RequestCode.HEART_BEAT, {}, huge)
            assert reply.code == ResponseCode.SYSTEM_BUSY
            assert not broker.clients.consumers.groups
            assert (
                broker.listener.dispatcher.refusals[RequestCode.HEART_BEAT, "heartbeatMaxGroups"]
                == 2
            )
            assert (await peer.ask(RequestCode.HEART_BEAT, {}, heartbeat(20))).code == 0

    asyncio.run(main())


def test_beyond_the_limit_of_groups_none_is_created_for_a_client(tmp_path: Path) -> None:
    settings = BrokerSettings()
    groups = Groups(tmp_path / "g.json", settings)
    settings.operation = settings.operation.replace(max_auto_created_groups=len(groups.table))
    with pytest.raises(Overloaded, match="maxAutoCreatedGroups"):
        groups.find("g")
    assert "g" not in groups.table
    assert groups.find("TOOLS_CONSUMER") is not None


def test_members_of_very_many_groups_are_notified_in_several_iterations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_handlers, "_NOTIFIED_AT_ONCE", 10)

    async def main() -> None:
        async with Broker(settings(tmp_path)) as broker, Peer(broker.port) as peer:
            assert (await peer.ask(RequestCode.HEART_BEAT, {}, heartbeat(200))).code == 0
            told = {(await peer.pushed_command()).fields["consumerGroup"] for _ in range(200)}
            assert told == {f"group-{number}" for number in range(200)}

    asyncio.run(main())


def test_a_client_of_many_groups_that_disconnects_leaves_all_of_them(tmp_path: Path) -> None:
    async def main() -> None:
        async with Broker(settings(tmp_path)) as broker:
            async with Peer(broker.port) as peer, Peer(broker.port) as other:
                assert (await peer.ask(RequestCode.HEART_BEAT, {}, heartbeat(300))).code == 0
                assert (await other.ask(RequestCode.HEART_BEAT, {}, heartbeat(10, "c@2"))).code == 0
                await peer.close()
                async with asyncio.timeout(PATIENCE):
                    while len(broker.clients.consumers.groups) != 10:
                        await other.ask(99999)
                assert broker.clients.consumers.groups["group-0"].client_ids() == ["c@2"]

    asyncio.run(main())


def test_a_client_that_disconnects_during_its_large_heartbeat_is_not_a_member(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with Broker(settings(tmp_path)) as broker:
            async with Peer(broker.port) as gone:
                await gone.ask(99999)  # it is accepted
                gone.writer.write(encode(Command(RequestCode.HEART_BEAT, {}, heartbeat(300))))
                await gone.writer.drain()
            async with asyncio.timeout(PATIENCE):
                while broker.listener.channels:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            await broker.listener.finish(PATIENCE)
            assert not broker.clients.consumers.groups

    asyncio.run(main())
