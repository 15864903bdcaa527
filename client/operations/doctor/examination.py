"""One examination of a cluster: queries everything once, concurrently, for use by the checks."""

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
    from mq.client.transport.caller import Caller

T = TypeVar("T")

# Concurrent requests: an examination must not cause noticeable load.
_AT_ONCE = 32


@dataclass(frozen=True)
class Limits:
    """Limits beyond which a finding is reported.

    Attributes:
        lag: the permitted lag of a group, in messages.
        disk: the permitted disk usage in percent: for a warning, and for a critical finding.
        skew: the permitted difference of a clock, in seconds.
    """

    lag: int = 10_000
    disk: tuple[float, float] = (75.0, 90.0)
    skew: float = 5.0


@dataclass
class Examination:
    """The shared state of the checks.

    Attributes:
        clusters: each answering name server's view of the cluster, by its address.
        brokers: the address of each registered broker, with its name and id.
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
        """The cluster as the first answering name server sees it."""
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
        """Query each subject; returns the answers, and the errors of the others."""
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
        """Query each name server for the cluster; returns the errors."""

        async def ask(address: str) -> ClusterInfo:
            request = Command(RequestCode.GET_BROKER_CLUSTER_INFO)
            response = await self.session.call(address, request)
            return ClusterInfo.decode(bytes(response.body))

        self.clusters, errors = await self.each(self.session.name_servers, ask)
        return errors


def reason(error: MQError) -> str:
    """Return a short description of why there was no answer."""
    if isinstance(error, ConnectError):
        return f"cannot be reached: {error}"
    if isinstance(error, RequestTimeout):
        return "does not answer in time"
    if isinstance(error, BadAnswer):
        return f"does not answer as RocketMQ does: {error}"
    return str(error)
