"""Snodes that register with a name server, and queries for them."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.dispatch import Overloaded
from mq.daemons.namesrv import snodes
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.snodes import Snodes
from mq.protocol.bodies import ClusterInfo, SnodeClusterInfo, SnodeData
from mq.protocol.codes import RequestCode, ResponseCode, SnodeCode
from mq.protocol.headers.snode import GetSnodeInfoRequestHeader, RegisterSnodeRequestHeader
from tests import answered
from tests.daemons.namesrv.servers import serve
from tests.daemons.peer import PATIENCE, Peer

A = SnodeData(snode_name="a", address="10.0.0.1:11911", cluster_name="c")
B = SnodeData(snode_name="b", address="10.0.0.2:11911", cluster_name="c")
OTHER = SnodeData(snode_name="o", address="10.0.0.3:11911", cluster_name="d")


async def register(peer: Peer, *all_of: SnodeData) -> None:
    for one in all_of:
        header = RegisterSnodeRequestHeader(
            snode_name=one.snode_name, snode_addr=one.address, cluster_name=one.cluster_name
        )
        reply = await peer.ask(SnodeCode.REGISTER_SNODE, header)
        assert reply.code == ResponseCode.SUCCESS


async def known(peer: Peer) -> SnodeClusterInfo:
    return SnodeClusterInfo.decode((await peer.ask(SnodeCode.GET_SNODE_CLUSTER_INFO)).body)


@answered.by_name_server(SnodeCode.REGISTER_SNODE, SnodeCode.GET_SNODE_CLUSTER_INFO)
def test_snodes_are_listed_by_name_and_by_cluster(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        assert await known(peer) == SnodeClusterInfo()
        await register(peer, A, B, OTHER)
        assert await known(peer) == SnodeClusterInfo(
            snode_table={"a": A, "b": B, "o": OTHER}, snode_cluster={"c": {"a", "b"}, "d": {"o"}}
        )

    serve(tmp_path, script)


@answered.by_name_server(SnodeCode.GET_SNODE_INFO)
def test_all_snodes_of_a_cluster_are_listed_by_their_names(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, A, B, OTHER)
        header = GetSnodeInfoRequestHeader(snode_cluster_name="c")
        reply = await peer.ask(SnodeCode.GET_SNODE_INFO, header)
        found = SnodeClusterInfo.decode(reply.body)
        assert found == SnodeClusterInfo(
            snode_table={"a": A, "b": B}, snode_cluster={"c": {"a", "b"}}
        )

    serve(tmp_path, script)


def test_the_cluster_info_lists_existing_snodes(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        without = await peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        assert b"snode" not in without.body
        await register(peer, A)
        reply = await peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        info = ClusterInfo.decode(reply.body)
        assert (info.snode_table, info.snode_cluster) == ({"a": A}, {"c": {"a"}})

    serve(tmp_path, script)


def test_a_snode_that_no_longer_registers_is_forgotten(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, A)
        async with asyncio.timeout(PATIENCE):
            while (await known(peer)).snode_table:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    serve(tmp_path, script, scanNotActiveBrokerInterval="10", snodeExpiredTimeout="50")


def test_a_snode_that_registers_again_stays_with_its_new_address() -> None:
    now = 100.0
    table = Snodes(lambda: now)
    table.register(A)
    now = 150.0
    moved = SnodeData(snode_name="a", address="10.0.0.9:11911", cluster_name="d")
    table.register(moved)
    now = 200.0
    table.expire(60)
    assert table.info() == SnodeClusterInfo(snode_table={"a": moved}, snode_cluster={"d": {"a"}})
    now = 211.0
    table.expire(60)
    assert len(table) == 0


def test_a_registration_without_a_snode_name_is_refused(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        for name in ("", "n" * 256):
            header = RegisterSnodeRequestHeader(
                snode_name=name, snode_addr="10.0.0.1:1", cluster_name="c"
            )
            reply = await peer.ask(SnodeCode.REGISTER_SNODE, header)
            assert reply.code == ResponseCode.SYSTEM_ERROR
        assert await known(peer) == SnodeClusterInfo()

    serve(tmp_path, script)


def test_the_number_of_snodes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snodes, "MOST_SNODES", 2)
    table = Snodes()
    table.register(A)
    table.register(B)
    with pytest.raises(Overloaded):
        table.register(OTHER)
    table.register(A)  # already registered
    assert len(table) == 2
