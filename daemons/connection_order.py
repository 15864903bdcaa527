"""Requests of one connection that change the same are worked off in the order in which they came.

Most of them at once. One with a large body is read in a thread and taken in steps, and what its
sender says behind it must not overtake it: a lock that is given up would be renewed by what was
said before, a client that has left a group would be its member again, and a broker that stops
would be registered. Whoever checks what a request may do reads its body, too: that is part of it.

A snode passes locks on, and keeps the order of those for each broker itself (`Forwarding`): it has
no turn for them.

What waits is counted to its connection, as all that is answered later is: with too much of it the
connection is not read any more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from mq.daemons.channel import Channel
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command

Reply = Command | None


class ConnectionOrder:
    """The order of some requests on each connection, by the task that works off the last one."""

    def __init__(self, subject: str, *, outlives: bool = False) -> None:
        """What waits when its connection closes is dropped, but for what ``outlives`` it."""
        self._name = f"turn: {subject}"  # among the attributes of a channel
        self._outlives = outlives

    def call(
        self,
        handler: Callable[[Command, Channel], Reply | Awaitable[Reply]],
        command: Command,
        channel: Channel,
    ) -> Reply | Awaitable[Reply]:
        """Call the handler, now or once what came before has been answered."""
        before = channel.attributes.get(self._name)
        if before is None:
            return handler(command, channel)
        return self._call_after(before, handler, command, channel)

    async def _call_after(
        self,
        before: "asyncio.Task[None]",
        handler: Callable[[Command, Channel], Reply | Awaitable[Reply]],
        command: Command,
        channel: Channel,
    ) -> Reply:
        await asyncio.wait((before,))  # whatever becomes of it
        if channel.closed and not self._outlives:
            raise ConnectionError("closed before its turn")
        result = handler(command, channel)
        return await result if isinstance(result, Awaitable) else result

    def begin(self, task: "asyncio.Task[None]", channel: Channel) -> None:
        """What comes next waits for this task. It ends, cancelled before its first step, too."""
        key = self._name
        channel.attributes[key] = task

        def end(_: object) -> None:
            if channel.attributes.get(key) is task:
                del channel.attributes[key]

        task.add_done_callback(end)


def _turns(*orders: tuple[ConnectionOrder, Iterable[RequestCode]]) -> dict[int, ConnectionOrder]:
    return {int(code): turn for turn, codes in orders for code in codes}


_LOCKS = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)

#: By request code. Of the requests that have no turn each is for itself.
TURNS: Mapping[int, ConnectionOrder] = _turns(
    # Nobody else gives up the lock of a client that has gone.
    (ConnectionOrder("locks", outlives=True), _LOCKS),
    # With its connection a client has left all its groups.
    (ConnectionOrder("groups"), (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT)),
    (
        ConnectionOrder("registration"),
        (
            *(RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER),
            *(RequestCode.QUERY_DATA_VERSION, RequestCode.REGISTER_TOPIC_IN_NAMESRV),
        ),
    ),
)

#: Those of a snode.
SNODE_TURNS: Mapping[int, ConnectionOrder] = {
    c: turn for c, turn in TURNS.items() if c not in _LOCKS
}
