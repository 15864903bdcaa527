"""Sends that are deferred to the end of a loop iteration: never after later ones of their
connection.
"""

import asyncio
import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command_reader import CommandReader
from mq.protocol.message import decode_records
from mq.protocol.native import native
from tests.daemons.broker.harness import Harness
from tests.daemons.broker.native_pair import FIELDS, HEADER, TO_EACH_QUEUE, framed
from tests.daemons.written import Written, connected

pytestmark = pytest.mark.skipif(native is None, reason="the native path is not built")

FOR_PYTHON = "00"  # a number that the native path leaves to Python


def numbered(number: int, size: int = 1, **fields: str) -> bytes:
    """A send in a frame of its own, as clients write it; its body contains its number."""
    header = {**HEADER, "opaque": number, "extFields": FIELDS | fields}
    return framed(header, b"%d" % number * size, blanks=False)


class Two:
    """Two connections of a broker, which knows the queues."""

    def __init__(self, broker: Harness) -> None:
        self.broker = broker
        made = [connected(broker.listener, Written()) for _ in "12"]
        self.channels = [channel for channel, _ in made]
        self.sent = [written for _, written in made]

    async def __aenter__(self) -> "Two":
        self.channels[0].data_received(TO_EACH_QUEUE)
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self.channels:
            channel.connection_lost(None)

    async def stored(self) -> list[int]:
        """The numbers of the sends, in the order of the log."""
        # waiting sends are served in one iteration, and stored at the end of the next
        for _ in range(3):
            await asyncio.sleep(0)
        log = self.broker.stores.messages.log
        data = b"".join(bytes(file.view[: log.written - file.start]) for file in log.files)
        return [int(bytes(one.body)[:1]) for one in decode_records(data) if one.body]


def run(root: Path, script: Callable[[Two], object]) -> list[int]:
    """The stored sends of a script that runs in one iteration of the loop."""

    async def main() -> list[int]:
        async with Harness(root, {}) as broker, Two(broker) as two:
            script(two)
            stored = await two.stored()
            assert not any(written.closed for written in two.sent)
            return stored

    return asyncio.run(main())


def test_sends_deferred_for_a_stalled_peer_are_stored_in_order(tmp_path: Path) -> None:
    def script(two: Two) -> None:
        channel = two.channels[0]
        channel.pause_writing()
        for data in (numbered(1), numbered(2, j=FOR_PYTHON), numbered(3), numbered(4)):
            channel.data_received(data)
        channel.resume_writing()

    assert run(tmp_path, script) == [1, 2, 3, 4]


@pytest.mark.parametrize("seen", [-500, 4])
def test_a_deferred_send_is_not_confused_with_the_rest_of_a_later_frame(
    tmp_path: Path, seen: int
) -> None:
    async def main() -> None:
        last = numbered(4, size=600)
        async with Harness(tmp_path, {}) as broker, Two(broker) as two:
            channel = two.channels[0]
            channel.pause_writing()
            for data in (numbered(1), numbered(2, j=FOR_PYTHON), numbered(3), last[:seen]):
                channel.data_received(data)
            channel.resume_writing()
            assert await two.stored() == [1, 2, 3]
            channel.data_received(last[seen:])
            assert await two.stored() == [1, 2, 3, 4]

    asyncio.run(main())


def test_a_send_whose_peer_stalls_before_the_iteration_ends_is_served(
    tmp_path: Path,
) -> None:
    def script(two: Two) -> None:
        two.channels[1].data_received(numbered(1))  # opens the batch
        channel = two.channels[0]
        channel.data_received(numbered(2, j=FOR_PYTHON))
        channel.pause_writing()
        channel.data_received(numbered(3))
        two.broker.services.sends.native.settle()
        assert channel.stalled

    assert run(tmp_path, script) == [1, 2]


def test_sends_after_the_native_path_is_disabled_do_not_overtake_it(
    tmp_path: Path,
) -> None:
    def script(two: Two) -> None:
        other, channel = two.channels
        other.data_received(numbered(1))
        channel.data_received(numbered(2))
        two.broker.settings.update({"clientSendRate": "1000"})
        channel.data_received(numbered(3))

    assert run(tmp_path, script) == [1, 2, 3]


def test_sends_after_a_native_failure_do_not_overtake_it(
    tmp_path: Path,
) -> None:
    def script(two: Two) -> None:
        other, channel = two.channels
        other.data_received(numbered(1))
        channel.data_received(numbered(2))
        two.broker.stores.messages.queue("T", 2).queue_id = 1 << 40  # more than a record holds
        other.data_received(numbered(9, e="2") + numbered(9, e="2"))
        channel.data_received(numbered(3))

    assert run(tmp_path, script) == [1, 2, 3]


def test_a_send_served_by_python_counts_once_for_polling(
    tmp_path: Path,
) -> None:
    """Counted again at the end of the iteration it would seem a request without a poll."""

    def script(two: Two) -> None:
        polling = two.broker.listener.polling
        polling._pause = before = 100  # requests until it polls again
        two.channels[0].data_received(numbered(1))
        two.channels[1].data_received(numbered(2, j=FOR_PYTHON))
        two.broker.services.sends.native.settle()
        assert polling._pause == before - 2

    assert run(tmp_path, script) == [1, 2]


def test_deferred_sends_are_stored_and_answered_before_the_store_stops(tmp_path: Path) -> None:
    async def main() -> None:
        async with Harness(tmp_path, {}) as broker, Two(broker) as two:
            other, channel = two.channels
            other.data_received(numbered(1))
            channel.data_received(numbered(2))
            broker.stores.messages.stop_taking()
            (reply,) = CommandReader().receive(two.sent[1].data)
            assert reply.code == ResponseCode.SUCCESS, reply
            assert await two.stored() == [1, 2]

    asyncio.run(main())


def test_sends_of_a_closed_connection_are_served_before_notifications(
    tmp_path: Path,
) -> None:
    """A code that is given twice may begin as that of a send; the last one counts."""
    beat = b'{"clientID":"c","producerDataSet":[],"consumerDataSet":[{"groupName":"G"}]}'
    header = json.dumps({**HEADER, "extFields": {}}, separators=(",", ":")).encode()
    text = header.replace(b",", b',"code":%d,' % RequestCode.HEART_BEAT, 1)
    frame = struct.pack(">ii", 4 + len(text) + len(beat), len(text)) + text + beat

    async def main() -> None:
        async with Harness(tmp_path, {}) as broker, Two(broker) as two:
            other, channel = two.channels
            other.data_received(numbered(1))
            channel.pause_writing()
            channel.data_received(frame)
            channel.connection_lost(None)
            await two.stored()
            assert not broker.clients.consumers.groups

    asyncio.run(main())
