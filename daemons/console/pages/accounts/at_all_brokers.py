"""Common code of account changes, at each broker of a cluster, with replicas."""

from collections.abc import Callable, Collection, Coroutine
from typing import Any

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.operations import cluster
from mq.client.operations.masking import MASK
from mq.client.transport.caller import Caller
from mq.daemons.console.call import Call
from mq.daemons.console.collector.snapshot import BrokerRow
from mq.daemons.console.pages import broker_queries as asked
from mq.daemons.console.pages.broker_queries import DEADLINE
from mq.daemons.console.parsing import BadField
from mq.daemons.console.route import N_, Field, Outcome, Values

CLUSTER = Field("cluster", N_("Cluster"), "choice", required=True, choices=asked.clusters)

Act = Callable[[Admin, str], Coroutine[Any, Any, Any]]


def brokers(call: Call, values: Values) -> dict[str, BrokerRow]:
    """Return all brokers of the cluster by address. Raises BadField if there is none."""
    name = values["cluster"]
    found = {row.address: row for row in call.cluster.snapshot.brokers if row.cluster == name}
    if not found:
        known = ", ".join(asked.clusters(call)) or call.text("none")
        line = call.text("No cluster of this name has a broker now; known: %(known)s.", known=known)
        raise BadField("cluster", line)
    return found


def first_cluster(call: Call) -> str:
    """Return the preselected cluster of a form."""
    return next(iter(asked.clusters(call)), "")


def at_each(call: Call, values: Values) -> str:
    """Return the line of a preview with the affected brokers."""
    names = brokers(call, values)
    shown = ", ".join(f"{row.name} {row.id}" for row in names.values())
    return call.text("At %(count)s brokers: %(brokers)s.", count=len(names), brokers=shown)


async def ask(
    call: Call, values: Values, act: Act
) -> tuple[dict[str, Any], dict[str, MQError], dict[str, BrokerRow]]:
    """Return the replies of brokers for a preview: a reply or an error by address."""
    names = brokers(call, values)
    done, failed = await cluster.outcomes(call.admin, names, cluster.within(DEADLINE, act))
    return done, failed, names


async def change(
    call: Call,
    values: Values,
    session: Caller,
    act: Act,
    text: str,
    secrets: Collection[str] = (),
) -> list[Outcome]:
    """Return a result for each broker. Values of ``secrets`` in refusals are masked."""
    names = brokers(call, values)
    done, failed = await cluster.outcomes(Admin(session), names, act)
    lines = (_hidden(str(error), secrets) for error in failed.values())
    found = asked.done(done, names, text)
    for address, line in zip(failed, lines, strict=True):
        row = names[address]
        found.append(Outcome(f"{row.name} {row.id} ({address})", False, line))
    return found


def _hidden(line: str, secrets: Collection[str]) -> str:
    for secret in secrets:
        line = line.replace(secret, MASK)
    return line
