"""The state of a cluster at one moment: its name servers' views, and its brokers' runtime info.

`mq doctor`, `mq top` and `mq describe` collect it here; the console's collector shares the list of
brokers (`registered`). Peers that do not answer are part of the result, with their errors.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from mq.client.admin import Admin
from mq.client.errors import BadAnswer, ConnectError, MQError, RequestTimeout
from mq.client.machine import clock
from mq.client.operations.cluster import within
from mq.protocol.bodies import ClusterInfo
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command

R = TypeVar("R")
S = TypeVar("S", bound=Hashable)

# Concurrent requests: monitoring must not cause noticeable load.
_AT_ONCE = 32


class RegisteredBroker(NamedTuple):
    """A broker as registered at a name server."""

    cluster: str
    name: str
    id: int
    address: str


@dataclass(slots=True)
class BrokerSnapshot:
    """A broker at one moment; `seconds` are monotonic.

    `error` is the reason why it did not answer; `runtime` is empty then.
    """

    name: str
    broker_id: int
    address: str
    cluster: str
    seconds: float = 0.0
    response_seconds: float = 0.0
    runtime: dict[str, str] = field(default_factory=dict)
    error: MQError | None = None


def registered(info: ClusterInfo) -> Iterator[RegisteredBroker]:
    """Yield the brokers of each cluster by name and id. A broker may be in several clusters."""
    for cluster in sorted(info.cluster_addr_table):
        for name in sorted(info.cluster_addr_table[cluster] & info.broker_addr_table.keys()):
            addresses = info.broker_addr_table[name].broker_addrs
            for broker_id in sorted(addresses):
                yield RegisteredBroker(cluster, name, broker_id, addresses[broker_id])


class Collection:
    """Queries peers through one session, with a limited number of concurrent requests."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def each(
        self, subjects: Iterable[S], ask: Callable[[S], Awaitable[R]]
    ) -> tuple[dict[S, R], dict[S, MQError]]:
        """Ask about each subject; returns the answers, and the errors of the others, in order."""
        answers: dict[S, R] = {}
        errors: dict[S, MQError] = {}

        async def one(subject: S) -> None:
            async with self._gate:
                try:
                    answers[subject] = await ask(subject)
                except MQError as error:
                    errors[subject] = error

        subjects = list(dict.fromkeys(subjects))
        await asyncio.gather(*map(one, subjects))
        return (
            {subject: answers[subject] for subject in subjects if subject in answers},
            {subject: errors[subject] for subject in subjects if subject in errors},
        )

    async def name_servers(self) -> tuple[dict[str, ClusterInfo], dict[str, MQError]]:
        """Return each answering name server's view, and the errors of the others, by address."""
        session = self._admin.session

        async def ask(address: str) -> ClusterInfo:
            request = Command(RequestCode.GET_BROKER_CLUSTER_INFO)
            response = await session.call(address, request)
            return ClusterInfo.decode(bytes(response.body))

        return await self.each(session.name_servers, ask)

    async def runtime(
        self, brokers: Iterable[BrokerSnapshot], seconds: float | None = None
    ) -> None:
        """Store each broker's runtime info, or its error, in its snapshot.

        `seconds` limits the wait for one broker; without it the session's timeout applies.
        """

        by_address = {broker.address: broker for broker in brokers}

        async def info(admin: Admin, address: str) -> dict[str, str]:
            return await admin.broker_runtime_info(address)

        ask = info if seconds is None else within(seconds, info)

        async def one(address: str) -> dict[str, str]:
            broker, began = by_address[address], clock.monotonic()
            try:
                return await ask(self._admin, address)
            finally:
                broker.seconds = clock.monotonic()
                broker.response_seconds = broker.seconds - began

        answers, errors = await self.each(by_address, one)
        for address, table in answers.items():
            by_address[address].runtime = table
        for address, error in errors.items():
            by_address[address].error = error


def reason(error: MQError) -> str:
    """Return a short description of the error of a peer that did not answer."""
    if isinstance(error, ConnectError):
        return f"cannot be reached: {error}"
    if isinstance(error, RequestTimeout):
        return "does not answer in time"
    if isinstance(error, BadAnswer):
        return f"does not answer as RocketMQ does: {error}"
    return str(error)
