"""The history of a message, as far as brokers report it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mq.client.admin import Admin
from mq.client.operations.messages.dead_letters import EARLY, UNSAID, USED_UP, cause, retry_limit
from mq.client.operations.messages.history import Event, history
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import GroupList, SubscriptionGroupConfig, SubscriptionGroupWrapper
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage
from mq.protocol.properties import PropertyKey
from tests.client.scripted import name_server, scripted

BUSY = "[OVERLOAD]system busy, start flow control for a while"


def busy(request: Command, channel: Channel) -> Command:
    return request.reply(ResponseCode.SYSTEM_BUSY, remark=BUSY)


def knows(**limits: int) -> Handler:
    """A broker that reports how often groups retry."""
    table = {
        name: SubscriptionGroupConfig(group_name=name, retry_max_times=limit)
        for name, limit in limits.items()
    }
    body = SubscriptionGroupWrapper(subscription_group_table=table).encode()
    return lambda request, _: request.reply(body=body)


@asynccontextmanager
async def brokers(*handlers: dict[int, Handler]) -> AsyncIterator[Admin]:
    """Brokers a, b … that every topic is on."""
    async with scripted(handlers[0]) as first, scripted(handlers[-1]) as last:
        names = {"a": first, "b": last} if len(handlers) > 1 else {"a": first}
        async with scripted(name_server(names)) as server, Session(server) as session:
            yield Admin(session)


# members, offsets ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("silent", "detail", "failure"),
    [
        (
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            "its members could not be asked for",
            "the members of group billing",
        ),
        (
            RequestCode.QUERY_CONSUMER_OFFSET,
            "its offset could not be asked for",
            "the offset of group billing",
        ),
    ],
)
def test_nothing_is_claimed_of_a_group_where_a_broker_is_busy(
    silent: RequestCode, detail: str, failure: str
) -> None:
    """The group's tags may exclude the message, or each of its members may have its own offsets."""
    groups = GroupList(group_list={"billing"}).encode()
    answers: dict[int, Handler] = {
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: lambda request, _: request.reply(body=groups),
        RequestCode.QUERY_MESSAGE: lambda r, _: r.reply(ResponseCode.QUERY_NOT_FOUND),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: lambda request, _: request.reply(
            ResponseCode.CONSUMER_NOT_ONLINE
        ),
        RequestCode.QUERY_CONSUMER_OFFSET: lambda request, _: request.reply(0, {"offset": "5"}),
    }

    async def told() -> tuple[Event, list[str]]:
        async with brokers(answers) as admin:
            (broker,) = (await admin.topic_route("Orders")).broker_datas
            host, port = broker.broker_addrs[0].split(":")
            unique = {PropertyKey.UNIQUE_KEY: "7F00000100002A9F00000000000004D2"}
            message = StoredMessage("Orders", b"x", unique, store_host=(host, int(port)))
            events, failures = await history(admin, message)
            return events[-1], failures

    last, failures = asyncio.run(told())
    assert (last.event, failures) == ("consumed", [])
    answers[silent] = busy
    last, failures = asyncio.run(told())
    assert (last.event, last.detail) == ("unknown", detail)
    (line,) = failures
    assert line.startswith(f"{failure}: ")
    assert BUSY in line


# why a message was given up -------------------------------------------------------------------

LIMITS = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG


@pytest.mark.parametrize(
    ("first", "second", "limit", "reason"),
    [
        (busy, knows(g=2), 2, USED_UP),
        (knows(g=20), busy, 20, EARLY),
        (knows(), knows(), 16, EARLY),
        (busy, knows(), None, UNSAID),
        (knows(), busy, None, UNSAID),
    ],
)
def test_how_often_a_group_retries_is_what_the_brokers_that_answer_say(
    first: Handler, second: Handler, limit: int | None, reason: str
) -> None:
    """One that was away made every group retry 16 times."""

    async def scenario() -> None:
        failures: list[str] = []
        async with brokers({LIMITS: first}, {LIMITS: second}) as admin:
            assert await retry_limit(admin, "g", failures) == limit
        assert [BUSY in line for line in failures] == ([True] if limit is None else [])

    asyncio.run(scenario())
    letter = StoredMessage("%DLQ%g", b"", {}, reconsume_times=3)
    assert cause(letter, limit) == reason


def test_a_limit_of_the_message_itself_counts_though_no_broker_says_one() -> None:
    own = {PropertyKey.MAX_RECONSUME_TIMES: "3"}
    assert cause(StoredMessage("%DLQ%g", b"", own, reconsume_times=3), None) == USED_UP
