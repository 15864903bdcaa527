"""Shared by changes of topics and of consumer groups."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.operations import cluster
from mq.daemons.console.call import Call
from mq.daemons.console.collector.snapshot import BrokerRow, GroupRow, TopicRow
from mq.daemons.console.guarded_session import Forbidden
from mq.daemons.console.pages import broker_queries as asked
from mq.daemons.console.parsing import BadField
from mq.daemons.console.route import N_, Field, Outcome, Permission, Plan, Values
from mq.protocol.names import IllegalName

T = TypeVar("T")

CLUSTER = Field("cluster", N_("Cluster"), "choice", required=True, choices=asked.clusters)
ATTRIBUTES = Field(
    "attributes",
    N_("Other attributes"),
    help=N_("RocketMQ 5: +key=value sets an attribute, -key removes it; separated by commas."),
)


def check_name(call: Call, values: Values, field: str, check: Callable[[str], object]) -> None:
    """Refuse an invalid name, or one that the user may not create.

    ``field`` is `topic` or `group`. Raises BadField and Forbidden.
    """
    try:
        check(values[field])
    except IllegalName as error:
        raise BadField(field, str(error)) from None
    if not call.may(Permission.ADMINISTER, **{field: values[field]}):
        raise Forbidden(call.text("You may not do this."))


def first_cluster(call: Call, known: TopicRow | GroupRow | None) -> str:
    """Return the default cluster of a form: one that has the subject; empty if none has."""
    homes = asked.clusters_of(call, known.brokers) if known else asked.clusters(call)
    return next(iter(homes), "")


async def settings_at(
    admin: Admin,
    names: dict[str, BrokerRow],
    ask: Callable[[Admin, str], Coroutine[Any, Any, T]],
) -> tuple[dict[str, T], dict[str, MQError]]:
    """Return the current settings by broker address, and the failures."""
    return await cluster.outcomes(admin, names, cluster.within(asked.DEADLINE, ask))


def plan_new(
    call: Call,
    values: Values,
    field: str,
    known: TopicRow | GroupRow | None,
    *,
    made: str,
    overwritten: str,
    command: tuple[str, ...],
) -> Plan:
    """Plan the creation of a topic or a group: the brokers, and existing ones with the name.

    ``made`` is a line with the name, as ``%(field)s``, with ``%(count)s`` and ``%(brokers)s``;
    ``overwritten`` one with the ``%(brokers)s`` that have ``known``. Raises BadField.
    """
    masters = asked.masters_there(call, values["cluster"]).values()
    where = {"count": len(masters), "brokers": ", ".join(row.name for row in masters)}
    line = call.text(made, **{field: values[field]}, **where)
    there = ", ".join(known.brokers) if known is not None else ""
    warning = call.text(overwritten, brokers=there) if known is not None else ""
    return Plan((line,), command=command, warning=warning)


def created(
    done: Iterable[str], failed: Iterable[str], names: dict[str, BrokerRow], text: str, link: str
) -> list[Outcome]:
    """Return the outcome of a creation per broker, with a link to the result."""
    there = [Outcome(one.target, True, one.text, link) for one in asked.done(done, names, text)]
    return [*there, *asked.failed(failed, names)]
