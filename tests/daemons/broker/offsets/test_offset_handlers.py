"""Offsets of queues, and of groups in them."""

from copy import deepcopy
from pathlib import Path

import pytest

from mq.daemons.broker.store.store_times import store_time
from mq.protocol.codes import RequestCode, ResponseCode
from tests import answered
from tests.daemons.broker.harness import Harness, create_topic, send, serve
from tests.daemons.peer import Peer


@answered.by_broker(
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
)
def test_offsets_of_a_queue_are_returned(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await create_topic(peer, "T", 2)
        for number in range(3):
            await send(peer, "T", b"%d" % number, 1)
        queue = {"topic": "T", "queueId": "1"}
        assert (await peer.ask(RequestCode.GET_MAX_OFFSET, queue)).fields == {"offset": "3"}
        assert (await peer.ask(RequestCode.GET_MIN_OFFSET, queue)).fields == {"offset": "0"}
        reply = await peer.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, queue)
        earliest = int(reply.fields["timestamp"])
        assert earliest == store_time(broker.stores.messages, "T", 1, 0)
        reply = await peer.ask(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue | {"timestamp": str(earliest - 1)}
        )
        assert reply.fields == {"offset": "0"}
        future = queue | {"timestamp": str(earliest + 3_600_000)}
        for boundary, offset in ((None, "2"), ("LOWER", "3"), ("UPPER", "2"), ("upper", "2")):
            named = {} if boundary is None else {"boundaryType": boundary}
            reply = await peer.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, future | named)
            assert reply.fields == {"offset": offset}
        none = {"topic": "none", "queueId": "7"}
        assert (await peer.ask(RequestCode.GET_MAX_OFFSET, none)).fields == {"offset": "0"}
        reply = await peer.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, none)
        assert reply.fields == {"timestamp": "-1"}
        assert not (tmp_path / "store" / "consumequeue" / "none").exists()

    serve(tmp_path, script)


@answered.by_broker(
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
)
def test_a_groups_offset_is_kept(tmp_path: Path) -> None:
    where = {"consumerGroup": "g", "topic": "T", "queueId": "0"}

    async def script(broker: Harness, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, where)
        assert reply.fields == {"offset": "0"}  # a young queue
        reply = await peer.ask(
            RequestCode.QUERY_CONSUMER_OFFSET, where | {"setZeroIfNotFound": "false"}
        )
        assert reply.code == ResponseCode.QUERY_NOT_FOUND
        await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, where | {"commitOffset": "42"})
        reply = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, where)
        assert reply.fields == {"offset": "42"}
        reply = await peer.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        # After the offsets of the broker's own group, which makes popped messages visible again.
        text = bytes(reply.body)
        version = b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},'
        assert text.startswith(version + b'"offsetTable":{"rmq_sys_REVIVE_LOG_')
        assert text.endswith(b'},"T@g":{0:42}}}') and text.count(b"@") == 2

    serve(tmp_path, script)


def test_a_new_group_of_an_old_queue_has_no_offset(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await create_topic(peer, "T", 1)
        await send(peer, "T", b"x")
        where = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
        reply = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, where)
        assert reply.code == ResponseCode.QUERY_NOT_FOUND
        assert "maybe this group consumer boot first" in (reply.remark or "")

    # No memory counts as holding new messages, so every queue counts as old.
    serve(tmp_path, script, accessMessageInMemoryMaxRatio="-1")


@pytest.mark.parametrize(
    "change", [{"topic": "a@b"}, {"consumerGroup": "../x"}, {"queueId": "-1"}, {"queueId": "x"}]
)
def test_an_offset_under_a_bad_name_is_refused(tmp_path: Path, change: dict[str, str]) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        where = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "1"}
        before = deepcopy(broker.stores.offsets.table)
        reply = await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, where | change)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert broker.stores.offsets.table == before

    serve(tmp_path, script)
