"""A running master, and clients with arbitrary requests."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from google.protobuf.message import Message

from mq.daemons.tube.master.app import Master
from mq.daemons.tube.master.balance_rounds import balance_all
from mq.daemons.tube.master.config import MasterSettings
from mq.protocol.tube import messages as m
from mq.protocol.tube.codes import Method
from mq.protocol.tube.frame import FrameDecoder
from mq.protocol.tube.rpc import decode_response, encode_request
from mq.protocol.tube.settings import checksum

M = TypeVar("M", bound=Message)

TOKEN = "secret"
ANSWERS: dict[Method, type[Message]] = {
    Method.PRODUCER_REGISTER_P2M: m.RegisterResponseM2P,
    Method.PRODUCER_HEARTBEAT_P2M: m.HeartResponseM2P,
    Method.PRODUCER_CLOSE_P2M: m.CloseResponseM2P,
    Method.CONSUMER_REGISTER_C2M: m.RegisterResponseM2C,
    Method.CONSUMER_HEARTBEAT_C2M: m.HeartResponseM2C,
    Method.CONSUMER_CLOSE_C2M: m.CloseResponseM2C,
    Method.BROKER_REGISTER_B2M: m.RegisterResponseM2B,
    Method.BROKER_HEARTBEAT_B2M: m.HeartResponseM2B,
    Method.BROKER_CLOSE_B2M: m.CloseResponseM2B,
    Method.CONSUMER_REGISTER_V2_C2M: m.RegisterResponseM2CV2,
    Method.CONSUMER_HEARTBEAT_V2_C2M: m.HeartResponseM2CV2,
    Method.CONSUMER_GET_PART_META_C2M: m.GetPartMetaResponseM2C,
}


def settings(tmp: Path, **more: object) -> MasterSettings:
    """Settings for a master whose rounds a test runs, and whose steps do not wait."""
    return MasterSettings.load(
        None,
        {
            "port": "0",
            "webPort": "0",
            "metaDataPath": str(tmp / "meta"),
            "confModAuthToken": TOKEN,
            "consumerBalancePeriodMs": "3600000",
            "subscribeWaitMs": "0",
            "publishWaitMs": "0",
            **{name: str(value) for name, value in more.items()},
        },
    )


@asynccontextmanager
async def running(tmp: Path, **more: object) -> AsyncIterator["Masters"]:
    """A master with a client."""
    async with Master(settings(tmp, **more)) as master, peer_of(master) as peer:
        yield Masters(master, peer)


@asynccontextmanager
async def peer_of(master: Master) -> AsyncIterator["Peer"]:
    reader, writer = await asyncio.open_connection("127.0.0.1", master.port)
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()


class Peer:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = FrameDecoder()
        self._serials = itertools.count(1)

    async def ask(self, method: Method, request: Message) -> Any:
        """Return the answer. Raises RemoteFailure."""
        serial = next(self._serials)
        body = request.SerializeToString()
        self._writer.write(encode_request(serial, method, body, 9500))
        while True:
            data = await self._reader.read(1 << 16)
            assert data, "the master has closed the connection"
            for answered, payload in self._decoder.feed(data):
                assert answered == serial
                kind = ANSWERS[method]
                return m.parse(kind, decode_response(payload, method))

    async def consume(self, who: str, group: str = "group", **fields: Any) -> Any:
        """Register a consumer of the topic "demo"."""
        fields = {"topicList": ["demo"], "defFlowCheckId": -2, "groupFlowCheckId": -2, **fields}
        request = m.RegisterRequestC2M(
            clientId=who, groupName=group, hostName="127.0.0.1", **fields
        )
        return await self.ask(Method.CONSUMER_REGISTER_C2M, request)

    async def beat(self, who: str, group: str = "group", **fields: Any) -> Any:
        """Send a heartbeat of a consumer."""
        fields = {"reportSubscribeInfo": False, **fields}
        request = m.HeartRequestC2M(clientId=who, groupName=group, **fields)
        return await self.ask(Method.CONSUMER_HEARTBEAT_C2M, request)


class Masters:
    """A master, and actions of brokers and administrators."""

    def __init__(self, master: Master, peer: Peer) -> None:
        self.master = master
        self.core = master.core
        self.peer = peer
        self.broker_answer: Any = None

    async def web(self, method: str, **parameters: object) -> dict[str, Any]:
        """Return the answer to an administrator with the token."""
        parameters = {
            "confModAuthToken": TOKEN,
            "createUser": "me",
            "modifyUser": "me",
            **parameters,
        }
        status, _, body = await get(self.master.web_port, method, parameters)
        assert status == 200
        answer: dict[str, Any] = json.loads(body)
        return answer

    async def changed(self, method: str, **parameters: object) -> None:
        """Return the same for a successful change."""
        answer = await self.web(method, **parameters)
        assert answer["result"], answer
        assert all(row.get("success", True) for row in answer.get("data", ())), answer

    async def with_topic(
        self, topic: str = "demo", partitions: int = 4, stores: int = 1, brokers: int = 1
    ) -> None:
        """Brokers 1 to n serve a topic, for producers and consumers."""
        for broker_id in range(1, brokers + 1):
            if self.core.catalog.broker(broker_id) is None:
                port = 9000 + broker_id
                ip = {"brokerId": broker_id, "brokerIp": "127.0.0.1", "brokerPort": port}
                await self.changed("admin_add_broker_configure", **ip)
                await self.changed("admin_online_broker_configure", brokerId=broker_id)
            await self.changed(
                "admin_add_new_topic_record",
                topicName=topic,
                brokerId=broker_id,
                numPartitions=partitions,
                numTopicStores=stores,
            )
            await self.serve(broker_id)

    async def serve(self, broker_id: int = 1) -> None:
        """Let a broker register, apply its settings and serve."""
        answer = await self.register_broker(broker_id)
        assert answer.success, answer.errMsg
        while True:
            answer = await self.broker_beat(broker_id, answer)
            assert answer.success, answer.errMsg
            run = self.core.brokers.runs[broker_id]
            if run.config_loaded:
                return

    async def register_broker(self, broker_id: int = 1, **fields: Any) -> Any:
        request = m.RegisterRequestB2M(
            **{
                "clientId": f"{broker_id}:127.0.0.1:{9000 + broker_id}:1.0",
                "brokerOnline": False,
                "enableTls": False,
                "readStatusRpt": 0,
                "writeStatusRpt": 0,
                "curBrokerConfId": -2,
                "confCheckSumId": -2,
                "brokerDefaultConfInfo": "",
                **fields,
            }
        )
        return await self.peer.ask(Method.BROKER_REGISTER_B2M, request)

    async def broker_beat(self, broker_id: int, told: Any, **fields: Any) -> Any:
        """Send a heartbeat that reports all settings as applied."""
        request = m.HeartRequestB2M(
            brokerId=str(broker_id),
            brokerOnline=True,
            readStatusRpt=0,
            writeStatusRpt=0,
            curBrokerConfId=told.curBrokerConfId,
            confCheckSumId=told.confCheckSumId,
            takeConfInfo=told.takeConfInfo,
            takeRemovedTopicInfo=False,
        )
        if told.takeConfInfo:
            topics = list(told.brokerTopicSetConfInfo)
            request.brokerDefaultConfInfo = told.brokerDefaultConfInfo
            request.brokerTopicSetConfInfo.extend(topics)
            request.confCheckSumId = checksum(told.brokerDefaultConfInfo, topics)
        for name, value in fields.items():
            if isinstance(value, list):
                getattr(request, name).extend(value)
            else:
                setattr(request, name, value)
        return await self.peer.ask(Method.BROKER_HEARTBEAT_B2M, request)

    def round(self) -> None:
        """Assign partitions."""
        balance_all(self.core)

    async def settle(self, *who: str, group: str = "group", rounds: int = 3) -> dict[str, set[str]]:
        """Run rounds and heartbeats of members that process their events, until all are done.
        Return the partitions of each.
        """
        held: dict[str, set[str]] = {}
        there = self.core.groups.get(group)
        assert there is not None
        for member in who:
            held[member] = {str(one) for one in (there.members[member].held or {}).values()}
        for _ in range(rounds):
            self.round()
            while list(there.events.pending()):
                for member in who:
                    await self._do(member, group, held)
        return held

    async def _do(self, member: str, group: str, held: dict[str, set[str]]) -> None:
        answer = await self.peer.beat(member, group)
        if not answer.HasField("event"):
            return
        event = answer.event
        partitions = {text.partition("#")[2] for text in event.subscribeInfo}
        if event.opType in (1, 10):
            assert all(not partitions & h for h in held.values()), "a partition is held twice"
            held[member] |= partitions
        else:
            held[member] -= partitions
        reported = [f"{member}@{group}#{one}" for one in sorted(held[member])]
        event.status = 2
        await self.peer.beat(
            member, group, reportSubscribeInfo=True, subscribeInfo=reported, event=event
        )


async def get(
    port: int, method: str, parameters: Mapping[str, object]
) -> tuple[int, dict[str, str], str]:
    """Status, headers and body of GET /webapi.htm."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    query = urlencode({"method": method, **parameters})
    writer.write(f"GET /webapi.htm?{query} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    first, *lines = head.split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, body
