"""Administrative calls for access control: accounts of 4.9, users and policies of 5.x."""

from __future__ import annotations  # bodies and headers are loaded only when a call needs them

from collections.abc import Sequence
from typing import Any

from mq.client.admin.base import AdminBase, read
from mq.protocol import bodies, fastjson, headers
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError


class AccountAdmin(AdminBase):
    """The accounts in the ACL files of 4.9 brokers and of ours."""

    async def update_account(self, address: str, account: bodies.PlainAccessConfig) -> None:
        """Create or change an account at the broker at `address`.

        A permission list of None keeps the existing permissions, and an empty list removes them.
        `admin` and the secret key are always set.
        """
        header = headers.CreateAccessConfigRequestHeader(
            access_key=account.access_key,
            secret_key=account.secret_key,
            white_remote_address=account.white_remote_address,
            admin=account.admin,
            default_topic_perm=account.default_topic_perm,
            default_group_perm=account.default_group_perm,
            topic_perms=_joined(account.topic_perms),
            group_perms=_joined(account.group_perms),
        )
        await self._ask(address, header)

    async def delete_account(self, address: str, access_key: str) -> None:
        """Delete an account at the broker at `address`."""
        await self._ask(address, headers.DeleteAccessConfigRequestHeader(access_key=access_key))

    async def update_global_addresses(
        self, address: str, addresses: Sequence[str], file: str = ""
    ) -> None:
        """Set the addresses with full access, in a given ACL file of the broker or the default
        one.
        """
        header = headers.UpdateGlobalWhiteAddrsConfigRequestHeader(
            global_white_addrs=",".join(addresses), acl_file_full_path=file
        )
        await self._ask(address, header)

    async def account_versions(self, address: str) -> bodies.ClusterAclVersionInfo:
        """Return the versions of the ACL files of the broker at `address`."""
        response = await self._ask(address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        header = read(headers.GetBrokerAclConfigResponseHeader.decode, response.fields, address)
        every = (header.all_acl_file_version or "{}").encode()
        document = b'{"allAclConfigDataVersion":' + every + b"}"
        info = read(bodies.ClusterAclVersionInfo.decode, document, address)
        info.cluster_name = header.cluster_name
        info.broker_name = header.broker_name
        info.broker_addr = header.broker_addr
        version = header.version.encode()
        info.acl_config_data_version = read(bodies.DataVersion.decode, version, address)
        return info

    async def accounts(self, address: str) -> bodies.AclConfig:
        """Return the accounts of the broker at `address`. A 4.9.7 broker includes their secret
        keys.
        """
        response = await self._ask(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        return read(bodies.AclConfig.decode, response.body, address)


class UserAdmin(AdminBase):
    """The users of brokers of 5.3 and later, and their policies.

    A broker also answers NoPermission for a user or policy that it considers invalid.
    """

    async def create_user(self, address: str, user: bodies.UserInfo) -> None:
        """Create a user at the broker at `address`."""
        header = headers.CreateUserRequestHeader(username=user.username)
        await self._ask(address, header, user.encode())

    async def update_user(self, address: str, user: bodies.UserInfo) -> None:
        """Change a user; fields that are None stay unchanged."""
        header = headers.UpdateUserRequestHeader(username=user.username)
        await self._ask(address, header, user.encode())

    async def delete_user(self, address: str, username: str) -> None:
        """Delete a user."""
        await self._ask(address, headers.DeleteUserRequestHeader(username=username))

    async def user(self, address: str, username: str) -> bodies.UserInfo | None:
        """Return a user, including the password, or None if the name is unknown."""
        response = await self._ask(address, headers.GetUserRequestHeader(username=username))
        return read(bodies.UserInfo.decode, response.body, address) if response.body else None

    async def users(self, address: str, pattern: str | None = None) -> list[bodies.UserInfo]:
        """Return the users whose name contains `pattern`, including their passwords."""
        response = await self._ask(address, headers.ListUsersRequestHeader(filter=pattern))
        return [
            read(bodies.UserInfo.from_plain, item, address) for item in _items(response, address)
        ]

    async def create_policies(self, address: str, acl: bodies.AclInfo) -> None:
        """Create policies of a subject at the broker at `address`, or add to the existing ones."""
        header = headers.CreateAclRequestHeader(subject=acl.subject)
        await self._ask(address, header, acl.encode())

    async def update_policies(self, address: str, acl: bodies.AclInfo) -> None:
        """Change the policies of a subject on the given resources."""
        header = headers.UpdateAclRequestHeader(subject=acl.subject)
        await self._ask(address, header, acl.encode())

    async def delete_policies(
        self, address: str, subject: str, resource: str | None = None
    ) -> None:
        """Delete the policies of a subject, or those on one resource."""
        header = headers.DeleteAclRequestHeader(subject=subject, resource=resource)
        await self._ask(address, header)

    async def policies(self, address: str, subject: str) -> bodies.AclInfo | None:
        """Return the policies of a subject, or None if it has none."""
        response = await self._ask(address, headers.GetAclRequestHeader(subject=subject))
        return read(bodies.AclInfo.decode, response.body, address) if response.body else None

    async def all_policies(
        self, address: str, subject: str | None = None, resource: str | None = None
    ) -> list[bodies.AclInfo]:
        """Return the policies whose subject and resource contain these texts."""
        header = headers.ListAclsRequestHeader(subject_filter=subject, resource_filter=resource)
        response = await self._ask(address, header)
        return [
            read(bodies.AclInfo.from_plain, item, address) for item in _items(response, address)
        ]


def _items(response: Command, address: str) -> list[Any]:
    """Return the items of a JSON list; Java sends no body for an empty list."""
    return read(_list, response.body, address) if response.body else []


def _list(body: bytes | memoryview) -> list[Any]:
    try:
        items = fastjson.loads(body)
    except fastjson.MalformedJson as error:
        raise RemoteProtocolError(str(error)) from None
    if not isinstance(items, list):
        raise RemoteProtocolError("not a list")
    return items


def _joined(permissions: Sequence[str] | None) -> str | None:
    return None if permissions is None else ",".join(permissions)
