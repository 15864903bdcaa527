"""Changes of policies of 5.x."""

from typing import Any

from mq.client.admin import Admin
from mq.client.operations.subjects import users
from mq.client.operations.subjects.users import PolicyRow
from mq.client.transport.caller import Caller
from mq.daemons.console.call import Call
from mq.daemons.console.pages.accounts import at_all_brokers
from mq.daemons.console.parsing import BadField
from mq.daemons.console.route import (
    N_,
    Change,
    Field,
    Outcome,
    Permission,
    Plan,
    Query,
    Sheet,
    Values,
)

_SUBJECT = Field(
    "subject",
    N_("Subject"),
    required=True,
    limit=255,
    help=N_("User:NAME"),
)


async def _policy(call: Call) -> Values:
    values: dict[str, Any] = {
        "cluster": at_all_brokers.first_cluster(call),
        "subject": call.query["subject"],
        "resource": call.query["resource"],
        "resources": (call.query["resource"],) if call.query["resource"] else (),
        "decision": "Allow",
    }
    if not values["subject"] or not values["cluster"]:
        return values
    for row in await _rows(call, values):
        if row.resource == values["resource"]:
            return {
                **values,
                "actions": ", ".join(row.actions),
                "source_ips": row.source_ips or (),
                "decision": (row.decision or "Allow").capitalize(),
            }
    return values


async def _rows(call: Call, values: Values) -> list[PolicyRow]:
    done, _, _ = await at_all_brokers.ask(
        call, values, lambda admin, at: admin.policies(at, values["subject"])
    )
    return [
        row
        for address, acl in done.items()
        if acl is not None
        for row in users.policy_rows(address, [acl])
    ]


def _check_policy(call: Call, values: Values) -> None:
    for name in ("resources", "source_ips"):
        if any("," in one for one in values[name] or ()):
            raise BadField(name, call.text("Enter one per line."))
    users.policies(*_arguments(values))
    at_all_brokers.brokers(call, values)


def _arguments(values: Values) -> tuple[str, str, str, str, str | None]:
    sources = ",".join(values["source_ips"] or ()) or None
    resources = ",".join(values["resources"])
    return values["subject"], resources, values["actions"], values["decision"], sources


async def plan_policy(call: Call, values: Values) -> Plan:
    """Plan the policies on the resources broker by broker, before and after."""
    now = await _rows(call, values)
    names = at_all_brokers.brokers(call, values)
    after = _policy_text(
        values["decision"], values["actions"], ", ".join(values["source_ips"] or ())
    )
    rows = []
    for address, broker in names.items():
        for resource in values["resources"]:
            before = "; ".join(
                _policy_text(
                    row.decision or "", ", ".join(row.actions), ", ".join(row.source_ips or ())
                )
                for row in now
                if row.broker_addr == address and row.resource == resource
            )
            rows.append((f"{broker.name} {broker.id}", resource, before, after))
    heads = (N_("Broker"), N_("Resource"), N_("Before"), N_("After"))
    there = any(row.resource in values["resources"] for row in now)
    command = ["updateAcl" if there else "createAcl", "-c", values["cluster"]]
    command += ["-s", values["subject"], "-r", ",".join(values["resources"])]
    command += ["-a", values["actions"], "-d", values["decision"].lower()]
    command += ["-i", ",".join(values["source_ips"])] if values["source_ips"] else []
    line = N_("Policies of %(subject)s are created or changed as below.")
    return Plan(
        (call.text(line, subject=values["subject"]),),
        (Sheet(tuple(map(call.text, heads)), rows, call.text("Policies")),),
        tuple(command),
    )


def _policy_text(decision: str, actions: str, sources: str) -> str:
    text = f"{decision} {actions}"
    return f"{text} ({sources})" if sources else text


async def perform_policy(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """Perform updateAcl -c if the subject has policies, else createAcl."""
    acl = users.policies(*_arguments(values))

    async def act(admin: Admin, address: str) -> None:
        if await admin.policies(address, values["subject"]) is None:
            await admin.create_policies(address, acl)
        else:
            await admin.update_policies(address, acl)

    return await at_all_brokers.change(call, values, session, act, call.text("has the policies"))


async def plan_delete_policy(call: Call, values: Values) -> Plan:
    """Plan the deletion."""
    line = N_("All policies of %(subject)s are deleted.")
    if values["resource"]:
        line = N_("The policies of %(subject)s on %(resource)s are deleted.")
    command = ["deleteAcl", "-c", values["cluster"], "-s", values["subject"]]
    command += ["-r", values["resource"]] if values["resource"] else []
    return Plan(
        (
            call.text(line, subject=values["subject"], resource=values["resource"] or ""),
            at_all_brokers.at_each(call, values),
        ),
        command=tuple(command),
    )


async def perform_delete_policy(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """Perform deleteAcl -c."""
    return await at_all_brokers.change(
        call,
        values,
        session,
        lambda admin, at: admin.delete_policies(at, values["subject"], values["resource"]),
        call.text("deleted"),
    )


def _subject(call: Call, values: Values) -> str:
    return str(values["subject"])


_OF_POLICY = (
    Query("subject", default="", about=N_("The subject to fill in.")),
    Query("resource", default="", about=N_("The resource to fill in.")),
)

ROUTES = (
    Change(
        "/new/policy",
        Permission.ADMINISTER,
        N_("Create or change policies of RocketMQ 5"),
        "",
        (
            at_all_brokers.CLUSTER,
            _SUBJECT,
            Field(
                "resources",
                N_("Resources"),
                "lines",
                required=True,
                limit=20_000,
                help=N_("Topic:Orders, Group:*, Cluster:*, one per line."),
            ),
            Field(
                "actions",
                N_("Actions"),
                required=True,
                help=N_("Pub, Sub, Get, … or All, separated by commas."),
            ),
            Field(
                "decision",
                N_("The policies"),
                "choice",
                required=True,
                choices=(("Allow", N_("allowed")), ("Deny", N_("denied"))),
            ),
            Field("source_ips", N_("Only from these addresses"), "lines"),
        ),
        plan_policy,
        perform_policy,
        initial=_policy,
        query=_OF_POLICY,
        check=_check_policy,
    ),
    Change(
        "/accounts/delete-policy",
        Permission.ADMINISTER,
        N_("Delete policies of RocketMQ 5"),
        "",
        (
            at_all_brokers.CLUSTER,
            _SUBJECT,
            Field("resource", N_("Resource"), help=N_("Only on this resource. Empty: all.")),
        ),
        plan_delete_policy,
        perform_delete_policy,
        initial=_policy,
        destroys=_subject,
        query=_OF_POLICY,
    ),
)
