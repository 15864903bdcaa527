import zlib

from mq.client.admin import Admin
from mq.client.operations.messages import reading
from mq.client.operations.messages.choice import Choice
from mq.client.operations.messages.copying import Copier
from mq.client.operations.messages.rate import Rate
from mq.client.operations.messages.reading import Reader
from mq.client.operations.messages.sending import Targets, queue_map
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import MessageQueue, TopicConfig
from mq.protocol.message import Message
from tests.client.compressed import said_to_be_compressed
from tests.client.scenarios import in_a_loop


@in_a_loop
async def test_what_small_records_stand_for_is_given_in_parts() -> None:
    # 4 MB of zeros are a record of 4 KB: one pull gives all of them.
    async with Standalone(None, name_server_port=0, broker_port=0) as pair:
        async with (
            Session(pair.name_server_address) as session,
            Producer(session, "bombs") as producer,
        ):
            config = TopicConfig(topic_name="Bombs", read_queue_nums=1, write_queue_nums=1)
            await Admin(session).create_topic(pair.broker.address, config)
            queue = MessageQueue("Bombs", "broker-a", 0)
            for _ in range(25):
                await producer.send(Message("Bombs", bytes(4_000_000)), queue)
            reader = Reader(session, Choice("Bombs"))
            spans, _ = await reader.spans()
            given = [
                ([message.queue_offset for message in messages], sum(map(_size, messages)), after)
                async for messages, after in reader.batches(spans[0])
            ]
    most = reading.MOST_UNPACKED + 4_000_000
    assert [offset for offsets, _, _ in given for offset in offsets] == list(range(25))
    assert all(size <= most for _, size, _ in given)
    assert [after for _, _, after in given] == [offsets[-1] + 1 for offsets, _, _ in given]
    assert len(given) > 1


def _size(message: object) -> int:
    return len(message.body)  # type: ignore[attr-defined]


@in_a_loop
async def test_a_body_that_cannot_be_decompressed_is_told_of_and_not_copied() -> None:
    async with Standalone(None, name_server_port=0, broker_port=0) as pair:
        async with (
            Session(pair.name_server_address) as session,
            Producer(session, "bombs") as producer,
        ):
            for topic in ("Packed", "Copies"):
                config = TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1)
                await Admin(session).create_topic(pair.broker.address, config)
            for body in (zlib.compress(b"plain"), zlib.compress(bytes(100_000_000)), b"no zlib"):
                await session.call(pair.broker.address, said_to_be_compressed("Packed", body))
            targets = Targets(producer, await queue_map(producer, "Copies"))
            choice = Choice("Packed")
            copier = Copier(session, choice, targets, "Copies", new_ids=False, rate=Rate(None))
            failures = await copier.run()
            reader = Reader(session, Choice("Copies"))
            spans, _ = await reader.spans()
            copies = [
                bytes(message.body)
                async for messages, _ in reader.batches(spans[0])
                for message in messages
            ]
    assert (failures, copies) == ([], [b"plain"])
    (line,) = copier.gaps
    assert line.startswith("broker-a:0: bodies that cannot be decompressed: 2, the first at offset")
    assert "offset 1: the zlib body is larger than" in line
