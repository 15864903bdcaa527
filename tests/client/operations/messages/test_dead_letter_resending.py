"""Dead letters are not resent twice, whatever name servers report."""

import asyncio

from mq.client.admin import Admin
from mq.client.operations.messages.dead_letter_resending import Resending
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage
from mq.protocol.properties import PropertyKey
from tests.client.scripted import accept_heartbeats, routes, scripted

TOPIC = "Orders"


def test_nothing_is_resent_while_the_search_for_copies_fails() -> None:
    """A name server that has just started learns of the topic in between: the copy is there."""
    sent: list[int] = []
    asked: list[str] = []

    def store(request: Command, channel: Channel) -> Command:
        sent.append(request.code)
        return request.reply(ResponseCode.SYSTEM_ERROR)

    async def scenario() -> None:
        broker: dict[int, Handler] = {
            **accept_heartbeats(),
            RequestCode.SEND_MESSAGE_V2: store,
            RequestCode.QUERY_MESSAGE: lambda r, _: r.reply(ResponseCode.QUERY_NOT_FOUND),
        }
        async with scripted(broker) as address:
            known = routes({"b": address})

            def route(request: Command, channel: Channel) -> Command:
                topic = request.fields["topic"]
                asked.append(topic)
                if asked.count(topic) == 1:
                    return request.reply(ResponseCode.TOPIC_NOT_EXIST)
                answer = known(request, channel)
                assert isinstance(answer, Command)
                return answer

            letter = StoredMessage(
                "%DLQ%g",
                b"x",
                {
                    PropertyKey.RETRY_TOPIC: TOPIC,
                    PropertyKey.UNIQUE_KEY: "7F00000100002A9F00000000000004D2",
                },
                broker_name="b",
            )
            async with (
                scripted({RequestCode.GET_ROUTEINFO_BY_TOPIC: route}) as server,
                Session(server) as session,
                Producer(session, "tools", retries=0) as producer,
            ):
                (done,) = await Resending(Admin(session), producer).run([letter])
        assert (done.result, sent) == ("failed", [])

    asyncio.run(scenario())
