"""One examination of a cluster: asks everything once, side by side, and lets the checks look."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from mq.client.admin import Admin
from mq.client.errors import BadAnswer, ConnectError, MQError, RequestTimeout
from mq.client.operations.doctor.finding import Finding, Severity
from mq.protocol.bodies import ClusterInfo
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command

if TYPE_CHECKING:
    from mq.client.caller import Caller

T = TypeVar("T")

# Requests under way at a time: an examination must not be a load.
_AT_ONCE = 32


@dataclass(frozen=True)
class Limits:
    """Beyond what something is told.

    Attributes:
        lag: messages that may wait for a group.
        disk: how full a disk may be, in percent: a warning, and critical.
        skew: seconds by which a clock may be off.
    """

    lag: int = 10_000
    disk: tuple[float, float] = (75.0, 90.0)
    skew: float = 5.0


@dataclass
class Examination:
    """What the checks share.

    Attributes:
        clusters: what each name server that answers says of the cluster, by its address.
        brokers: the address of each broker that is registered, with its name and id.
    """

    session: "Caller"
    limits: Limits
    now: float
    clusters: dict[str, ClusterInfo] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admin = Admin(self.session)
        self._gate = asyncio.Semaphore(_AT_ONCE)

    @property
    def info(self) -> ClusterInfo:
        """The cluster as the first name server that answers sees it."""
        return next(iter(self.clusters.values()), ClusterInfo())

    @property
    def brokers(self) -> dict[str, tuple[str, int]]:
        return {
            address: (broker.broker_name, broker_id)
            for info in self.clusters.values()
            for broker in info.broker_addr_table.values()
            for broker_id, address in broker.broker_addrs.items()
        }

    @property
    def masters(self) -> list[str]:
        """The addresses of all masters."""
        return sorted(address for address, (_, broker_id) in self.brokers.items() if not broker_id)

    def say(
        self, check: str, severity: Severity, subject: str, detail: str, hint: str = ""
    ) -> None:
        self.findings.append(Finding(check, severity, subject, detail, hint))

    async def each(
        self, subjects: Iterable[str], ask: Callable[[str], Awaitable[T]]
    ) -> tuple[dict[str, T], dict[str, MQError]]:
        """Ask about each subject; the answers, and why others have none."""
        answers: dict[str, T] = {}
        errors: dict[str, MQError] = {}

        async def one(subject: str) -> None:
            async with self._gate:
                try:
                    answers[subject] = await ask(subject)
                except MQError as error:
                    errors[subject] = error

        subjects = list(subjects)
        await asyncio.gather(*map(one, subjects))
        return (
            {subject: answers[subject] for subject in subjects if subject in answers},
            {subject: errors[subject] for subject in subjects if subject in errors},
        )

    async def look_at_name_servers(self) -> dict[str, MQError]:
        """Ask each name server for the cluster; returns why some do not answer."""

        async def ask(address: str) -> ClusterInfo:
            request = Command(RequestCode.GET_BROKER_CLUSTER_INFO)
            response = await self.session.call(address, request)
            return ClusterInfo.decode(bytes(response.body))

        self.clusters, errors = await self.each(self.session.name_servers, ask)
        return errors


def reason(error: MQError) -> str:
    """Why something was not answered, in a few words."""
    if isinstance(error, ConnectError):
        return f"cannot be reached: {error}"
    if isinstance(error, RequestTimeout):
        return "does not answer in time"
    if isinstance(error, BadAnswer):
        return f"does not answer as RocketMQ does: {error}"
    return str(error)
