"""The accounts of 4.9 brokers and of ours, without their secrets.

A 4.9.7 broker returns the secret keys with its accounts: they are dropped here.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mq.protocol.bodies import AclConfig, PlainAccessConfig

#: Permissions of an account for topics and groups (Permission.parsePermFromString).
PERMISSIONS = ("DENY", "PUB", "SUB", "PUB|SUB")


@dataclass(frozen=True, slots=True)
class AccountRow:
    """An account at a broker; a permission is `NAME=DENY|PUB|SUB|PUB|SUB`."""

    broker_addr: str
    access_key: str
    white_remote_address: str | None
    admin: bool
    default_topic_perm: str | None
    default_group_perm: str | None
    topic_perms: tuple[str, ...]
    group_perms: tuple[str, ...]


def rows(address: str, config: "AclConfig") -> list[AccountRow]:
    """Return the accounts of the broker at `address`."""
    return [
        AccountRow(
            address,
            account.access_key,
            account.white_remote_address,
            account.admin,
            account.default_topic_perm,
            account.default_group_perm,
            tuple(account.topic_perms or ()),
            tuple(account.group_perms or ()),
        )
        for account in config.plain_access_configs
    ]


def document(address: str, config: "AclConfig") -> dict[str, Any]:
    """Return everything that the broker at `address` reports, except the secret keys."""
    accounts = []
    for account in config.plain_access_configs:
        plain = account.to_plain()
        plain.pop("secretKey", None)
        accounts.append(plain)
    return {
        "brokerAddr": address,
        "globalWhiteAddrs": config.global_white_addrs,
        "accounts": accounts,
    }


def account(
    access_key: str,
    secret_key: str | None,
    *,
    admin: bool = False,
    white_remote_address: str | None = None,
    default_topic_perm: str | None = None,
    default_group_perm: str | None = None,
    topic_perms: str | None = None,
    group_perms: str | None = None,
) -> "PlainAccessConfig":
    """Create an account from a request. Permissions are separated by commas.

    None keeps the broker's value; an empty text removes it.
    """
    from mq.protocol.bodies import PlainAccessConfig

    return PlainAccessConfig(
        access_key=access_key,
        secret_key=secret_key,
        white_remote_address=white_remote_address,
        admin=admin,
        default_topic_perm=default_topic_perm,
        default_group_perm=default_group_perm,
        topic_perms=None if topic_perms is None else split(topic_perms),
        group_perms=None if group_perms is None else split(group_perms),
    )


def split(value: str | None) -> list[str]:
    """Split a text at commas."""
    return [part.strip() for part in (value or "").split(",") if part.strip()]
