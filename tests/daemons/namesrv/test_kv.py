"""The KV configuration: kept over restarts, and sent to clients that query ordered topics."""

from pathlib import Path

import pytest

from mq.daemons.namesrv.app import NameServer
from mq.protocol.bodies import (
    KVTable,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.headers.kv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from tests import answered
from tests.daemons.namesrv.servers import register, route, serve, topic
from tests.daemons.peer import Peer


@answered.by_name_server(
    RequestCode.PUT_KV_CONFIG,
    RequestCode.GET_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
)
def test_kv_values_are_kept_over_a_restart(tmp_path: Path) -> None:
    async def write(server: NameServer, peer: Peer) -> None:
        for key, value in (("a", "1"), ("b", "2"), ("c", "3")):
            reply = await peer.ask(
                RequestCode.PUT_KV_CONFIG,
                PutKVConfigRequestHeader(namespace="N", key=key, value=value),
            )
            assert reply.code == ResponseCode.SUCCESS
        await peer.ask(
            RequestCode.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader(namespace="N", key="b")
        )

    async def read(server: NameServer, peer: Peer) -> None:
        reply = await peer.ask(
            RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace="N", key="a")
        )
        assert reply.fields == {"value": "1"}
        reply = await peer.ask(
            RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace="N", key="b")
        )
        assert (reply.code, reply.remark) == (
            ResponseCode.QUERY_NOT_FOUND,
            "No config item, Namespace: N Key: b",
        )
        reply = await peer.ask(
            RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader(namespace="N")
        )
        assert KVTable.decode(reply.body).table == {"a": "1", "c": "3"}
        reply = await peer.ask(
            RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader(namespace="M")
        )
        assert (reply.code, reply.remark) == (
            ResponseCode.QUERY_NOT_FOUND,
            "No config item, Namespace: M",
        )

    serve(tmp_path, write)
    serve(tmp_path, read)
    (tmp_path / "kvConfig.json").write_bytes(b'{"configTable":{"N"')  # incomplete: .bak is read
    serve(tmp_path, lambda server, peer: _has_values(server, peer))


async def _has_values(server: NameServer, peer: Peer) -> None:
    reply = await peer.ask(
        RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace="N", key="a")
    )
    assert reply.fields == {"value": "1"}


def test_a_kv_value_that_cannot_be_saved_is_refused_and_not_kept(tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json.tmp").mkdir()

    async def script(server: NameServer, peer: Peer) -> None:
        reply = await peer.ask(
            RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(namespace="N", key="a", value="1")
        )
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert reply.remark == "cannot save the KV configuration: Is a directory"
        reply = await peer.ask(
            RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace="N", key="a")
        )
        assert reply.code == ResponseCode.QUERY_NOT_FOUND

    serve(tmp_path, script)


def test_an_order_configuration_with_too_many_queues_is_refused(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        order = PutKVConfigRequestHeader(
            namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:2000000"
        )
        reply = await peer.ask(RequestCode.PUT_KV_CONFIG, order)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "a topic has at most 65536 queues at a broker" in (reply.remark or "")

    serve(tmp_path, script)


@pytest.mark.parametrize(("enabled", "conf"), [("false", None), ("true", "broker-a:4")])
def test_ordered_topics_reach_brokers_and_routes(
    tmp_path: Path, enabled: str, conf: str | None
) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        assert bytes((await register(peer, topic("T"))).body) == b""
        await peer.ask(
            RequestCode.PUT_KV_CONFIG,
            PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4"),
        )
        reply = await register(peer, topic("T"))
        assert KVTable.decode(reply.body).table == {"T": "broker-a:4"}
        found = await route(peer, "T")
        assert found is not None and found.order_topic_conf == conf

    serve(tmp_path, script, orderMessageEnable=enabled)
