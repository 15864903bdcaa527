"""Damaged records of the store are not delivered and do not block consumers."""

import asyncio
import mmap
from pathlib import Path

import pytest

from mq.client.errors import BrokerError
from mq.client.pull.pull_consumer import PullConsumer
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from tests.client.clusters import GROUP, TOPIC, cluster

_BODIES = [b"message %d" % number for number in range(5)]
_SIZE, _MAGIC, _BODY = 0, 4, 88  # offsets of these fields in a record


def _damage(folder: Path, body: bytes, at: int) -> None:
    """Change the byte at `at` of the record with this body."""
    for path in folder.rglob("commitlog/0*"):
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as log:  # the file is 1 GiB
            found = log.find(body)
            if found >= 0:
                log[found - _BODY + at] ^= 0x40
                return
    raise AssertionError(f"{body!r} is in no log")


@pytest.mark.parametrize("at", [_BODY + 2, _SIZE + 3, _SIZE, _MAGIC])
def test_a_damaged_record_is_skipped_and_those_around_it_are_read(
    at: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(*_BODIES)
            _damage(there.pair.broker.stores.messages.root, _BODIES[2], at)
            async with PullConsumer(there.address, GROUP) as puller:
                (queue,) = await puller.queues(TOPIC)
                found = [message.body async for message in puller.read(queue)]
            assert found == [body for body in _BODIES if body != _BODIES[2]]
            assert "skipped records that are damaged" in caplog.text

    asyncio.run(scenario())


def test_a_damaged_message_cannot_be_sent_back() -> None:
    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(*_BODIES)
            async with PullConsumer(there.address, GROUP) as puller:
                (queue,) = await puller.queues(TOPIC)
                (message, *_) = (await puller.pull(queue, 2)).messages
            _damage(there.pair.broker.stores.messages.root, _BODIES[2], _BODY + 2)
            header = ConsumerSendMsgBackRequestHeader(
                offset=message.physical_offset, group=GROUP, delay_level=1
            )
            command = Command(RequestCode.CONSUMER_SEND_MSG_BACK, header.encode())
            with pytest.raises(BrokerError, match="CRC of its body is wrong"):
                await there.session.call(there.pair.broker.address, command)

    asyncio.run(scenario())
