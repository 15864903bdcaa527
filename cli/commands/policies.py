"""Policies of users at 5.x brokers. Formats: …tools.command.auth of 5.5.0."""

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli import broker_options
from mq.cli.commands.auth_subjects import (
    AuthSubject,
    FromBroker,
    ToBroker,
    at_masters,
)
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import destroys, gives, writes
from mq.cli.runtime.options import one_of, subject
from mq.cli.show.result import Result, Row
from mq.client.operations.columns import text
from mq.client.operations.subjects import users

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


class Decision(Enum):
    """The decision of a policy."""

    ALLOW = "allow"
    DENY = "deny"


Subject = Annotated[
    str,
    typer.Option(
        "-s", "--subject", metavar="USER:NAME", help="User of the policies, as User:NAME."
    ),
]
Resources = Annotated[
    str,
    typer.Option(
        "-r",
        "--resources",
        metavar="KIND:NAME,…",
        help="Resources, separated by commas: 'Topic:Orders,Group:*'.",
    ),
]
Actions = Annotated[
    str,
    typer.Option(
        "-a",
        "--actions",
        metavar="ACTION,…",
        help="Actions, separated by commas: Pub, Sub, Get, … or All.",
    ),
]
DecisionOption = Annotated[Decision, typer.Option("-d", "--decision", help="Allow or deny.")]
SourceIp = Annotated[
    str | None,
    typer.Option(
        "-i",
        "--sourceIp",
        metavar="ADDRESS,…",
        help="Only from these addresses, separated by commas.",
    ),
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
@subject("subject")
async def create_acl(
    call: Call,
    subject: Subject,
    resources: Resources,
    actions: Actions,
    decision: DecisionOption,
    cluster_name: broker_options.EachOfCluster = None,
    broker_addr: broker_options.BrokerAddr = None,
    source_ip: SourceIp = None,
) -> Result:
    """Create policies of a user (5.x brokers).

    mq createAcl -c DefaultCluster -s User:alice -r Topic:Orders -a Pub,Sub -d Allow

    Examples:
        mq createAcl User:shop -r Topic:Orders -a Pub -d allow -c DefaultCluster
                                        allow sends to Orders
        mq createAcl User:billing -r Group:billing -a Sub -d allow -b 127.0.0.1:10911
                                        allow consumption by billing
    """
    acl = users.policies(subject, resources, actions, decision.value, source_ip)
    return await _POLICY.change(
        *(call, broker_addr, cluster_name, "create", subject),
        lambda admin, address: admin.create_policies(address, acl),
    )


@writes
@one_of("cluster_name", "broker_addr")
@gives(_POLICY.changed)
@subject("subject")
async def update_acl(
    call: Call,
    subject: Subject,
    resources: Resources,
    actions: Actions,
    decision: DecisionOption,
    cluster_name: broker_options.EachOfCluster = None,
    broker_addr: broker_options.BrokerAddr = None,
    source_ip: SourceIp = None,
) -> Result:
    """Change policies of a user on the given resources (5.x brokers).

    Examples:
        mq updateAcl User:shop -r Topic:Orders -a Pub,Sub -d allow -c DefaultCluster
                                        allow consumption of Orders, too
    """
    acl = users.policies(subject, resources, actions, decision.value, source_ip)
    return await _POLICY.change(
        *(call, broker_addr, cluster_name, "update", subject),
        lambda admin, address: admin.update_policies(address, acl),
    )


@destroys("delete policies of {subject}")
@one_of("cluster_name", "broker_addr")
@gives(_POLICY.changed)
@subject("subject")
async def delete_acl(
    call: Call,
    subject: Subject,
    cluster_name: broker_options.EachOfCluster = None,
    broker_addr: broker_options.BrokerAddr = None,
    resource: Annotated[
        str | None,
        typer.Option(
            "-r",
            "--resources",
            metavar="KIND:NAME",
            help="Only policies on this resource. Default: all.",
        ),
    ] = None,
) -> Result:
    """Delete the policies of a user (5.x brokers), or those on one resource.

    Examples:
        mq deleteAcl User:shop -r Topic:Orders -c DefaultCluster
                                        delete a policy
        mq deleteAcl User:shop -c DefaultCluster --dry-run
                                        show what would be sent for all of them
    """
    return await _POLICY.change(
        *(call, broker_addr, cluster_name, "delete", subject),
        lambda admin, address: admin.delete_policies(address, subject, resource),
    )


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
@subject("subject")
async def get_acl(
    call: Call,
    subject: Subject,
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.ClusterName = None,
) -> Result:
    """Show the policies of a user (5.x brokers).

    Examples:
        mq getAcl User:shop -c DefaultCluster  the policies of a user
        mq getAcl User:shop -b 127.0.0.1:10911 -o json
                                               for a program
    """
    found, failures = await _POLICY.found(call, broker_addr, cluster_name, subject)
    return _shown(found, failures)


@one_of("broker_addr", "cluster_name")
@gives(_POLICIES)
async def list_acl(
    call: Call,
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.ClusterName = None,
    subject: Annotated[
        str | None,
        typer.Option(
            "-s", "--subject", metavar="TEXT", help="Only policies with this text in the subject."
        ),
    ] = None,
    resource: Annotated[
        str | None,
        typer.Option(
            "-r", "--resource", metavar="TEXT", help="Only policies with this text in the resource."
        ),
    ] = None,
) -> Result:
    """List the policies (5.x brokers).

    Examples:
        mq listAcl -c DefaultCluster             all policies
        mq listAcl -b 127.0.0.1:10911 -r Orders  those about a topic
    """
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
        for row in users.policy_rows(address, acls):
            rows.append(_row(row))
            plain += _line(row)
    return Result(_POLICIES, rows, plain, failures=failures)


def _row(row: "users.PolicyRow") -> Row:
    named = (row.broker_addr, row.subject, row.policy_type, row.resource)
    if row.resource is None and row.decision is None and not row.actions:
        return (*named, None, None, None)
    sources = None if row.source_ips is None else ", ".join(row.source_ips)
    return (*named, ", ".join(row.actions), sources, row.decision)


def _line(row: "users.PolicyRow") -> str:
    if row.resource is None and row.decision is None and not row.actions:
        return _LINE.format(row.subject or "null", "", "", "", "", "")
    return _LINE.format(
        row.subject or "null",
        row.policy_type or "null",
        row.resource or "null",
        f"[{', '.join(row.actions)}]",
        "null" if row.source_ips is None else f"[{', '.join(row.source_ips)}]",
        row.decision or "null",
    )


@writes
@gives(_POLICY.copied)
@subject("from_broker", "to_broker")
async def copy_acl(
    call: Call,
    from_broker: FromBroker,
    to_broker: ToBroker,
    subjects: Annotated[
        str | None,
        typer.Option(
            "-s",
            "--subjects",
            metavar="USER:NAME[,…]",
            help="Only policies of these users. Default: all.",
        ),
    ] = None,
) -> Result:
    """Copy policies from one broker to another (5.x brokers).

    Policies on the same resources are overwritten at the target.

    Examples:
        mq copyAcl 127.0.0.1:10911 127.0.0.1:10921  copy all policies
        mq copyAcl 127.0.0.1:10911 127.0.0.1:10921 -s User:shop --dry-run
                                                    show what would be sent for one user
    """
    return await _POLICY.copy(call, from_broker, to_broker, subjects)
