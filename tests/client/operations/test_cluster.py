"""What is done at several brokers: side by side, and each for itself."""

import asyncio

import pytest

from mq.client.admin import Admin
from mq.client.errors import ConnectError, RequestNotSupported
from mq.client.operations import cluster
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from tests.client.scripted import scripted
from tests.interop.ports import free_port

RUNTIME = int(RequestCode.GET_BROKER_RUNTIME_INFO)
SECONDS = 0.05


def runtime(request: Command, channel: Channel) -> Command:
    return request.reply(0, None, b'{"table":{"a":"1"}}')


async def silent(request: Command, channel: Channel) -> Command:
    await asyncio.Event().wait()
    raise AssertionError


def test_brokers_that_are_asked_on_an_event_loop_wait_side_by_side() -> None:
    async def scenario() -> None:
        there = asyncio.Barrier(2)

        async def together(request: Command, channel: Channel) -> Command:
            await there.wait()
            return runtime(request, channel)

        async with scripted({RUNTIME: together}) as one, scripted({RUNTIME: together}) as other:
            async with Session(one) as session:
                done, failures = await cluster.at_each(
                    Admin(session), [one, other], lambda admin, at: admin.broker_runtime_info(at)
                )
        assert (done, failures) == ({one: {"a": "1"}, other: {"a": "1"}}, [])

    asyncio.run(scenario())


def test_a_silent_broker_and_a_dead_one_cost_the_time_limit_and_the_rest_is_there() -> None:
    async def scenario() -> None:
        dead = f"127.0.0.1:{free_port()}"
        async with scripted({RUNTIME: runtime}) as one, scripted({RUNTIME: silent}) as hung:
            async with Session(one) as session:
                done, failed = await cluster.outcomes(
                    Admin(session),
                    [hung, one, dead],
                    cluster.within(SECONDS, lambda admin, at: admin.broker_runtime_info(at)),
                )
        assert list(done) == [one]
        assert str(failed[hung]) == f"{hung}: no answer within 0.05 s"
        assert isinstance(failed[dead], ConnectError)

    asyncio.run(scenario())


def test_where_all_fail_the_last_error_has_the_others_as_its_notes() -> None:
    async def scenario() -> None:
        async with scripted({}) as one, scripted({}) as other, Session(one) as session:
            with pytest.raises(RequestNotSupported) as failure:
                await cluster.at_each(
                    Admin(session), [one, other], lambda admin, at: admin.broker_runtime_info(at)
                )
        assert other in str(failure.value)
        (note,) = failure.value.__notes__
        assert one in note

    asyncio.run(scenario())
