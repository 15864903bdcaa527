"""Messages found by offset, by a key and by an entry of their queue."""

from pathlib import Path

from mq.protocol.bodies import (
    QueryConsumeQueueResponseBody,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import decode_record, decode_records
from mq.protocol.tags import tags_code
from tests import answered
from tests.daemons.broker.harness import Harness, create_topic, send, serve
from tests.daemons.peer import Peer


def refusal(reply: Command) -> tuple[int, str | None]:
    return reply.code, reply.remark


@answered.by_broker(
    RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.QUERY_CONSUME_QUEUE
)
def test_a_message_is_found_by_offset_key_and_queue_entry(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await create_topic(peer, "T", 1)
        properties = "KEYS\x01k1 k2\x02TAGS\x01blue\x02"
        await send(peer, "T", b"first", properties="KEYS\x01k1\x02")
        offset_id = await send(peer, "T", b"second", properties=properties)
        physical = int(offset_id[-16:], 16)
        reply = await peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(physical)})
        assert decode_record(reply.body).body == b"second"
        reply = await peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(physical + 1)})
        assert refusal(reply) == (1, f"can not find message by the offset, {physical + 1}")
        asked = {
            "topic": "T",
            "key": "k1",
            "maxNum": "32",
            "beginTimestamp": "0",
            "endTimestamp": str(2**63 - 1),
        }
        reply = await peer.ask(RequestCode.QUERY_MESSAGE, asked)
        assert [m.body for m in decode_records(reply.body)] == [b"first", b"second"]
        assert reply.fields["indexLastUpdatePhyoffset"] == str(physical)
        reply = await peer.ask(RequestCode.QUERY_MESSAGE, asked | {"key": "none"})
        assert refusal(reply) == (22, "can not find message, maybe time range not correct")
        reply = await peer.ask(
            RequestCode.QUERY_CONSUME_QUEUE,
            {"topic": "T", "queueId": "0", "index": "1", "count": "5", "consumerGroup": "g"},
        )
        shown = QueryConsumeQueueResponseBody.decode(reply.body)
        assert (shown.min_queue_index, shown.max_queue_index) == (0, 2)
        assert [(e.physic_offset, e.tags_code) for e in shown.queue_data] == [
            (physical, tags_code("blue"))
        ]
        assert shown.filter_data == "g@T is not online!"
        reply = await peer.ask(
            RequestCode.QUERY_CONSUME_QUEUE, {"topic": "T", "queueId": "0", "index": "9"}
        )
        assert refusal(reply) == (0, "Index 9 of 0@T is not exist!")
        reply = await peer.ask(RequestCode.QUERY_CONSUME_QUEUE, {"topic": "T", "queueId": "5"})
        assert refusal(reply) == (1, "5@T is not exist!")

    serve(tmp_path, script)
