"""Accounts, users and policies at each broker, with differences. Secrets are not shown.

Brokers without support for one of them reply in different ways; their rows show which.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from mq.client.errors import MQError, RequestNotSupported
from mq.client.operations import cluster
from mq.client.operations.subjects import accounts, drift, users
from mq.client.operations.subjects.accounts import AccountRow
from mq.client.operations.subjects.users import PolicyRow, UserRow
from mq.daemons.console.call import Call
from mq.daemons.console.collector.snapshot import BrokerRow
from mq.daemons.console.pages.broker_queries import DEADLINE
from mq.daemons.console.route import N_, Page, Permission, Route, Sheet
from mq.protocol.bodies import AclConfig


@dataclass(frozen=True, slots=True)
class AccountState:
    """An account, a user or a policy: its values if all agree, else those of each broker.

    ``brokers`` have it, ``missing`` do not. ``settings`` are the most frequent values;
    ``differing`` has the name of a setting, a broker, and its value.
    """

    name: str
    resource: str | None  # of a policy
    brokers: tuple[str, ...]
    missing: tuple[str, ...]
    settings: tuple[tuple[str, str | None], ...]
    differing: tuple[tuple[str, str, str | None], ...]

    @property
    def drifts(self) -> bool:
        """Whether brokers differ."""
        return bool(self.missing or self.differing)


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """The entries of a broker: None if it did not report them."""

    broker: str
    address: str
    version: str | None
    accounts: int | None
    users: int | None
    policies: int | None
    addresses: tuple[str, ...]  # that need no signature
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Accounts:
    """``at_brokers`` has a row for each broker; the rest covers all that answered."""

    at_brokers: tuple[BrokerAccess, ...]
    accounts: tuple[AccountState, ...]
    users: tuple[AccountState, ...]
    policies: tuple[AccountState, ...]


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """The reply of one broker; an error if it failed."""

    accounts: AclConfig | MQError
    users: tuple[UserRow, ...] | MQError
    policies: tuple[PolicyRow, ...] | MQError


async def show(call: Call) -> Page:
    """Show the entries of each broker, and their differences."""
    brokers = {row.address: row for row in call.cluster.snapshot.brokers}
    answers = await asyncio.gather(*(_ask(call, at) for at in brokers))
    told = dict(zip(brokers, answers, strict=True))
    names = {at: f"{row.name} {row.id}" for at, row in brokers.items()}
    by_account = _by_broker(
        {
            names[at]: accounts.rows(at, one.accounts)
            for at, one in told.items()
            if not isinstance(one.accounts, MQError)
        },
        lambda row: (row.access_key, None),
        ("broker_addr", "access_key"),
    )
    by_user = _by_broker(
        {names[at]: one.users for at, one in told.items() if not isinstance(one.users, MQError)},
        lambda row: (row.username or "", None),
        ("broker_addr", "username"),
    )
    by_policy = _by_broker(
        {
            names[at]: [row for row in one.policies if row.resource is not None]
            for at, one in told.items()
            if not isinstance(one.policies, MQError)
        },
        lambda row: (row.subject or "", row.resource),
        ("broker_addr", "subject", "resource"),
    )
    data = Accounts(
        tuple(_access(brokers[at], names[at], one) for at, one in told.items()),
        by_account,
        by_user,
        by_policy,
    )
    return Page(
        "accounts/overview.html",
        call.text("Accounts"),
        data,
        command=_command(data, call),
        sheet=_sheet(told),
    )


def _command(data: Accounts, call: Call) -> tuple[str, ...]:
    names = [row.name for row in call.cluster.snapshot.clusters]
    if not names:
        return ()
    name = "getAclConfig" if data.accounts or not data.users else "listUser"
    return (name, "-c", names[0])


def _sheet(told: Mapping[str, BrokerAnswer]) -> Sheet:
    """Return the accounts and users at each broker."""
    rows: list[tuple[Any, ...]] = []
    for address, one in told.items():
        if not isinstance(one.accounts, MQError):
            for item in accounts.rows(address, one.accounts):
                kind = "administrator" if item.admin else ""
                rows.append((address, "account", item.access_key, kind, "", ""))
        if not isinstance(one.users, MQError):
            for user in one.users:
                rows.append((address, "user", user.username, user.user_type, user.user_status, ""))
        if not isinstance(one.policies, MQError):
            for policy in one.policies:
                what = ", ".join(policy.actions)
                rows.append(
                    (address, "policy", policy.subject, policy.decision, policy.resource, what)
                )
    return Sheet(("brokerAddr", "kind", "name", "type", "status or resource", "actions"), rows)


async def _ask(call: Call, address: str) -> BrokerAnswer:
    """Request all three at once: the release does not determine which of them a broker has."""

    async def one(act: Any) -> Any:
        try:
            return await cluster.within(DEADLINE, act)(call.admin, address)
        except MQError as error:
            return error

    config, told_users, told_policies = await asyncio.gather(
        one(lambda admin, at: admin.accounts(at)),
        one(lambda admin, at: admin.users(at)),
        one(lambda admin, at: admin.all_policies(at)),
    )
    return BrokerAnswer(
        config,
        told_users
        if isinstance(told_users, MQError)
        else tuple(users.user_rows(address, told_users)),
        told_policies
        if isinstance(told_policies, MQError)
        else tuple(users.policy_rows(address, told_policies)),
    )


def _access(row: BrokerRow, name: str, told: BrokerAnswer) -> BrokerAccess:
    errors = [part for part in (told.accounts, told.users, told.policies) if _is_error(part)]
    known = [error for error in errors if not isinstance(error, RequestNotSupported)]
    addresses = () if isinstance(told.accounts, MQError) else told.accounts.global_white_addrs
    return BrokerAccess(
        name,
        row.address,
        row.version,
        None if isinstance(told.accounts, MQError) else len(told.accounts.plain_access_configs),
        None if isinstance(told.users, MQError) else len(told.users),
        None if isinstance(told.policies, MQError) else len(told.policies),
        tuple(addresses),
        tuple(dict.fromkeys(map(str, known))),  # one line for a broker that is down, not three
    )


def _is_error(part: object) -> bool:
    return isinstance(part, MQError)


def _by_broker(
    told: Mapping[str, Iterable[AccountRow | UserRow | PolicyRow]],
    key: Any,
    left_out: tuple[str, ...],
) -> tuple[AccountState, ...]:
    """Return the entries with the same name at all brokers."""
    found: dict[tuple[str, str | None], dict[str, dict[str, Any]]] = {}
    for broker, rows in told.items():
        for row in rows:
            values = {
                field.name: getattr(row, field.name)
                for field in fields(row)
                if field.name not in left_out
            }
            found.setdefault(key(row), {})[broker] = values
    held = []
    for (name, resource), by_broker in sorted(found.items(), key=_by_name):
        rows_ = drift.compare(by_broker)
        held.append(
            AccountState(
                name,
                resource,
                tuple(by_broker),
                tuple(broker for broker in told if broker not in by_broker),
                tuple((row.name, row.usual) for row in rows_),
                tuple(
                    (row.name, broker, value)
                    for row in rows_
                    if row.differs
                    for broker, value in zip(by_broker, row.values, strict=True)
                    if value != row.usual
                ),
            )
        )
    return tuple(held)


def _by_name(item: tuple[tuple[str, str | None], Any]) -> tuple[str, str]:
    (name, resource), _ = item
    return name, resource or ""


ROUTES = (
    Route(
        "/accounts",
        show,
        Permission.ADMINISTER,
        N_("Accounts of 4.9, users and policies of 5.x, by broker."),
        menu=N_("Accounts"),
        data=Accounts,
    ),
)
