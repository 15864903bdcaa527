"""A broker in the snode's process."""

import asyncio
from pathlib import Path

import pytest

from mq.client import Consumer, Producer
from mq.daemons.config import ConfigError
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.snode.app import Snode
from mq.protocol.bodies import ConsumeFromWhere, LockBatchRequestBody, TopicConfig
from mq.protocol.bodies.clients import LockBatchResponseBody, UnlockBatchRequestBody
from mq.protocol.bodies.schema import MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.message import Message
from tests.daemons.peer import PATIENCE, Peer
from tests.daemons.snode.world import snode_settings


def embedded(folder: Path, address: str, extra: str = "", **more: str) -> Snode:
    file = folder / "broker.conf"
    file.write_text(
        f"brokerName=inside\nlistenPort=0\nbrokerIP1=127.0.0.1\nstorePathRootDir={folder}/store\n"
        + extra
    )
    given = {"embeddedModeEnable": "true", "embeddedBrokerConfig": str(file), **more}
    return Snode(snode_settings(address, **given))


def test_a_snode_with_a_broker_in_it_sends_and_reads_without_a_socket(tmp_path: Path) -> None:
    async def main() -> None:
        loaded = NamesrvSettings.load(
            None, {"listenPort": "0", "kvConfigPath": str(tmp_path / "kv.json")}
        )
        async with NameServer(loaded) as server, embedded(tmp_path, server.address) as snode:
            assert snode.broker is not None
            assert snode.name == "inside"
            assert snode.enodes.masters == {"inside": snode.broker.address}
            topic = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)
            await snode.broker.stores.topics.update(topic)
            await snode.broker.registration.announced()
            bodies = {b"%d" % number + b"." * 300_000 for number in range(20)}
            async with Producer(snode.address, "p") as producer:
                for body in bodies:
                    await producer.send(Message("T", body))
            found = set()
            async with (
                asyncio.timeout(PATIENCE),
                Consumer(
                    snode.address,
                    "g",
                    {"T": "*"},
                    consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                ) as consumer,
            ):
                async for message in consumer:
                    found.add(message.body)
                    if found == bodies:
                        break
            # All its requests were received without a socket: there is only this connection.
            hosts = {c.remote_address for c in snode.broker.listener.channels}
            assert hosts == {("127.0.0.1", snode.broker.port)}

    asyncio.run(main())


def test_an_unlock_unlocks(tmp_path: Path) -> None:
    """The snode branch locks again (embedded mode of its ConsumerManageProcessor)."""

    async def main() -> None:
        async with embedded(tmp_path, "127.0.0.1:9") as snode, Peer(snode.port) as peer:
            queues = {MessageQueue("T", "inside", 0)}

            async def lock(client: str) -> int:
                body = LockBatchRequestBody(consumer_group="g", client_id=client, mq_set=queues)
                reply = await peer.ask(RequestCode.LOCK_BATCH_MQ, {}, body.encode())
                return len(LockBatchResponseBody.decode(reply.body).lock_ok_mq_set)

            assert (await lock("a"), await lock("b")) == (1, 0)
            body = UnlockBatchRequestBody(consumer_group="g", client_id="a", mq_set=queues)
            await peer.ask(RequestCode.UNLOCK_BATCH_MQ, {}, body.encode())
            assert await lock("b") == 1

    asyncio.run(main())


def test_a_broker_whose_role_changes_is_not_embedded(tmp_path: Path) -> None:
    async def main() -> None:
        extra = "enableControllerMode=true\ncontrollerAddr=127.0.0.1:9\nlistenPort=20911\n"
        async with embedded(tmp_path, "127.0.0.1:9", extra):
            pass

    with pytest.raises(ConfigError, match="cannot change its role"):
        asyncio.run(main())
