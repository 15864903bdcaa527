"""Access control: checks every request, and applies administrators' changes.

Sources: PlainAccessValidator and PlainPermissionManager.validate (4.9.8). As there, addresses in
globalWhiteRemoteAddresses may do everything, and so may a request that names an access key and
comes from an address in its whiteRemoteAddress. All others must be signed, and need the permissions
that `needs` lists.
"""

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mq.daemons.acl.accounts import PUB, SUB, Account, check_keys, check_permissions, text
from mq.daemons.acl.addresses import parts_of
from mq.daemons.acl.errors import AclError
from mq.daemons.acl.files import load
from mq.daemons.acl.signers import Signers
from mq.daemons.broker.acl.required_permissions import BODIES, OPEN, Need, needs, needs_direct
from mq.daemons.broker.clients.registry import Client
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.protocol.bodies import DataVersion
from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command
from mq.protocol.names import TRACE_TOPIC
from mq.protocol.signature import ACCESS_KEY

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AccountChange:
    """The change in UPDATE_AND_CREATE_ACL_CONFIG; None leaves a value as it is."""

    access_key: str | None
    secret_key: str | None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_permission: str | None = None
    default_group_permission: str | None = None
    topic_permissions: Sequence[str] | None = None
    group_permissions: Sequence[str] | None = None

    def apply(self, account: dict[str, Any]) -> None:
        """Apply the change to an account of a file (createAclAccessConfigMap)."""
        account["accessKey"] = self.access_key
        account["secretKey"] = self.secret_key
        account["admin"] = self.admin
        if self.white_remote_address is not None:
            account["whiteRemoteAddress"] = self.white_remote_address
        if self.default_topic_permission:
            account["defaultTopicPerm"] = self.default_topic_permission
        if self.default_group_permission:
            account["defaultGroupPerm"] = self.default_group_permission
        if self.topic_permissions is not None:
            account["topicPerms"] = list(self.topic_permissions)
        if self.group_permissions is not None:
            account["groupPerms"] = list(self.group_permissions)


class AccessControl(Signers):
    """The rules in force. Raises ConfigError if the files are invalid at the start."""

    reads_body_of: Container[int] = BODIES

    # the check of a request ---------------------------------------------------------------------

    def guard(self, command: Command, channel: Channel) -> None:
        """Raises Refused (NO_PERMISSION) unless the sender may make this request."""
        try:
            self.check(command, channel.remote_address[0])
        except AclError as error:
            raise self.refusal(command.code, channel, error) from None

    def guard_dialect(self, command: Command, channel: Channel) -> None:
        """Check a request of a snode: each must come from an administrator, or from an address that
        may do everything. A connection uses the snode dialect only for these (`reads_all`).
        """
        try:
            account = self.signer(command.fields, bytes(command.body), channel.remote_address[0])
            if account is not None and not account.admin:
                raise AclError(
                    f"Need admin permission for request code={command.code} of a snode, "
                    f"but accessKey={account.access_key} is not"
                )
        except AclError as error:
            raise self.refusal(command.code, channel, error) from None

    def guard_direct(
        self, code: int, fields: Mapping[str, str], body: bytes, channel: Channel
    ) -> None:
        """Like `guard`, for a request of the hot path."""
        try:
            account = self._account(code, fields, body, channel.remote_address[0])
            if account is not None:
                _check_needs(account, needs_direct(code, fields))
        except AclError as error:
            raise self.refusal(code, channel, error) from None

    def check(self, command: Command, host: str) -> None:
        """Raises AclError unless a request from this address is allowed."""
        account = self._account(command.code, command.fields, bytes(command.body), host)
        if account is not None:
            _check_needs(account, needs(command))

    def _account(
        self, code: int, fields: Mapping[str, str], body: bytes, host: str
    ) -> Account | None:
        """The account of a request; None if its address may do everything.

        Raises AclError for a request that is not signed, or is for administrators and not from one.
        """
        account = self.signer(fields, body, host)
        if account is None:
            return None
        if code not in OPEN and not account.admin:
            raise AclError(
                f"Need admin permission for request code={code}, "
                f"but accessKey={account.access_key} is not"
            )
        return account

    def check_read(self, command: Command, channel: Channel, topic: str) -> None:
        """Check a topic that was not known when the request passed the guard.

        Raises Refused unless its sender may read from the topic. Java does not check this.
        """
        self._check_topic(command, channel, topic, SUB)

    def reads_all(self, command: Command, channel: Channel) -> bool:
        """Whether the sender of a request that has passed the guard may read from all topics: an
        administrator, as a slave must be.
        """
        parts = parts_of(channel.remote_address[0])
        if any(matches(parts) for matches in self.rules.global_matchers):
            return True
        account = self.rules.accounts.get(command.fields.get(ACCESS_KEY, ""))
        return account is not None and account.admin

    def check_write(self, command: Command, channel: Channel, topic: str) -> None:
        """Like `check_read`, for sending to the topic."""
        self._check_topic(command, channel, topic, PUB)

    def _check_topic(self, command: Command, channel: Channel, topic: str, needed: int) -> None:
        parts = parts_of(channel.remote_address[0])
        if any(matches(parts) for matches in self.rules.global_matchers):
            return
        account = self.rules.accounts.get(command.fields.get(ACCESS_KEY, ""))
        try:
            if account is None:
                raise AclError("No accessKey is configured")
            if not account.matches(parts):
                account.check(topic, needed)
        except AclError as error:
            self.refused += 1
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from None

    def may_have(self, client: Client, topic: str) -> bool:
        """Whether a producer may receive messages that it, or another member of its group, sent to
        a topic.
        """
        parts = parts_of(client.channel.remote_address[0])
        if any(matches(parts) for matches in self.rules.global_matchers):
            return True
        account = self.rules.accounts.get(client.account)
        if account is None:
            return False
        try:
            if not account.matches(parts):
                account.check(topic, PUB)
        except AclError:
            return False
        return True

    # changes by request -------------------------------------------------------------------------

    def update_account(self, change: AccountChange) -> None:
        """Create or change an account. Raises AclError if that is not possible; nothing has changed
        then.
        """
        check_keys(change.access_key, change.secret_key)
        assert change.access_key is not None
        check_permissions(change.topic_permissions or ())
        check_permissions(change.group_permissions or ())
        path = self.rules.files.get(change.access_key, self.files.default)
        data = load(path)
        accounts = data.get("accounts") or []
        data["accounts"] = accounts
        for account in accounts:
            if text(account.get("accessKey")) == change.access_key:
                change.apply(account)
                break
        else:
            account = {}
            change.apply(account)
            accounts.append(account)
        self._write(path, data)

    def delete_account(self, access_key: str) -> bool:
        """Delete an account; False if it does not exist. Raises AclError if the file cannot be
        changed.
        """
        path = self.rules.files.get(access_key)
        if path is None:
            return False
        data = load(path)
        accounts = data.get("accounts") or []
        kept = [item for item in accounts if text(item.get("accessKey")) != access_key]
        if len(kept) == len(accounts):
            return False
        data["accounts"] = kept
        self._write(path, data)
        return True

    def update_global_addresses(self, addresses: Sequence[str], file: str) -> None:
        """Set the addresses that may do everything, in one of the files or the default one.

        Raises AclError for any other file: no path is built from a peer's data.
        """
        path = self.files.default
        if file:
            known = {str(path): path for path in self.files.paths()}
            if file not in known:
                raise AclError(f"{file} is not one of the ACL files of this broker")
            path = known[file]
        data = load(path)
        data["globalWhiteRemoteAddresses"] = list(addresses)
        self._write(path, data)

    def versions(self) -> Mapping[Path, DataVersion]:
        """The data version of each file."""
        return self.rules.versions

    def default_version(self) -> DataVersion:
        return self.rules.versions.get(self.files.default, DataVersion(timestamp=0, counter=0))

    def _write(self, path: Path, data: dict[str, Any]) -> None:
        self.files.write(path, data)
        self.reload()


def _check_needs(account: Account, needed: Iterable[Need]) -> None:
    for resource, permission in needed:
        if resource == TRACE_TOPIC and permission == PUB:  # every account may send traces
            continue
        account.check(resource, permission)
