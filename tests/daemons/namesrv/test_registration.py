"""The contents of a registration, in every form that brokers send."""

import zlib
from pathlib import Path

import orjson
import pytest

from mq.daemons.namesrv.app import NameServer
from mq.daemons.registration_body import body_crc32, compress
from mq.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicQueueMappingInfo,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.headers.broker import (
    QueryDataVersionRequestHeader,
)
from tests import answered
from tests.daemons.namesrv.servers import (
    clusters,
    header,
    register,
    route,
    serve,
    topic,
    topics,
    wrapper,
)
from tests.daemons.peer import Peer


def test_topics_are_replaced_only_with_another_data_version(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, topic("T", 4), counter=1)
        await register(peer, topic("T", 8), counter=1)
        found = await route(peer, "T")
        assert found is not None and found.queue_datas[0].write_queue_nums == 4
        await register(peer, topic("T", 8), counter=2)
        found = await route(peer, "T")
        assert found is not None and found.queue_datas[0].write_queue_nums == 8

    serve(tmp_path, script)


def test_a_compressed_registration_is_read(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        body = compress(
            RegisterBrokerBody(
                topic_config_serialize_wrapper=wrapper(topic("T", 3), topic("U", 5)),
                filter_server_list=["10.0.0.1:3000"],
            )
        )
        told = header(compressed=True, body_crc32=body_crc32(body))
        reply = await peer.ask(RequestCode.REGISTER_BROKER, told, body)
        assert reply.code == ResponseCode.SUCCESS
        found = await route(peer, "T")
        assert found is not None and found.queue_datas[0].read_queue_nums == 3
        assert found.filter_server_table == {"10.0.0.1:10911": ["10.0.0.1:3000"]}

    serve(tmp_path, script)


def test_a_compressed_registration_of_5x_brings_its_mappings(tmp_path: Path) -> None:
    def part(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    body = zlib.compress(
        part(b'{"counter":7,"stateVersion":0,"timestamp":1000}')
        + b"\x00\x00\x00\x01"
        + part(b'T 8 8 6 SINGLE_TAG {"message.type":"NORMAL"}')
        + part(b"[]")
        + b"\x00\x00\x00\x01"
        + part(b'{"bname":"broker-a","currIdMap":{0:1},"epoch":3,"topic":"T","totalQueues":8}')
    )

    async def script(server: NameServer, peer: Peer) -> None:
        reply = await peer.ask(
            RequestCode.REGISTER_BROKER, header(compressed=True), body, version=479
        )
        assert reply.code == ResponseCode.SUCCESS, reply
        found = await route(peer, "T")
        assert found is not None
        assert found.topic_queue_mapping_by_broker == {
            "broker-a": TopicQueueMappingInfo(
                topic="T", bname="broker-a", total_queues=8, epoch=3, curr_id_map={0: 1}
            )
        }

    serve(tmp_path, script)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"not zlib", "does not inflate"),
        (zlib.compress(b"\x00\x00\x00\x02{}")[:-5], "cut short"),
        (zlib.compress(b"\x00\x00\x00\x63{}"), "is no length"),
        (zlib.compress(b"\xff\xff\xff\xff"), "-1 is no length"),
        (zlib.compress(b"\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x03T 8"), "is not a topic"),
        (None, "inflates to over"),
    ],
)
def test_a_damaged_compressed_registration_is_refused(
    tmp_path: Path, body: bytes | None, reason: str
) -> None:
    if body is None:  # half a CPU second, which every test process would spend at collection
        body = zlib.compress(bytes(80 * 1024 * 1024))

    async def script(server: NameServer, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.REGISTER_BROKER, header(compressed=True), body)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert reason in (reply.remark or "")
        assert await topics(peer) == set()

    serve(tmp_path, script)


def test_a_registration_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.REGISTER_BROKER, header(body_crc32=7), b"{}")
        assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")

    serve(tmp_path, script)


def test_a_registration_of_a_broker_before_3_0_11_has_topics_only(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, filter_servers=["10.0.0.1:3000"])
        reply = await peer.ask(
            RequestCode.REGISTER_BROKER,
            header(),
            wrapper(topic("T"), counter=2).encode(),
            version=28,
        )
        assert reply.code == ResponseCode.SUCCESS
        found = await route(peer, "T")
        assert found is not None
        assert found.filter_server_table == {"10.0.0.1:10911": ["10.0.0.1:3000"]}

    serve(tmp_path, script)


def test_a_registration_without_a_body_makes_the_broker_known(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await peer.ask(RequestCode.REGISTER_BROKER, header())
        assert set((await clusters(peer)).broker_addr_table) == {"broker-a"}

    serve(tmp_path, script)


@answered.by_name_server(RequestCode.QUERY_DATA_VERSION)
def test_the_data_version_shows_whether_to_register_again(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        asked = QueryDataVersionRequestHeader(
            broker_name="broker-a",
            broker_addr="10.0.0.1:10911",
            cluster_name="DefaultCluster",
            broker_id=0,
        )
        version = DataVersion(timestamp=1000, counter=1)
        reply = await peer.ask(RequestCode.QUERY_DATA_VERSION, asked, version.encode())
        assert (reply.fields, bytes(reply.body)) == ({"changed": "true"}, b"")
        await register(peer, topic("T"))
        reply = await peer.ask(RequestCode.QUERY_DATA_VERSION, asked, version.encode())
        assert reply.fields == {"changed": "false"}
        assert orjson.loads(reply.body) == {"timestamp": 1000, "counter": 1}
        version.counter = 2
        reply = await peer.ask(RequestCode.QUERY_DATA_VERSION, asked, version.encode())
        assert reply.fields == {"changed": "true"}

    serve(tmp_path, script)
