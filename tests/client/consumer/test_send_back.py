"""Messages that a consumer sends back."""

import asyncio
from collections.abc import Callable

import pytest

from mq.client.consumer.send_back import send_back
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.send import SendMessageResponseHeader
from mq.protocol.message import StoredMessage
from tests.client.scripted import accept_heartbeats, name_server, scripted

QUEUE = MessageQueue("Orders", "broker-a", 0)


def answering(code: int, sent: list[bytes]) -> dict[int, Handler]:
    """Return the handlers of a broker that answers a send-back with `code` and accepts sends."""

    def take_back(request: Command, channel: Channel) -> Command:
        return request.reply(code)

    def take(request: Command, channel: Channel) -> Command:
        sent.append(bytes(request.body))
        fields = SendMessageResponseHeader(msg_id="0A", queue_id=0, queue_offset=0).encode()
        reply = request.reply(ResponseCode.SUCCESS)
        reply.fields = fields
        return reply

    handlers: dict[int, Callable[..., Command]] = {
        RequestCode.CONSUMER_SEND_MSG_BACK: take_back,
        RequestCode.SEND_MESSAGE: take,
        RequestCode.SEND_MESSAGE_V2: take,
    }
    return {**accept_heartbeats(), **handlers}


@pytest.mark.parametrize(
    ("code", "copies"),
    [
        (ResponseCode.SUCCESS, 0),
        (ResponseCode.SLAVE_NOT_AVAILABLE, 0),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, 0),
        (ResponseCode.FLUSH_DISK_TIMEOUT, 0),
        (ResponseCode.SYSTEM_ERROR, 1),
    ],
)
def test_a_copy_is_sent_only_if_the_message_was_not_stored(code: int, copies: int) -> None:
    async def main() -> None:
        sent: list[bytes] = []
        async with (
            scripted(answering(code, sent)) as broker,
            scripted(name_server({"broker-a": broker})) as names,
            Session(names) as session,
        ):
            message = StoredMessage("Orders", b"a chair", physical_offset=7)
            await send_back(session, "g", QUEUE, message, delay_level=0, max_reconsume_times=3)
            assert len(sent) == copies

    asyncio.run(main())
