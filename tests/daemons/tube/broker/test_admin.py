"""Requests and changes of administrators to a broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from mq.daemons.tube.broker import admin
from mq.daemons.tube.broker.app import Broker
from tests.daemons.tube.broker.harness import CLIENT, Client, run

Ask = Callable[..., Awaitable[Any]]


async def ask(port: int, method: str, **parameters: Any) -> Any:
    query = urlencode({"method": method, **parameters})
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /broker.htm?{query} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def asked(tmp_path: Path, check: Callable[[Ask, Client], Awaitable[None]], **changes: Any) -> None:
    """A check of a broker whose group has read two of the three messages of a partition."""

    async def main(broker: Broker, client: Client) -> None:
        await client.send(b"one")
        await client.send(b"two", msgType="abc")
        await client.register()
        await client.get()
        await client.commit()
        await client.send(b"three")

        async def asks(method: str, **parameters: Any) -> Any:
            return await ask(broker.web_port, method, **parameters)

        await check(asks, client)

    run(tmp_path, main, webPort=0, topicList="demo:2:1", **changes)


def test_offsets_of_groups_are_told(tmp_path: Path) -> None:
    async def check(ask: Ask, _: Client) -> None:
        found = await ask("admin_query_offset", groupName="group,none", topicName="demo")
        (group,) = found["dataSet"]
        (topic,) = group["subInfo"]
        assert (group["groupName"], topic["topicName"], topic["partCount"]) == ("group", "demo", 2)
        assert topic["offsets"][0] == {
            "partitionId": 0, "curOffset": 56, "flightOffset": 0, "curDataOffset": 110,
            "offsetLag": 28, "dataLag": 57, "offsetMax": 84, "dataMax": 167,
        }  # fmt: skip
        assert topic["offsets"][1]["curOffset"] == -2

    asked(tmp_path, check)


def test_an_offset_is_set_and_read_from(tmp_path: Path) -> None:
    async def check(ask: Ask, client: Client) -> None:
        found = await ask(
            "admin_manual_set_current_offset", groupName="group", topicName="demo",
            partitionId=0, manualOffset=28, modifyUser="me",
        )  # fmt: skip
        assert (found["result"], found["oldOffset"]) == (True, 56)
        answer = await client.get(lastPackConsumed=False)
        assert [m.payLoadData for m in answer.messages] == [b"two", b"three"]

    asked(tmp_path, check)


@pytest.mark.parametrize("offset", [-1, 112])
def test_an_offset_out_of_bounds_is_refused(tmp_path: Path, offset: int) -> None:
    async def check(ask: Ask, _: Client) -> None:
        found = await ask(
            "admin_manual_set_current_offset", groupName="group", topicName="demo",
            partitionId=0, manualOffset=offset, modifyUser="me",
        )  # fmt: skip
        assert (found["result"], found["errCode"]) == (False, 400)

    asked(tmp_path, check)


def test_offsets_are_set_for_many_groups_and_kept(tmp_path: Path) -> None:
    async def check(ask: Ask, _: Client) -> None:
        given = json.dumps({"1:demo:0": 28, "1:demo:1": 9999, "2:demo:0": 0})
        found = await ask(
            "admin_set_offset", groupName="group,other", manualSet="true", modifyUser="me",
            offsetJsonInfo=given,
        )  # fmt: skip
        assert found == {"result": True, "errCode": 0, "errMsg": "OK"}
        kept = json.loads((tmp_path / "store" / "offsetDir" / "offsets.meta").read_text())
        for group in ("group", "other"):
            parts = kept["groupOffsetStgInfo"][group]["partOffsetInfo"]
            assert (parts["demo-0"]["lstOffset"], parts["demo-1"]["lstOffset"]) == (28, 84)
        await ask(
            "admin_set_offset", groupName="group", manualSet="false", topicName="demo",
            modifyUser="me",
        )  # fmt: skip
        found = await ask("admin_query_offset", groupName="group")
        assert found["dataSet"][0]["subInfo"][0]["offsets"][0]["offsetLag"] == 0

    asked(tmp_path, check)


@pytest.mark.parametrize("given", ["{", "[]", '{"a":1}', '{"1:demo:x":1}', '{"1:demo:0":"1"}',
                                   '{"1:other:0":1}'])  # fmt: skip
def test_offsets_that_are_none_are_refused(tmp_path: Path, given: str) -> None:
    async def check(ask: Ask, _: Client) -> None:
        found = await ask(
            "admin_set_offset", groupName="group", manualSet="true", modifyUser="me",
            offsetJsonInfo=given,
        )  # fmt: skip
        assert (found["result"], "offsetJsonInfo" in found["errMsg"]) == (False, True)

    asked(tmp_path, check)


def test_offsets_are_cloned_and_removed(tmp_path: Path) -> None:
    async def check(ask: Ask, _: Client) -> None:
        await ask(
            "admin_clone_offset", sourceGroupName="group", targetGroupName="aa,bb", modifyUser="me"
        )
        found = await ask("admin_query_offset", groupName="bb")
        assert found["dataSet"][0]["subInfo"][0]["offsets"][0]["curOffset"] == 56
        assert (await ask("admin_query_group"))["dataSet"][0]["groupName"] == ["aa", "bb", "group"]
        await ask("admin_rmv_offset", groupName="aa", modifyUser="me")
        assert (await ask("admin_query_group"))["dataSet"][0]["groupName"] == ["bb", "group"]
        found = await ask(
            "admin_clone_offset", sourceGroupName="none", targetGroupName="aa", modifyUser="me"
        )
        assert "has not been registered on this Broker!" in found["errMsg"]

    asked(tmp_path, check)


def test_the_newest_messages_are_shown(tmp_path: Path) -> None:
    async def check(ask: Ask, _: Client) -> None:
        found = await ask("admin_snapshot_message", topicName="demo", partitionId=0, msgCount=2)
        assert [one["data"] for one in found["dataSet"]] == ["dHdv", "dGhyZWU="]
        found = await ask("admin_snapshot_message", topicName="demo", filterConds="abc")
        assert [one["data"] for one in found["dataSet"]] == ["dHdv"]
        found = await ask("admin_snapshot_message", topicName="demo", partitionId=1)
        assert found["errCode"] == 401
        assert (await ask("admin_snapshot_message", topicName="demo", msgCount=51))[
            "errCode"
        ] == 400

    asked(tmp_path, check)


def test_what_there_is_is_listed(tmp_path: Path) -> None:
    async def check(ask: Ask, _: Client) -> None:
        for name in ("admin_get_partition_reginfo", "admin_query_consumer_regmap"):
            found = await ask(name)
            assert found["dataSet"] == [
                {"Partition": "group:demo:0", "Consumer": CLIENT, "index": 1}
            ]
        found = await ask("admin_query_pubinfo", topicName="demo")
        assert found["dataCount"] == 1
        assert found["dataSet"][0]["offsetInfo"][1] == {
            "partitionId": 1, "offsetMin": 0, "offsetMax": 84, "dataMin": 0, "dataMax": 167,
        }  # fmt: skip
        found = await ask("admin_query_broker_all_store_info", topicName="demo")
        assert found["dataSet"][0]["storeInfo"][0]["maxDataOffset"] == 167
        found = await ask("admin_query_broker_all_consumer_info")
        assert (found["totalCnt"], found["dataSet"][0]["zkOffset"]) == (1, 56)
        found = await ask("admin_query_group_offset", topicName="demo", groupName="group",
                          partitionId=0, requireRealOffset="true")  # fmt: skip
        assert (found["zkOffset"], found["curReadDataOffset"]) == (56, 110)
        named = {one["method"] for one in (await ask("admin_get_methods"))["dataSet"]}
        assert {"admin_query_offset", "admin_set_offset", "admin_clone_offset"} <= named

    asked(tmp_path, check)


def test_changes_need_the_token_where_there_is_one(tmp_path: Path) -> None:
    async def check(ask: Ask, _: Client) -> None:
        changes = {"groupName": "group", "modifyUser": "me"}
        assert (await ask("admin_rmv_offset", **changes))["result"] is False
        assert (await ask("admin_query_offset"))["result"] is True
        found = await ask("admin_rmv_offset", confModAuthToken="secret-1", **changes)
        assert found["result"] is True

    asked(tmp_path, check, confModAuthToken="secret-1")


@pytest.mark.parametrize("group", ["-", "1a", "a b", "a" * 1025])
def test_no_group_has_offsets_whose_name_is_none(tmp_path: Path, group: str) -> None:
    async def check(ask: Ask, _: Client) -> None:
        for found in (
            await ask("admin_set_offset", groupName=group, topicName="demo", manualSet="false",
                      modifyUser="me"),
            await ask("admin_clone_offset", sourceGroupName="group", targetGroupName=group,
                      modifyUser="me"),
            await ask("admin_manual_set_current_offset", groupName=group, topicName="demo",
                      partitionId=0, manualOffset=28, modifyUser="me"),
        ):  # fmt: skip
            assert not found["result"] and "groupName" in found["errMsg"]
        names = (await ask("admin_query_group"))["dataSet"][0]["groupName"]
        assert names == ["group"]

    asked(tmp_path, check)


def test_a_request_sets_so_many_offsets_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(ask: Ask, _: Client) -> None:
        monkeypatch.setattr(admin, "MAX_CHANGES", 3)
        groups = {"groupName": "aa,bb", "modifyUser": "me"}
        found = await ask("admin_set_offset", topicName="demo", manualSet="false", **groups)
        assert found["errMsg"] == "4 offsets in one request: 3 may be"
        cloned = await ask("admin_clone_offset", sourceGroupName="group", modifyUser="me",
                           targetGroupName="aa,bb,cc,dd")  # fmt: skip
        assert cloned["errMsg"] == "4 offsets in one request: 3 may be"

    asked(tmp_path, check)
