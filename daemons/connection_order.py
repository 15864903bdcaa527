"""Per-connection order: requests of one connection that change the same state are served in order.

Most are served at once. But one with a large body is decoded in a thread and processed in steps,
and its sender's next requests must not overtake it: a released lock would be renewed by the earlier
request, a client that has left a group would become its member again, and a broker that stops would
be registered. The access check of a request reads its body, too, so it is part of the request.

A snode relays lock requests and keeps their order for each broker itself (`Forwarding`), so it does
not order them here.

Waiting requests are charged to their connection's memory, like all requests that are answered
later: above the limit, reading from the connection pauses.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from mq.daemons.channel import Channel
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command

Reply = Command | None


class ConnectionOrder:
    """The order of some requests on each connection, kept as the task of the last one."""

    def __init__(self, subject: str, *, outlives: bool = False) -> None:
        """Waiting requests are dropped when their connection closes, except with ``outlives``."""
        self._name = f"turn: {subject}"  # key in the attributes of a channel
        self._outlives = outlives

    def call(
        self,
        handler: Callable[[Command, Channel], Reply | Awaitable[Reply]],
        command: Command,
        channel: Channel,
    ) -> Reply | Awaitable[Reply]:
        """Call the handler now, or once the previous request has been answered."""
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
        await asyncio.wait((before,))  # whatever its outcome
        if channel.closed and not self._outlives:
            raise ConnectionError("closed before its turn")
        result = handler(command, channel)
        return await result if isinstance(result, Awaitable) else result

    def begin(self, task: "asyncio.Task[None]", channel: Channel) -> None:
        """Let later requests wait for this task, which may also end by cancellation before its
        first step.
        """
        key = self._name
        channel.attributes[key] = task

        def end(_: object) -> None:
            if channel.attributes.get(key) is task:
                del channel.attributes[key]

        task.add_done_callback(end)


def _turns(*orders: tuple[ConnectionOrder, Iterable[RequestCode]]) -> dict[int, ConnectionOrder]:
    return {int(code): turn for turn, codes in orders for code in codes}


_LOCKS = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)

# The order by request code. Requests without an order are independent.
TURNS: Mapping[int, ConnectionOrder] = _turns(
    # No other request releases the locks of a disconnected client.
    (ConnectionOrder("locks", outlives=True), _LOCKS),
    # A disconnected client has left all its groups.
    (ConnectionOrder("groups"), (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT)),
    (
        ConnectionOrder("registration"),
        (
            *(RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER),
            *(RequestCode.QUERY_DATA_VERSION, RequestCode.REGISTER_TOPIC_IN_NAMESRV),
        ),
    ),
)

# The orders of a snode.
SNODE_TURNS: Mapping[int, ConnectionOrder] = {
    c: turn for c, turn in TURNS.items() if c not in _LOCKS
}
