"""Offsets of a file are set where no member of the group would overwrite them."""

import asyncio

from mq.client.admin import Admin
from mq.client.operations.offsets.importing import Import
from mq.client.operations.offsets.records import GroupQueue, OffsetRecord
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import Connection, ConsumerConnection, ConsumerOffsetSerializeWrapper
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.client.scripted import name_server, scripted

TOPIC = "Orders"


def test_a_group_is_running_that_one_broker_knows_and_another_has_not_heard_of_yet() -> None:
    """Members return to a restarted broker only after some seconds."""
    moved: list[Command] = []
    online = ConsumerConnection(connection_set=[Connection(client_id="c", client_addr="a:1")])

    def move(request: Command, channel: Channel) -> Command:
        moved.append(request)
        return request.reply()

    def broker(members: Handler) -> dict[int, Handler]:
        none = ConsumerOffsetSerializeWrapper().encode()
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: lambda request, _: request.reply(body=none),
            RequestCode.GET_MAX_OFFSET: lambda request, _: request.reply(0, {"offset": "9"}),
            RequestCode.GET_MIN_OFFSET: lambda request, _: request.reply(0, {"offset": "0"}),
            RequestCode.GET_CONSUMER_CONNECTION_LIST: members,
            RequestCode.UPDATE_CONSUMER_OFFSET: move,
        }

    async def scenario() -> None:
        knows = broker(lambda request, _: request.reply(body=online.encode()))
        started = broker(lambda request, _: request.reply(ResponseCode.CONSUMER_NOT_ONLINE))
        async with (
            scripted(knows) as a,
            scripted(started) as b,
            scripted(name_server({"a": a, "b": b})) as server,
            Session(server) as session,
        ):
            run = Import(
                Admin(session), 0, {}, by_time=False, earliest=False, everywhere=False, force=False
            )
            records = [OffsetRecord(GroupQueue("g", TOPIC, name, 0), 5) for name in "ab"]
            outcomes = await run.run(records)
        assert [outcome.result for outcome in outcomes] == ["running", "running"]
        assert moved == []

    asyncio.run(scenario())
