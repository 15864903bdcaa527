"""Lists of a broker, which may be very long."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from mq.daemons.tube.broker.app import Broker
from mq.daemons.tube.web_methods import WebRequest
from tests.daemons.tube.broker.harness import Client, run

TOPICS = 40


@pytest.mark.parametrize(
    ("method", "rows"),
    [
        ("admin_query_broker_all_store_info", TOPICS + 1),  # and the broker's own
        ("admin_query_pubinfo", TOPICS + 1),
        ("admin_query_offset", 1),
    ],
)
def test_others_are_served_while_a_long_list_is_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, rows: int
) -> None:
    monkeypatch.setattr("mq.daemons.time_slices.STEP_SECONDS", -1.0)  # each step takes too long

    async def main(broker: Broker, client: Client) -> None:
        names = broker.serving.stores.names()
        await broker.serving.offsets.replace([("group", (name, 0), 0) for name in names])
        assert broker.web is not None
        request = WebRequest("/broker.htm", "/broker.htm", {"method": method}, "peer")
        answer = asyncio.ensure_future(broker.web.answer(request))
        turns = 0
        while not answer.done():
            await asyncio.sleep(0)
            turns += 1
        assert len(json.loads(answer.result()[1])["dataSet"]) == rows
        assert turns > 2 * TOPICS  # while it is built, and while it is written

    run(tmp_path, main, webPort=0, topicList=",".join(f"t{n}:1:1" for n in range(TOPICS)))


def test_names_of_topics_that_groups_do_not_read_are_no_work_for_each_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both may be many: a request has room for ten thousand names."""
    monkeypatch.setattr("mq.daemons.time_slices.STEP_SECONDS", -1.0)  # each step takes too long
    groups = 100

    async def main(broker: Broker, client: Client) -> None:
        offsets = broker.serving.offsets
        await offsets.replace([(f"g{n}", ("demo", 0), 0) for n in range(groups)])
        names = ",".join([*(f"none{n}" for n in range(1000)), "demo"])
        parameters = {"method": "admin_query_offset", "topicName": names}
        assert broker.web is not None
        request = WebRequest("/broker.htm", "/broker.htm", parameters, "peer")
        answer = asyncio.ensure_future(broker.web.answer(request))
        turns = 0
        while not answer.done():
            await asyncio.sleep(0)
            turns += 1
        found = json.loads(answer.result()[1])["dataSet"]
        assert [[topic["topicName"] for topic in one["subInfo"]] for one in found] == [
            ["demo"]
        ] * groups
        assert turns < 100 * groups

    run(tmp_path, main, webPort=0)
