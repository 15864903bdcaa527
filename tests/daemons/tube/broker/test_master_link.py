"""A broker and its master: registration, heartbeats, added and removed topics, other masters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mq.daemons.tube.broker.app import Broker
from mq.daemons.tube.broker.config import BrokerSettings
from mq.daemons.tube.rpc import Call, Route, RpcListener, ServiceFailure
from mq.protocol.tube.codes import Method
from mq.protocol.tube.messages import (
    CloseRequestB2M,
    CloseResponseM2B,
    EnableBrokerFunInfo,
    HeartRequestB2M,
    HeartResponseM2B,
    RegisterRequestB2M,
    RegisterResponseM2B,
)
from mq.protocol.tube.settings import BrokerDefaults, TopicSettings, checksum
from mq.protocol.tube.signature import verify
from tests.daemons.tube.broker.harness import PATIENCE, connected, overrides

DEFAULTS = str(BrokerDefaults())
RULES = (
    '[{"type":0,"rule":[{"start":"00:00","end":"24:00","dltInM":21,"limitInM":1,"freqInMs":300}]}]'
)


class Master:
    """A scripted master: its data, and the received reports."""

    def __init__(self) -> None:
        self.topics = [str(TopicSettings("demo", partitions=2))]
        self.config_id = 1
        self.registrations: list[RegisterRequestB2M] = []
        self.heartbeats: list[HeartRequestB2M] = []
        self.closes: list[CloseRequestB2M] = []
        self.knows = False
        self.is_standby = False
        self.removed: list[str] = []
        self.changes: dict[str, Any] = {}
        self.beaten = asyncio.Event()
        self.listener = RpcListener(
            {
                Method.BROKER_REGISTER_B2M: Route(self._register, RegisterRequestB2M),
                Method.BROKER_HEARTBEAT_B2M: Route(self._heartbeat, HeartRequestB2M),
                Method.BROKER_CLOSE_B2M: Route(self._close, CloseRequestB2M),
            },
            "127.0.0.1",
            0,
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.listener.port}"

    def _settings(self) -> dict[str, Any]:
        return {
            "takeConfInfo": True,
            "curBrokerConfId": self.config_id,
            "confCheckSumId": checksum(DEFAULTS, self.topics),
            "brokerDefaultConfInfo": DEFAULTS,
            "brokerTopicSetConfInfo": self.topics,
        }

    def _register(self, call: Call) -> RegisterResponseM2B:
        if self.is_standby:
            raise ServiceFailure("StandbyException", f"{self.address} is not the active one")
        self.registrations.append(call.message)
        self.knows = True
        return RegisterResponseM2B(
            success=True, errCode=200, errMsg="OK!", stopRead=False, stopWrite=False,
            enableBrokerInfo=EnableBrokerFunInfo(
                enableConsumeAuthenticate=False, enableConsumeAuthorize=False,
                enableProduceAuthenticate=False, enableProduceAuthorize=False,
                enableVisitTokenCheck=True,
            ),
            brokerAuthorizedInfo={"visitAuthorizedToken": "5,6"},
            flowCheckId=3, flowControlInfo=RULES, qryPriorityId=301,
            clsConfig={"configId": 2, "maxMsgSize": 2 << 20}, **self._settings(),
        )  # fmt: skip

    def _heartbeat(self, call: Call) -> HeartResponseM2B:
        if self.is_standby:
            raise ServiceFailure("StandbyException", f"{self.address} is not the active one")
        self.heartbeats.append(call.message)
        self.beaten.set()
        common: dict[str, Any] = {"stopRead": False, "stopWrite": False, "needReportData": False,
                  "takeConfInfo": False, "takeRemoveTopicInfo": bool(self.removed),
                  "removeTopicConfInfo": self.removed, "curBrokerConfId": self.config_id,
                  "confCheckSumId": checksum(DEFAULTS, self.topics)}  # fmt: skip
        if not self.knows:
            return HeartResponseM2B(success=False, errCode=411, errMsg="unknown", **common)
        if call.message.curBrokerConfId != self.config_id:
            common |= self._settings()
        return HeartResponseM2B(success=True, errCode=200, errMsg="OK!", **(common | self.changes))

    def _close(self, call: Call) -> CloseResponseM2B:
        self.closes.append(call.message)
        return CloseResponseM2B(success=True, errCode=200, errMsg="OK!")

    async def beat(self, until: Callable[[], bool] = lambda: True) -> None:
        """Wait for a heartbeat after which the condition holds."""
        while True:
            self.beaten.clear()
            await self.beaten.wait()
            await asyncio.sleep(0)
            if until():
                return


def settings(folder: Path, *masters: Master, **changes: Any) -> BrokerSettings:
    addresses = ",".join(master.address for master in masters)
    changes = {"masterAddressList": addresses, "heartbeatPeriodMs": 20, "brokerId": 7} | changes
    return BrokerSettings.load(None, overrides(folder, **changes))


@asynccontextmanager
async def masters(count: int = 1) -> AsyncIterator[list[Master]]:
    made = [Master() for _ in range(count)]
    async with asyncio.timeout(PATIENCE):
        for master in made:
            await master.listener.start()
        try:
            yield made
        finally:
            for master in made:
                await master.listener.close()


def test_a_broker_says_who_it_is_and_has_what_it_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with masters() as (master,), Broker(settings(tmp_path, master)) as broker:
            (request,) = master.registrations
            assert request.clientId == f"7:127.0.0.1:{broker.port}:2.5.0"
            assert (request.brokerOnline, request.enableTls) == (False, False)
            assert not request.HasField("tlsPort") and not request.HasField("authInfo")
            serving = broker.serving
            assert serving.access.checks_tokens
            assert (serving.rules_id, serving.query_priority) == (3, 301)
            assert serving.rules.data_limits[0].interval_ms == 300
            demo = serving.topics["demo"]
            assert (demo.partitions, demo.max_size) == (2, (2 << 20) + 10 * 1024)
            async with connected(broker) as client:
                assert (await client.send(b"x")).success
            await master.beat(lambda: master.heartbeats[-1].brokerOnline)
            first = master.heartbeats[0]
            assert (first.brokerId, first.takeConfInfo) == ("7", True)
            assert list(first.brokerTopicSetConfInfo) == master.topics
            await master.beat()
            assert not master.heartbeats[-1].takeConfInfo
        assert master.closes[0].brokerId == "7"

    asyncio.run(main())


def test_a_topic_that_is_added_is_served_from_the_next_heartbeat_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with masters() as (master,), Broker(settings(tmp_path, master)) as broker:
            async with connected(broker) as client:
                assert (await client.send(b"x", topicName="added")).errCode == 403
                master.topics.append(str(TopicSettings("added", stores=2)))
                master.config_id = 2
                await master.beat(lambda: master.heartbeats[-1].curBrokerConfId == 2)
                answer = await client.send(b"x", topicName="added", partitionId=10_000)
                assert answer.success

    asyncio.run(main())


def test_a_topic_that_is_removed_goes_with_its_files_and_that_is_reported(tmp_path: Path) -> None:
    async def main() -> None:
        async with masters() as (master,), Broker(settings(tmp_path, master)) as broker:
            async with connected(broker) as client:
                await client.send(b"x")
                await client.register()
                await broker.serving.offsets.replace([("group", ("demo", 0), 28)])
                master.topics = [str(TopicSettings("other"))]
                master.config_id = 2
                await master.beat(lambda: master.heartbeats[-1].curBrokerConfId == 2)
                master.removed = [str(TopicSettings("demo", partitions=2, stores=1, status=2))]
                await master.beat(lambda: list(master.heartbeats[-1].removedTopicsInfo) == ["demo"])
                assert not (tmp_path / "store" / "demo-0").exists()
                assert "group" not in broker.serving.offsets
                assert len(broker.serving.consumers) == 0
                master.removed = [str(TopicSettings("other", status=0))]
                await master.beat(lambda: not master.heartbeats[-1].removedTopicsInfo)

    asyncio.run(main())


def test_a_master_that_has_forgotten_a_broker_is_registered_at_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with masters() as (master,), Broker(settings(tmp_path, master)) as broker:
            master.knows = False
            await master.beat(lambda: len(master.registrations) == 2)
            assert master.registrations[1].brokerOnline
            assert broker.link is not None and broker.link.is_registered

    asyncio.run(main())


def test_a_standby_master_gives_way_to_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        async with masters(2) as (one, other):
            one.is_standby = True
            async with Broker(settings(tmp_path, one, other)) as broker:
                assert broker.link is not None
                assert broker.link.master == other.address
                one.is_standby, other.is_standby = False, True
                one.knows = True
                await one.beat()
                assert broker.link.master == one.address

    asyncio.run(main())


def test_a_master_stops_and_opens_what_is_served(tmp_path: Path) -> None:
    async def main() -> None:
        async with masters() as (master,), Broker(settings(tmp_path, master)) as broker:
            master.changes = {"stopWrite": True, "stopRead": True}
            await master.beat(lambda: master.heartbeats[-1].writeStatusRpt == 1)
            async with connected(broker) as client:
                assert (await client.send(b"x")).errCode == 503
                assert (await client.get()).errCode == 503
            master.changes = {}
            await master.beat(lambda: master.heartbeats[-1].writeStatusRpt == 0)
            assert not broker.serving.reads.is_stopped

    asyncio.run(main())


def test_without_a_master_a_broker_goes_on_and_starts_with_what_it_knew(tmp_path: Path) -> None:
    async def main() -> None:
        async with masters() as (master,):
            async with Broker(settings(tmp_path, master)) as broker, connected(broker) as client:
                await client.send(b"x", authInfo={"visitAuthorizedToken": 6})
                await master.listener.close()
                assert broker.link is not None
                await broker.link.beat()
                assert (await client.send(b"y")).success
                assert "not registered at a master" in broker.status_text()
            async with Broker(settings(tmp_path, master)) as broker, connected(broker) as client:
                assert (await client.send(b"z")).success
                assert "not registered at a master" in broker.status_text()

    asyncio.run(main())


def test_a_broker_that_no_master_ever_took_waits_for_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with masters() as (master,):
            master.is_standby = True
            async with Broker(settings(tmp_path, master)) as broker, connected(broker) as client:
                assert (await client.send(b"x")).errCode == 403
                master.is_standby = False
                await master.beat()
                assert (await client.send(b"x")).success

    asyncio.run(main())


def test_requests_are_signed_where_the_master_asks_for_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with masters() as (master,):
            account = {"visitMasterAuth": "true", "visitName": "me", "visitPassword": "secret-1"}
            async with Broker(settings(tmp_path, master, **account)):
                info = master.registrations[0].authInfo.authInfo
                assert verify("me", "secret-1", info.timestamp, info.nonce, info.signature)

    asyncio.run(main())


def test_before_registering_the_port_is_known_and_nobody_is_let_in(tmp_path: Path) -> None:
    async def main() -> None:
        async with masters() as (master,):
            seen = []

            async def hook(broker: Broker) -> None:
                with pytest.raises(ConnectionRefusedError):
                    await asyncio.open_connection("127.0.0.1", broker.port)
                seen.append((broker.port, len(master.registrations)))

            async with Broker(settings(tmp_path, master), hook) as broker:
                assert seen == [(broker.port, 0)]

    asyncio.run(main())


MANY = TopicSettings("many", partitions=10_001)
FAR = "../../far"


@pytest.mark.parametrize(
    "text",
    [
        "demo:x",
        "1:2",
        str(TopicSettings(FAR)),
        str(TopicSettings("a/b")),
        str(MANY),
        str(TopicSettings("many", stores=1001)),
        str(TopicSettings("many", stores=11, partitions=10_000)),
    ],
)
def test_topics_that_are_not_understood_are_not_taken(tmp_path: Path, text: str) -> None:
    async def main() -> None:
        async with masters() as (master,), Broker(settings(tmp_path, master)) as broker:
            master.topics.append(text)
            master.config_id = 2
            before = len(master.heartbeats)
            await master.beat(lambda: len(master.heartbeats) > before + 2)
            assert broker.serving.topics.config_id == 1
            assert broker.serving.topics["demo"].partitions == 2
        assert not list(tmp_path.parent.glob("far*"))

    asyncio.run(main())


def test_a_removed_topic_takes_no_folder_along_that_is_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "far-0"
    elsewhere.mkdir()

    async def main() -> None:
        async with masters() as (master,), Broker(settings(tmp_path, master)):
            master.removed = [
                str(TopicSettings("../far", status=2)),
                str(TopicSettings("gone", status=2)),
            ]
            await master.beat(lambda: list(master.heartbeats[-1].removedTopicsInfo) == ["gone"])

    asyncio.run(main())
    assert elsewhere.exists()
