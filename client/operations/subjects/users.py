"""The users of 5.x brokers, without their passwords, and their policies."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.operations.errors import InvalidRequest, Parameter
from mq.client.operations.subjects.accounts import split

if TYPE_CHECKING:
    from mq.protocol.bodies import AclInfo, UserInfo

#: org.apache.rocketmq.common.action.Action. A broker silently drops others.
ACTIONS = ("All", "Any", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")


@dataclass(frozen=True, slots=True)
class UserRow:
    """A user at a broker."""

    broker_addr: str
    username: str | None
    user_type: str | None
    user_status: str | None


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One resource of a policy at a broker; a subject without policies has one row without a
    resource.
    """

    broker_addr: str
    subject: str | None
    policy_type: str | None
    resource: str | None
    actions: tuple[str, ...]
    source_ips: tuple[str, ...] | None
    decision: str | None


def user_rows(address: str, users: "Iterable[UserInfo]") -> list[UserRow]:
    """Return the users of the broker at `address`."""
    return [UserRow(address, user.username, user.user_type, user.user_status) for user in users]


def policy_rows(address: str, acls: "Iterable[AclInfo]") -> list[PolicyRow]:
    """Return the policies of the broker at `address`, a row for each resource."""
    found = []
    for acl in acls:
        if not acl.policies:
            found.append(PolicyRow(address, acl.subject, None, None, (), None, None))
        for policy in acl.policies:
            for entry in policy.entries:
                sources = None if entry.source_ips is None else tuple(entry.source_ips)
                what = (policy.policy_type, entry.resource, tuple(entry.actions))
                found.append(PolicyRow(address, acl.subject, *what, sources, entry.decision))
    return found


def user(
    username: str,
    password: str | None = None,
    user_type: str | None = None,
    user_status: str | None = None,
) -> "UserInfo":
    """Create a user for a request to create or change it; None keeps a value."""
    from mq.protocol.bodies import UserInfo

    return UserInfo(
        username=username,
        password=password,
        user_type=user_type.capitalize() if user_type else None,
        user_status=user_status,
    )


def policies(
    subject: str, resources: str, actions: str, decision: str, source_ips: str | None
) -> "AclInfo":
    """Create one policy for each resource (AclInfo.of); lists are separated by commas.

    Raises InvalidRequest for an unknown action, and if no action or resource is named.
    """
    from mq.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo

    known = {name.lower(): name for name in ACTIONS}
    wanted = split(actions)
    for action in wanted:
        if action.lower() not in known:
            raise InvalidRequest(
                Parameter("actions"),
                f": {action!r} is not one of {', '.join(ACTIONS)}",
                hint="write several with commas: Pub,Sub",
            )
    if not wanted or not split(resources):
        raise InvalidRequest(
            Parameter("resources"), " and ", Parameter("actions"), ": name at least one of each"
        )
    entries = [
        PolicyEntryInfo(
            resource=resource,
            actions=[known[action.lower()] for action in wanted],
            source_ips=None if source_ips is None else split(source_ips),
            decision=decision.capitalize(),
        )
        for resource in split(resources)
    ]
    return AclInfo(subject=subject, policies=[PolicyInfo(entries=entries)])
