"""Changes ACL files by request. All requests are for administrators only; none returns a secret
key.

Request 54 returned all accounts with their secret keys to any accepted client (CVE-2024-23321), and
was removed in 4.9.8. This broker serves it like the others, and without the secret keys.
"""

import logging
from typing import Any, NoReturn

from mq.daemons.acl.accounts import text
from mq.daemons.acl.errors import AclError
from mq.daemons.acl.files import AclFiles, load
from mq.daemons.broker.acl.access import AccessControl, AccountChange
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol import fastjson
from mq.protocol.bodies import AclConfig, DataVersion, PlainAccessConfig
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)

log = logging.getLogger(__name__)

_OFF = "access control is off at this broker (aclEnable=false)"


def shown(files: AclFiles) -> AclConfig:
    """The current content of the files (PlainPermissionManager.getAllAclConfig of 4.9.7).

    Raises AclError for a file that cannot be read.
    """
    config = AclConfig()
    for path in files.paths():
        data = load(path)
        config.global_white_addrs += _texts(data.get("globalWhiteRemoteAddresses"))
        config.plain_access_configs += [_account(item) for item in data.get("accounts") or ()]
    return config


def _account(data: object) -> PlainAccessConfig:
    if not isinstance(data, dict):
        raise AclError("accounts: each has to be a mapping with an accessKey and a secretKey")
    return PlainAccessConfig(
        access_key=text(data.get("accessKey")) or "",
        white_remote_address=text(data.get("whiteRemoteAddress")),
        admin=(text(data.get("admin")) or "").lower() == "true",
        default_topic_perm=text(data.get("defaultTopicPerm")),
        default_group_perm=text(data.get("defaultGroupPerm")),
        topic_perms=_texts(data["topicPerms"]) if data.get("topicPerms") is not None else None,
        group_perms=_texts(data["groupPerms"]) if data.get("groupPerms") is not None else None,
    )


def _texts(values: Any) -> list[str]:
    if not isinstance(values, list):
        return []
    return [text(value) or "" for value in values]


class AccessHandlers:
    """Changes and lists accounts and addresses.

    ``address`` is this broker's address, host:port; `access` is None if access control is off.
    """

    def __init__(
        self, settings: BrokerSettings, address: str, access: AccessControl | None
    ) -> None:
        self._settings = settings
        self._address = address
        self._access = access

    @serves(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG)
    def update(self, command: Command, channel: Channel) -> Command:
        """Create or change an account."""
        header = command.read_header(CreateAccessConfigRequestHeader)
        failed = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        access = self._on(failed)
        change = AccountChange(
            access_key=header.access_key,
            secret_key=header.secret_key,
            white_remote_address=header.white_remote_address,
            admin=header.admin,
            default_topic_permission=header.default_topic_perm,
            default_group_permission=header.default_group_perm,
            topic_permissions=_split(header.topic_perms),
            group_permissions=_split(header.group_perms),
        )
        try:
            access.update_account(change)
        except AclError as error:
            _fail(failed, error, channel)
        log.info("%s changed the account of access key %s", channel.remote, header.access_key)
        return command.reply()

    @serves(RequestCode.DELETE_ACL_CONFIG)
    def delete(self, command: Command, channel: Channel) -> Command:
        """Delete an account."""
        key = command.read_header(DeleteAccessConfigRequestHeader).access_key
        failed = ResponseCode.DELETE_ACL_CONFIG_FAILED
        access = self._on(failed)
        try:
            if not access.delete_account(key):
                raise AclError(
                    f"The accesskey[{key}] corresponding to accessConfig has been deleted failed."
                )
        except AclError as error:
            _fail(failed, error, channel)
        log.info("%s deleted the account of access key %s", channel.remote, key)
        return command.reply()

    @serves(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)
    def update_addresses(self, command: Command, channel: Channel) -> Command:
        """Set the addresses that are accepted without an account."""
        # mqadmin of 4.9.7 omits the file, and Java's broker of 4.9.8 then refuses the request.
        fields = {"aclFileFullPath": "", **command.fields}
        header = UpdateGlobalWhiteAddrsConfigRequestHeader.decode(fields)
        failed = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        access = self._on(failed)
        addresses = _split(header.global_white_addrs) or []
        try:
            access.update_global_addresses(addresses, header.acl_file_full_path)
        except AclError as error:
            _fail(failed, error, channel)
        log.info("%s changed globalWhiteRemoteAddresses: %s", channel.remote, addresses)
        return command.reply()

    @serves(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    def versions(self, command: Command, channel: Channel) -> Command:
        """The versions of the ACL files."""
        access = self._on(ResponseCode.SYSTEM_ERROR)
        every = {str(path): _plain(version) for path, version in access.versions().items()}
        header = GetBrokerAclConfigResponseHeader(
            version=fastjson.dumps(_plain(access.default_version())).decode(),
            all_acl_file_version=fastjson.dumps(every).decode(),
            broker_name=self._settings.broker.broker_name,
            broker_addr=self._address,
            cluster_name=self._settings.broker.broker_cluster_name,
        )
        return command.reply(fields=header.encode())

    @serves(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
    def accounts(self, command: Command, channel: Channel) -> Command:
        """The accounts, without their secret keys."""
        access = self._on(ResponseCode.SYSTEM_ERROR)
        try:
            return command.reply(body=shown(access.files).encode())
        except AclError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None

    def _on(self, code: ResponseCode) -> AccessControl:
        """Return the access control; raises Refused with this code if it is off."""
        if self._access is None:
            raise Refused(code, _OFF)
        return self._access


def _fail(code: ResponseCode, error: AclError, channel: Channel) -> NoReturn:
    log.warning("access control change by %s failed: %s", channel.remote, error)
    raise Refused(code, str(error)) from None


def _split(text: str | None) -> list[str] | None:
    """Split a list joined by commas; None means that the stored value stays (UtilAll.split)."""
    if text is None:
        return None
    return [part.strip() for part in text.split(",") if part.strip()]


def _plain(version: DataVersion) -> dict[str, int]:
    return {"counter": version.counter, "timestamp": version.timestamp}
