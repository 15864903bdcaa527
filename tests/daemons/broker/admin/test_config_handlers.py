"""A broker's settings, and its runtime info."""

from pathlib import Path

import orjson

from mq.daemons.properties import read_properties
from mq.protocol.bodies import (
    KVTable,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests import answered
from tests.daemons.broker.harness import Harness, serve
from tests.daemons.peer import Peer


def refusal(reply: Command) -> tuple[int, str | None]:
    return reply.code, reply.remark


@answered.by_broker(RequestCode.UPDATE_BROKER_CONFIG, RequestCode.GET_BROKER_CONFIG)
def test_settings_are_shown_and_changed_by_the_allow_list(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=24\n")
        assert reply.code == ResponseCode.SUCCESS
        reply = await peer.ask(RequestCode.GET_BROKER_CONFIG)
        shown = read_properties(bytes(reply.body).decode())
        assert shown["fileReservedTime"] == "24"
        assert shown["brokerName"] == "broker-a"
        assert orjson.loads(reply.fields["version"])["counter"] == 1
        for body, code, remark in (
            (b"storePathRootDir=/", ResponseCode.NO_PERMISSION, "storePathRootDir cannot be"),
            (b"nonsense=1", ResponseCode.SUCCESS, "nonsense is not a setting"),
            (b"sendMessageThreadPoolNums=9", ResponseCode.SUCCESS, "has no effect in this daemon"),
            (b"a/b=1", ResponseCode.SYSTEM_ERROR, "'a/b' is not a setting"),
            (b"fileReservedTime=x", ResponseCode.SYSTEM_ERROR, "expected a whole number"),
            (b"a=b\n" * 70_000, ResponseCode.SYSTEM_ERROR, "280000 bytes, over 262144"),
        ):
            reply = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, None, body)
            assert reply.code == code and remark in (reply.remark or "")

    serve(tmp_path, script)


def test_a_new_broker_permission_reaches_the_name_servers(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        told: list[str] = []
        broker.stores.topics.on_change.append(told.append)
        await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"brokerPermission=4\n")
        assert told == [""]
        assert broker.stores.topics.data_version.counter == 1

    serve(tmp_path, script)


@answered.by_broker(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON)
def test_settings_are_json_if_requested_for_export(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        fields = {"configType": "topics;subscriptionGroups;"}
        reply = await peer.ask(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, fields)
        assert (reply.code, bytes(reply.body)) == (ResponseCode.SUCCESS, b"")
        reply = await peer.ask(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "configType" in (reply.remark or "")

    serve(tmp_path, script)


DAYS = ("YesterdayMorning", "TodayMorning", "TodayNow")


@answered.by_broker(RequestCode.GET_BROKER_RUNTIME_INFO)
def test_runtime_info_has_what_cluster_list_prints(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        table = KVTable.decode(reply.body).table
        assert table["brokerVersionDesc"] == "V4_9_8"
        assert len(table["putTps"].split()) == len(table["getTransferedTps"].split()) == 3
        assert table["getTransferredTps"] == table["getTransferedTps"]  # as release 5 writes it
        assert {
            "commitLogDiskRatio",
            "commitLogMaxOffset",
            "earliestMessageTimeStamp",
            *(f"msg{what}Total{when}" for what in ("Put", "Get") for when in DAYS),
            "pageCacheLockTimeMills",
            "sendThreadPoolQueueHeadWaitTimeMills",
            "sendThreadPoolQueueSize",
        } <= table.keys()
        assert table["runtime"].startswith("[ 0 days, 0 hours, 0 minutes, ")
        assert table["commitLogDirCapacity"].startswith("Total : ")

    serve(tmp_path, script)


def test_a_lone_surrogate_in_a_setting_is_refused_with_a_reply(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        for body in (rb"brokerName=\ud800", rb"\ud800=1", rb"fileReservedTime=\udc00x"):
            reply = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, body)
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert "half of a character" in (reply.remark or "")

    serve(tmp_path, script)
