"""Locks against concurrent resends of a group's dead letters, held on the queues at their
brokers.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from mq.client.errors import MQError, RouteNotFound
from mq.client.operations.errors import Busy
from mq.client.operations.messages.dead_letters import Letters
from mq.protocol.bodies import MessageQueue
from mq.protocol.names import TOOLS_CONSUMER_GROUP

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.transport.session import Session

_RENEW_SECONDS = 20.0  # a broker's lock expires after 60 s


@asynccontextmanager
async def locked(admin: "Admin", session: "Session", letters: Letters) -> AsyncIterator[list[str]]:
    """Lock the dead letters of a group against other resends; yields the failures of brokers.

    Raises Busy while another resend holds the lock.
    """
    locks = _Locks(admin, session.client_id)
    renewing: asyncio.Task[None] | None = None
    failures: list[str] = []
    try:
        for name, queues in (await _queues_of(session, letters)).items():
            try:
                if not await locks.take(await session.master_address(letters.topic, name), queues):
                    raise Busy(
                        f"another client is resending the dead letters of {letters.group}",
                        hint="try again in a minute",
                    )
            except MQError as error:
                failures.append(f"{name}: {error}")
        renewing = asyncio.ensure_future(locks.renew())
        yield failures
    finally:
        if renewing is not None:
            renewing.cancel()
        await locks.release()


async def _queues_of(session: "Session", letters: Letters) -> dict[str, set[MessageQueue]]:
    """Return the queues of the dead letters, by broker. Raises NotFound."""
    try:
        route = await session.route(letters.topic)
    except RouteNotFound:
        raise letters.none() from None
    return {
        part.broker_name: {
            MessageQueue(letters.topic, part.broker_name, number)
            for number in range(max(1, part.read_queue_nums))
        }
        for part in route.queue_datas
    }


class _Locks:
    """Locks of queues at their brokers, held by one client for the tools' group."""

    def __init__(self, admin: "Admin", client_id: str) -> None:
        self._admin = admin
        self._client = client_id
        self._held: dict[str, set[MessageQueue]] = {}

    async def take(self, address: str, queues: set[MessageQueue]) -> bool:
        """Lock queues; returns whether all of them were locked. Raises MQError."""
        got = await self._admin.lock_queues(address, TOOLS_CONSUMER_GROUP, self._client, queues)
        self._held[address] = got
        return got == queues

    async def renew(self) -> None:
        """Renew the locks until cancelled."""
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            for address, queues in self._held.items():
                with suppress(MQError):
                    await self._admin.lock_queues(
                        address, TOOLS_CONSUMER_GROUP, self._client, queues
                    )

    async def release(self) -> None:
        for address, queues in self._held.items():
            with suppress(MQError):
                await self._admin.unlock_queues(address, TOOLS_CONSUMER_GROUP, self._client, queues)
