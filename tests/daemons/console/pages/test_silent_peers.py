"""A page has one time limit for all silent servers."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from mq.client.admin import Admin
from mq.client.options import ClientOptions
from mq.client.transport.session import Session
from mq.daemons.console.call import Call
from mq.daemons.console.collector.snapshot import BrokerRow, NameServerRow, Snapshot
from mq.daemons.console.pages import clusters, name_servers
from tests.daemons.console.collector.peers import hung
from tests.daemons.tube.loops import in_loop


@pytest.mark.parametrize("part", ["settings", "replication"])
@in_loop
async def test_a_broker_that_hangs_holds_its_page_no_longer_than_the_deadline(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr(clusters, "DEADLINE", 0.2, raising=False)
    async with (
        hung() as address,
        Session(address, ClientOptions(timeout=60.0)) as session,
        asyncio.timeout(10),
    ):
        row = BrokerRow("C", "b", 0, address, "master", seen=1)
        other = BrokerRow("C", "c", 0, address.replace("127.0.0.1", "localhost"), "master", seen=1)
        page = await clusters.broker(_call(session, Snapshot(1, brokers=(row, other)), part))
        assert page.data.problem.endswith("no answer within 0.2 s")
        assert page.data.settings is None


@in_loop
async def test_a_name_server_that_hangs_holds_its_page_no_longer_than_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(name_servers, "DEADLINE", 0.2, raising=False)
    async with (
        hung() as address,
        Session(address, ClientOptions(timeout=60.0)) as session,
        asyncio.timeout(10),
    ):
        snapshot = Snapshot(1, name_servers=(NameServerRow(address, 1),))
        call = _call(session, snapshot, "")
        call.path["address"] = address  # type: ignore[index]
        page = await name_servers.name_server(call)
        assert page.data.problem.endswith("no answer within 0.2 s")


def _call(session: Session, snapshot: Snapshot, part: str) -> Call:
    return cast(
        Call,
        SimpleNamespace(
            admin=Admin(session),
            path={"name": "b", "id": "0"},
            query={"part": part},
            text=lambda message, **values: message % values,
            cluster=SimpleNamespace(snapshot=snapshot, session=session),
        ),
    )
