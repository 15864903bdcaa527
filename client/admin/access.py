"""Administrative calls about who may do what: accounts of 4.9."""

from __future__ import annotations  # bodies and headers are loaded when a call needs them

from collections.abc import Sequence

from mq.client.admin.base import AdminBase, read
from mq.protocol import bodies, headers
from mq.protocol.codes import RequestCode


class AccountAdmin(AdminBase):
    """The accounts in the ACL files of brokers of 4.9, and of ours."""

    async def update_account(self, address: str, account: bodies.PlainAccessConfig) -> None:
        """Create an account at the broker at `address`, or change it.

        What is None leaves what there is; `admin` and the secret key are set.
        """
        header = headers.CreateAccessConfigRequestHeader(
            access_key=account.access_key,
            secret_key=account.secret_key,
            white_remote_address=account.white_remote_address,
            admin=account.admin,
            default_topic_perm=account.default_topic_perm,
            default_group_perm=account.default_group_perm,
            topic_perms=",".join(account.topic_perms or ()) or None,
            group_perms=",".join(account.group_perms or ()) or None,
        )
        await self._ask(address, header)

    async def delete_account(self, address: str, access_key: str) -> None:
        """Delete an account at the broker at `address`."""
        await self._ask(address, headers.DeleteAccessConfigRequestHeader(access_key=access_key))

    async def update_global_addresses(
        self, address: str, addresses: Sequence[str], file: str = ""
    ) -> None:
        """Set the addresses that may do everything, in a file of the broker or its default one."""
        header = headers.UpdateGlobalWhiteAddrsConfigRequestHeader(
            global_white_addrs=",".join(addresses), acl_file_full_path=file
        )
        await self._ask(address, header)

    async def account_versions(self, address: str) -> bodies.ClusterAclVersionInfo:
        """The versions of the ACL files of the broker at `address`."""
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
        """The accounts of the broker at `address`. One of 4.9.7 tells their secret keys, too."""
        response = await self._ask(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        return read(bodies.AclConfig.decode, response.body, address)
