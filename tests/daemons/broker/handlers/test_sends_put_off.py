"""Sends that are put off to the end of a turn: never behind what came later on their connection."""

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

FOR_PYTHON = "00"  # a number that the native path leaves to it


def numbered(number: int, size: int = 1, **fields: str) -> bytes:
    """A send that comes alone, as clients write it; its body tells its number."""
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
        for _ in range(3):  # what waits is served in one turn, and stored at the end of the next
            await asyncio.sleep(0)
        log = self.broker.stores.messages.log
        data = b"".join(bytes(file.view[: log.written - file.start]) for file in log.files)
        return [int(bytes(one.body)[:1]) for one in decode_records(data) if one.body]


def run(root: Path, script: Callable[[Two], object]) -> list[int]:
    """What is stored of what a script sends in one turn of the loop."""

    async def main() -> list[int]:
        async with Harness(root, {}) as broker, Two(broker) as two:
            script(two)
            stored = await two.stored()
            assert not any(written.closed for written in two.sent)
            return stored

    return asyncio.run(main())


def test_what_waited_for_a_stalled_peer_is_stored_in_its_order(tmp_path: Path) -> None:
    def script(two: Two) -> None:
        channel = two.channels[0]
        channel.pause_writing()
        for data in (numbered(1), numbered(2, j=FOR_PYTHON), numbered(3), numbered(4)):
            channel.data_received(data)
        channel.resume_writing()

    assert run(tmp_path, script) == [1, 2, 3, 4]


@pytest.mark.parametrize("seen", [-500, 4])
def test_it_is_not_taken_for_the_rest_of_a_frame_that_came_behind_it(
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


def test_one_whose_peer_is_stalled_before_the_turn_ends_is_served_and_the_peer_stays_stalled(
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


def test_what_comes_when_the_path_is_not_taken_any_more_does_not_go_before_it(
    tmp_path: Path,
) -> None:
    def script(two: Two) -> None:
        other, channel = two.channels
        other.data_received(numbered(1))
        channel.data_received(numbered(2))
        two.broker.settings.update({"clientSendRate": "1000"})
        channel.data_received(numbered(3))

    assert run(tmp_path, script) == [1, 2, 3]


def test_what_comes_when_the_path_has_failed_at_others_does_not_go_before_it(
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


def test_one_that_python_serves_counts_once_for_who_looks_for_the_next_request(
    tmp_path: Path,
) -> None:
    """Counted again at the end of the turn it would be the next one, for which nobody waited."""

    def script(two: Two) -> None:
        polling = two.broker.listener.polling
        polling._pause = before = 100  # requests until it looks again
        two.channels[0].data_received(numbered(1))
        two.channels[1].data_received(numbered(2, j=FOR_PYTHON))
        two.broker.services.sends.native.settle()
        assert polling._pause == before - 2

    assert run(tmp_path, script) == [1, 2]


def test_what_was_put_off_is_stored_and_answered_before_the_store_stops(tmp_path: Path) -> None:
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


def test_what_one_has_sent_that_has_closed_is_served_before_others_are_told_of_that(
    tmp_path: Path,
) -> None:
    """A code that is said twice may begin as that of a send; what counts is the last."""
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
