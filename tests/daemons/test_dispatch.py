"""Requests whose replies are sent later."""

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

from mq.daemons.channel import Channel, NotReady
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.daemons.memory import cost_of
from mq.protocol.command import Command
from mq.protocol.frame import encode
from tests.daemons.written import Written, connected


def test_a_request_that_a_stop_cancels_before_its_first_step_leaves_nothing() -> None:
    async def main() -> None:
        made: list[Coroutine[Any, Any, Command]] = []

        async def answer(command: Command) -> Command:
            return command.reply()

        def later(command: Command, channel: Channel) -> Coroutine[Any, Any, Command]:
            made.append(answer(command))
            return made[0]

        listener = Listener(Dispatcher({1: later}), "127.0.0.1", 0)
        channel, _ = connected(listener, Written())
        before = channel.memory
        request = Command(1, body=bytes(100))
        channel.data_received(encode(request))
        assert channel.memory >= before + cost_of(request)
        await listener.dispatcher.cancel()
        assert inspect.getcoroutinestate(made[0]) == inspect.CORO_CLOSED
        assert channel.memory == before
        assert not listener.dispatcher.tasks

    asyncio.run(main())


def test_a_request_that_waits_when_its_connection_closes_is_not_handled_again() -> None:
    async def main() -> None:
        calls: list[Channel] = []
        ready = asyncio.Event()

        async def prepare(channel: Channel) -> None:
            await ready.wait()

        def handle(command: Command, channel: Channel) -> Command:
            calls.append(channel)
            raise NotReady(prepare)

        listener = Listener(Dispatcher({1: handle}), "127.0.0.1", 0)
        channel, transport = connected(listener, Written())
        channel.data_received(encode(Command(1)))
        await asyncio.sleep(0)
        channel.connection_lost(None)
        ready.set()
        await listener.dispatcher.finish(10)
        assert calls == [channel]
        assert not transport.data

    asyncio.run(main())
