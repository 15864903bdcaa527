"""The figures of GET_BROKER_RUNTIME_INFO as parsed by their readers."""

import re
from pathlib import Path

from mq.protocol.bodies import KVTable
from mq.protocol.codes import RequestCode
from tests.daemons.broker.harness import Harness, send, serve
from tests.daemons.peer import Peer

# How rocketmq-exporter 0.0.2 parses each (BrokerRuntimeStats): Long.parseLong, Double.parseDouble…
WHOLE = (
    *("msgPutTotalTodayNow", "msgGetTotalTodayNow", "msgPutTotalTodayMorning"),
    *("msgGetTotalTodayMorning", "msgPutTotalYesterdayMorning", "msgGetTotalYesterdayMorning"),
    *("sendThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueHeadWaitTimeMills"),
    *("pullThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueSize", "bootTimestamp"),
    *("pullThreadPoolQueueSize", "commitLogMinOffset", "commitLogMaxOffset", "dispatchMaxBuffer"),
    *("brokerVersion", "pageCacheLockTimeMills", "getMessageEntireTimeMax", "putMessageTimesTotal"),
    *("sendThreadPoolQueueSize", "startAcceptSendRequestTimeStamp", "putMessageEntireTimeMax"),
    *("earliestMessageTimeStamp", "remainTransientStoreBufferNumbs", "putMessageSizeTotal"),
    *("queryThreadPoolQueueCapacity", "dispatchBehindBytes", "sendThreadPoolQueueCapacity"),
    *("pullThreadPoolQueueCapacity", "EndTransactionQueueSize", "putMessageFailedTimes"),
    "EndTransactionThreadPoolQueueCapacity",
)
REAL = (
    *("consumeQueueDiskRatio", "commitLogDiskRatio", "putMessageAverageSize"),
    *("putLatency99", "putLatency999"),
)
RATES = ("putTps", "getMissTps", "getTransferedTps", "getTotalTps", "getFoundTps")
BYTES = re.compile(r"(\d+) B|(\d+\.\d) [KMGTPE]iB")


def test_an_exporter_of_java_can_read_every_figure(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        for _ in range(3):
            await send(peer, "TopicTest", b"hello")
        reply = await peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        table = KVTable.decode(reply.body).table
        for name in WHOLE:
            assert -(1 << 63) <= int(table[name]) < 1 << 63, name
        for name in REAL:
            float(table[name])
        for name in RATES:
            assert len([float(part) for part in table[name].split(" ")]) == 3
        assert BYTES.fullmatch(table["remainHowManyDataToFlush"])
        parts = table["commitLogDirCapacity"].split(" ")
        assert BYTES.fullmatch(f"{parts[2]} {parts[3].rstrip(',')}")
        assert BYTES.fullmatch(f"{parts[6]} {parts[7].rstrip('.')}")
        steps = dict(step.rsplit(":", 1) for step in table["putMessageDistributeTime"].split())
        assert len(steps) == 13
        assert sum(map(int, steps.values())) == 3 == int(table["putMessageTimesTotal"])
        assert int(table["putMessageEntireTimeMax"]) >= float(table["putLatency999"]) >= 0
        (folder,) = broker.stores.messages.log.paths
        assert table[f"commitLogDiskRatio_{folder}"] == table["commitLogDiskRatio"]
        assert int(table["remainTransientStoreBufferNumbs"]) > 0

    serve(tmp_path, script)
