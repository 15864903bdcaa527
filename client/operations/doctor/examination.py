"""One examination of a cluster: queries everything once, concurrently, for use by the checks."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.operations.cluster_snapshot import BrokerSnapshot, Collection
from mq.client.operations.doctor.finding import Finding, Severity
from mq.protocol.bodies import ClusterInfo

if TYPE_CHECKING:
    from mq.client.transport.caller import Caller

T = TypeVar("T")


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
        self._collection = Collection(self.admin)

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
        return await self._collection.each(subjects, ask)

    async def look_at_name_servers(self) -> dict[str, MQError]:
        """Query each name server for the cluster; returns the errors."""
        self.clusters, errors = await self._collection.name_servers()
        return errors

    async def runtime(self) -> tuple[dict[str, dict[str, str]], dict[str, MQError]]:
        """Return the runtime info of each broker, and the errors of the others, by address."""
        found = [
            BrokerSnapshot(name, number, at, "") for at, (name, number) in self.brokers.items()
        ]
        await self._collection.runtime(found)
        return (
            {one.address: one.runtime for one in found if one.error is None},
            {one.address: one.error for one in found if one.error is not None},
        )
