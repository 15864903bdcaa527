"""A failure of the native path: Python serves the rest, and the native path is not used again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mq.daemons.channel import Channel
from mq.protocol.codes import ResponseCode
from mq.protocol.command_reader import CommandReader
from mq.protocol.native import native
from tests.daemons.broker.harness import Harness
from tests.daemons.broker.native_pair import TO_EACH_QUEUE, alone, plain
from tests.daemons.broker.running import broker_on
from tests.daemons.written import Written, connected

pytestmark = pytest.mark.skipif(native is None, reason="the native path is not built")


def test_requests_that_fail_natively_are_left_to_python_with_those_received_together(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(broker: Harness, channel: Channel, transport: Written) -> None:
        dispatcher, sends = broker.listener.dispatcher, broker.services.sends
        channel.data_received(TO_EACH_QUEUE)
        await asyncio.sleep(0)
        assert sends.native.bulk is not None and dispatcher.bulk is not None
        broker.stores.messages.queue("T", 1).queue_id = 1 << 40  # more than a record holds

        transport.data = b""
        channel.data_received(plain(e="0") + plain(e="1") + plain(e="2"))
        await asyncio.sleep(0)
        codes = sorted(reply.code for reply in CommandReader().receive(transport.data))
        assert codes == [ResponseCode.SUCCESS, ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR]
        assert [broker.stores.messages.max_offset("T", queue) for queue in (0, 2)] == [2, 2]
        assert not transport.closed

        assert sends.native.bulk is None and dispatcher.bulk is None
        broker.settings.update({"maxMessageSize": "1000"})
        assert sends.native.bulk is None and dispatcher.bulk is None

    with caplog.at_level(logging.ERROR):
        _run(tmp_path, script)
    assert "sends stay in Python" in caplog.text


def test_requests_of_many_connections_that_fail_natively_are_left_to_python(
    tmp_path: Path,
) -> None:
    async def script(broker: Harness, channel: Channel, transport: Written) -> None:
        channel.data_received(TO_EACH_QUEUE)
        await asyncio.sleep(0)
        broker.stores.messages.queue("T", 1).queue_id = 1 << 40  # more than a record holds
        others = [connected(broker.listener, Written()) for _ in "ab"]
        channels = [channel, *(one for one, _ in others)]
        sent = [transport, *(to for _, to in others)]
        try:
            transport.data = b""
            for one, name in zip(channels, "012", strict=True):
                one.data_received(alone(e=name))
            await asyncio.sleep(0)
        finally:
            for one in channels[1:]:
                one.connection_lost(None)
        codes = [[reply.code for reply in CommandReader().receive(to.data)] for to in sent]
        success, error = ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR
        assert codes == [[success], [error], [success]]
        assert [broker.stores.messages.max_offset("T", number) for number in (0, 2)] == [2, 2]
        assert broker.services.sends.native.bulk is None

    _run(tmp_path, script)


def _run(root: Path, script: Callable[[Harness, Channel, Written], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Harness(root, {}) as broker:
            channel, transport = connected(broker.listener, Written())
            try:
                await script(broker, channel, transport)
            finally:
                channel.connection_lost(None)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("settings", "way"), [({}, "use"), ({"clientSendRate": "9"}, "do not use")]
)
def test_a_broker_logs_the_use_of_the_native_path_at_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: dict[str, str], way: str
) -> None:
    async def main() -> None:
        async with broker_on(tmp_path, **settings):
            pass

    with caplog.at_level(logging.INFO):
        asyncio.run(main())
    assert f"plain sends {way} the native path" in caplog.text
    assert "plain pulls use the native path" in caplog.text
    assert ("clientSendRate" in caplog.text) == bool(settings)
