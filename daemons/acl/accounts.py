"""The content of an ACL file: accounts, their permissions, and addresses that need no account.

Sources: PlainPermissionManager.load and buildPlainAccessResource, Permission (4.9.8).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mq.daemons.acl.addresses import Matcher, matcher
from mq.daemons.acl.errors import AclError
from mq.protocol.bodies import DataVersion
from mq.protocol.names import RETRY_PREFIX, holds_messages_of_others

DENY = 1
PUB = 4
SUB = 8

_PERMISSIONS = {"PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB, "DENY": DENY}
# Access and secret keys must be longer (AclConstants.ACCESS_KEY_MIN_LENGTH).
SHORTEST_KEY = 6


@dataclass(frozen=True)
class Account:
    """An account. The permissions of groups are stored under the names of their retry topics."""

    access_key: str
    secret_key: bytes = field(repr=False)
    admin: bool
    matches: Matcher  # addresses that may use this access key without a signature
    default_topic_permission: int
    default_group_permission: int
    permissions: Mapping[str, int]

    def check(self, resource: str, needed: int) -> None:
        """Raises AclError unless this account has the needed permission for this topic or group."""
        is_group = resource.startswith(RETRY_PREFIX)
        owned = self.permissions.get(resource)
        if owned is None:
            if self.admin and not self.permissions:
                return  # an administrator without listed permissions may do everything
            owned = self.default_group_permission if is_group else self.default_topic_permission
            if holds_messages_of_others(resource):
                owned = DENY
        if owned & DENY or not owned & needed:
            kind = "group" if is_group else "topic"
            name = resource.removeprefix(RETRY_PREFIX)
            raise AclError(f"No default permission for {kind}:{name}")


@dataclass(frozen=True)
class AclDocument:
    """The content of one ACL file."""

    accounts: tuple[Account, ...]
    global_matchers: tuple[Matcher, ...]
    version: DataVersion


def parse_document(data: object) -> AclDocument:
    """Parse the YAML of a file. Raises AclError naming the invalid part."""
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise AclError("an ACL file must be a YAML mapping with accounts")
    addresses = _list(data.get("globalWhiteRemoteAddresses"), "globalWhiteRemoteAddresses")
    accounts = _list(data.get("accounts"), "accounts")
    return AclDocument(
        tuple(map(_account, accounts)),
        tuple(matcher(text(address)) for address in addresses),
        version_of(data),
    )


def version_of(data: Mapping[str, Any]) -> DataVersion:
    """The data version of a file; 0 if it has none."""
    versions = _list(data.get("dataVersion"), "dataVersion")
    if not versions:
        return DataVersion(timestamp=0, counter=0)
    first = versions[0]
    try:
        return DataVersion(timestamp=int(first["timestamp"]), counter=int(first["counter"]))
    except (TypeError, KeyError, ValueError):
        raise AclError("dataVersion: expected a counter and a timestamp") from None


def text(value: object) -> str | None:
    """A scalar as text, converted like fastjson: keys made of digits are numbers in YAML."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise AclError("expected a text instead of a list or a mapping")


def check_keys(access_key: str | None, secret_key: str | None) -> None:
    """Raises AclError for missing or short keys (PlainPermissionManager.checkPlainAccessConfig).

    Java's text shows the secret key, too.
    """
    if not access_key or not secret_key or min(len(access_key), len(secret_key)) <= SHORTEST_KEY:
        raise AclError(
            f"The accessKey={access_key} and its secretKey cannot be null "
            f"and length should longer than {SHORTEST_KEY}"
        )


def check_permissions(resources: Iterable[str]) -> None:
    """Raises AclError for an invalid list of permissions (Permission.checkResourcePerms)."""
    for resource in resources:
        name, _, permission = resource.partition("=")
        if not name or not permission or "=" in permission:
            raise AclError(
                f"Parse Resource format error for {resource}.\n"
                "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
            )
        if permission.strip() not in _PERMISSIONS:
            raise AclError(
                f"Parse resource permission error for {resource}.\n"
                "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
            )


def _account(data: object) -> Account:
    if not isinstance(data, dict):
        raise AclError("accounts: each must be a mapping with an accessKey and a secretKey")
    access_key, secret_key = text(data.get("accessKey")), text(data.get("secretKey"))
    check_keys(access_key, secret_key)
    assert access_key is not None and secret_key is not None
    permissions = {
        RETRY_PREFIX + name: permission for name, permission in _permissions(data, "group")
    }
    permissions.update(_permissions(data, "topic"))
    return Account(
        access_key=access_key,
        secret_key=secret_key.encode(),
        admin=(text(data.get("admin")) or "").lower() == "true",
        matches=matcher(text(data.get("whiteRemoteAddress"))),
        default_topic_permission=_permission(text(data.get("defaultTopicPerm"))),
        default_group_permission=_permission(text(data.get("defaultGroupPerm"))),
        permissions=permissions,
    )


def _permissions(data: Mapping[str, Any], kind: str) -> list[tuple[str, int]]:
    found = []
    for item in _list(data.get(f"{kind}Perms"), f"{kind}Perms"):
        parts = [part.strip() for part in (text(item) or "").split("=") if part]
        if len(parts) != 2:
            raise AclError(f"Parse resource permission failed for {kind}:{item}")
        found.append((parts[0], _permission(parts[1])))
    return found


def _permission(name: str | None) -> int:
    """Unknown permissions are denied (Permission.parsePermFromString)."""
    return _PERMISSIONS.get((name or "").strip(), DENY)


def _list(value: object, name: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise AclError(f"{name}: expected a list")
    return value
