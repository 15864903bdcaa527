"""What policies allow the users of 5.x brokers. Formats: …tools.command.auth of 5.5.0."""

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli import where
from mq.cli.commands.auth_subjects import (
    AuthSubject,
    FromBroker,
    ToBroker,
    at_masters,
    split,
)
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import destroys, gives, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.options import one_of
from mq.cli.show.result import Result, Row, text

if TYPE_CHECKING:
    from mq.protocol.bodies import AclInfo

COMMANDS = {
    "auth": (
        "createAcl",
        "updateAcl",
        "deleteAcl",
        "getAcl",
        "listAcl",
        "copyAcl",
    )
}

# org.apache.rocketmq.common.action.Action. A broker leaves out others without a word.
_ACTIONS = ("All", "Any", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")


class Decision(Enum):
    """What a policy says."""

    ALLOW = "allow"
    DENY = "deny"


Subject = Annotated[
    str, typer.Option("-s", "--subject", metavar="USER:NAME", help="Whose policies.")
]
Resources = Annotated[
    str,
    typer.Option(
        "-r",
        "--resources",
        metavar="KIND:NAME,…",
        help="Resources with commas: Topic:Orders,Group:*.",
    ),
]
Actions = Annotated[
    str, typer.Option("-a", "--actions", metavar="ACTION,…", help="Pub, Sub, Get, … or All.")
]
DecisionOption = Annotated[Decision, typer.Option("-d", "--decision", help="What it says.")]
SourceIp = Annotated[
    str | None,
    typer.Option("-i", "--sourceIp", metavar="ADDRESS,…", help="Only from these addresses."),
]

_POLICY = AuthSubject(
    "acl",
    "policies of",
    text("subject", "Subject"),
    name=lambda acl: acl.subject or "",
    find=lambda admin, address, subject: admin.policies(address, subject),
    find_all=lambda admin, address: admin.all_policies(address),
    create=lambda admin, address, acl: admin.create_policies(address, acl),
    update=lambda admin, address, acl: admin.update_policies(address, acl),
)


@writes
@one_of("cluster_name", "broker_addr")
@gives(_POLICY.changed)
async def create_acl(
    call: Call,
    subject: Subject,
    resources: Resources,
    actions: Actions,
    decision: DecisionOption,
    cluster_name: where.EachOfCluster = None,
    broker_addr: where.BrokerAddr = None,
    source_ip: SourceIp = None,
) -> Result:
    """Create policies of a user (5.x brokers).

    mq createAcl -c DefaultCluster -s User:alice -r Topic:Orders -a Pub,Sub -d Allow
    """
    acl = _acl(subject, resources, actions, decision, source_ip)
    return await _POLICY.change(
        *(call, broker_addr, cluster_name, "create", subject),
        lambda admin, address: admin.create_policies(address, acl),
    )


@writes
@one_of("cluster_name", "broker_addr")
@gives(_POLICY.changed)
async def update_acl(
    call: Call,
    subject: Subject,
    resources: Resources,
    actions: Actions,
    decision: DecisionOption,
    cluster_name: where.EachOfCluster = None,
    broker_addr: where.BrokerAddr = None,
    source_ip: SourceIp = None,
) -> Result:
    """Change policies of a user (5.x brokers): those on the resources that are named."""
    acl = _acl(subject, resources, actions, decision, source_ip)
    return await _POLICY.change(
        *(call, broker_addr, cluster_name, "update", subject),
        lambda admin, address: admin.update_policies(address, acl),
    )


@destroys("delete policies of {subject}")
@one_of("cluster_name", "broker_addr")
@gives(_POLICY.changed)
async def delete_acl(
    call: Call,
    subject: Subject,
    cluster_name: where.EachOfCluster = None,
    broker_addr: where.BrokerAddr = None,
    resource: Annotated[
        str | None,
        typer.Option("-r", "--resources", metavar="KIND:NAME", help="Only on it; default: all."),
    ] = None,
) -> Result:
    """Delete the policies of a user (5.x brokers), or those on one resource."""
    return await _POLICY.change(
        *(call, broker_addr, cluster_name, "delete", subject),
        lambda admin, address: admin.delete_policies(address, subject, resource),
    )


def _acl(
    subject: str, resources: str, actions: str, decision: Decision, source_ip: str | None
) -> "AclInfo":
    """One policy for each resource (AclInfo.of). Raises UsageError for an unknown action."""
    from mq.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo

    known = {name.lower(): name for name in _ACTIONS}
    wanted = split(actions)
    for action in wanted:
        if action.lower() not in known:
            raise UsageError(
                f"-a/--actions: {action!r} is not one of {', '.join(_ACTIONS)}",
                hint="write several with commas: -a Pub,Sub",
            )
    if not wanted or not split(resources):
        raise UsageError("-r/--resources and -a/--actions: name at least one of each")
    entries = [
        PolicyEntryInfo(
            resource=resource,
            actions=[known[action.lower()] for action in wanted],
            source_ips=None if source_ip is None else split(source_ip),
            decision=decision.value.capitalize(),
        )
        for resource in split(resources)
    ]
    return AclInfo(subject=subject, policies=[PolicyInfo(entries=entries)])


_POLICIES = (
    text("brokerAddr", "Broker"),
    text("subject", "Subject"),
    text("policyType", "Type"),
    text("resource", "Resource"),
    text("actions", "Actions"),
    text("sourceIps", "From"),
    text("decision", "Decision"),
)

_LINE = "{:<16}  {:<10}  {:<22}  {:<20}  {:<24}  {:<10}\n"


@one_of("broker_addr", "cluster_name")
@gives(_POLICIES)
async def get_acl(
    call: Call,
    subject: Subject,
    broker_addr: where.BrokerAddr = None,
    cluster_name: where.ClusterName = None,
) -> Result:
    """Show the policies of a user (5.x brokers)."""
    found, failures = await _POLICY.found(call, broker_addr, cluster_name, subject)
    return _shown(found, failures)


@one_of("broker_addr", "cluster_name")
@gives(_POLICIES)
async def list_acl(
    call: Call,
    broker_addr: where.BrokerAddr = None,
    cluster_name: where.ClusterName = None,
    subject: Annotated[
        str | None,
        typer.Option("-s", "--subject", metavar="TEXT", help="That have this in the subject."),
    ] = None,
    resource: Annotated[
        str | None,
        typer.Option("-r", "--resource", metavar="TEXT", help="That have this in the resource."),
    ] = None,
) -> Result:
    """List the policies (5.x brokers)."""
    found, failures = await at_masters(
        *(call, broker_addr, cluster_name),
        lambda admin, address: admin.all_policies(address, subject, resource),
    )
    return _shown(found, failures)


def _shown(found: dict[str, list["AclInfo"]], failures: list[str]) -> Result:
    rows: list[Row] = []
    plain = ""
    for address, acls in found.items():
        heads = "#Resource", "#Actions", "#SourceIp", "#Decision"
        plain += _LINE.format("#Subject", "#PolicyType", *heads)
        for acl in acls:
            if not acl.policies:
                rows.append((address, acl.subject, None, None, None, None, None))
                plain += _LINE.format(acl.subject or "null", "", "", "", "", "")
            for policy in acl.policies:
                for entry in policy.entries:
                    kind = policy.policy_type
                    sources = entry.source_ips
                    rows.append(
                        (
                            address,
                            acl.subject,
                            kind,
                            entry.resource,
                            ", ".join(entry.actions),
                            None if sources is None else ", ".join(sources),
                            entry.decision,
                        )
                    )
                    plain += _LINE.format(
                        acl.subject or "null",
                        kind or "null",
                        entry.resource or "null",
                        f"[{', '.join(entry.actions)}]",
                        "null" if sources is None else f"[{', '.join(sources)}]",
                        entry.decision or "null",
                    )
    return Result(_POLICIES, rows, plain, failures=failures)


@writes
@gives(_POLICY.copied)
async def copy_acl(
    call: Call,
    from_broker: FromBroker,
    to_broker: ToBroker,
    subjects: Annotated[
        str | None,
        typer.Option("-s", "--subjects", metavar="USER:NAME[,…]", help="Only of these."),
    ] = None,
) -> Result:
    """Copy policies from one broker to another (5.x brokers).

    Policies on the same resources become what they are at the other broker.
    """
    return await _POLICY.copy(call, from_broker, to_broker, subjects)
