"""The filter servers of a broker: those that it starts, and others that have registered.

Sources: FilterServerManager of 4.2.0. There `sh` starts missing ones, and any client may register.
An address in this table is in the route of every topic of the broker, and consumers send their
classes to it and receive messages from it. So registrations are accepted only from the processes
that the broker has started, which sign with a key that it made for them, from administrators
(aclEnable), and from addresses in filterServerAllowList.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mq.client.credentials import AccessKey
from mq.client.errors import ClientError
from mq.client.machine import clock, random_ids
from mq.client.transport.caller import parse_address
from mq.daemons.acl.accounts import DENY, SUB, Account
from mq.daemons.acl.networks import is_in, parse_networks
from mq.daemons.acl.signers import is_signed
from mq.daemons.broker.acl.access import AccessControl
from mq.daemons.broker.broker_config import MOST_FILTER_SERVERS
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.filtersrv import (
    RegisterFilterServerRequestHeader,
    RegisterFilterServerResponseHeader,
)
from mq.protocol.names import FILTERSRV_CONSUMER_GROUP, retry_topic
from mq.protocol.signature import ACCESS_KEY

log = logging.getLogger(__name__)

EXPIRY_SECONDS = 30.0
_MOST_ADDRESS = 255


@dataclass
class _Entry:
    address: str
    seen: float
    # the key with which it was started; "" for one that this broker has not started
    access_key: str


class FilterServers:
    """The table of registered filter servers. `on_change` is called when their list changes."""

    def __init__(self, settings: BrokerSettings, access: AccessControl | None) -> None:
        self._settings = settings
        self._access = access
        self._entries: dict[Channel, _Entry] = {}
        self._accounts: dict[str, Account] = {}  # of the processes that this broker has started
        # last registration of those processes, by access key
        self._registered_at: dict[str, float] = {}
        self.on_change: list[Callable[[], None]] = []

    def issue_key(self) -> AccessKey:
        """Make the key with which a process that is about to be started signs its requests."""
        key = AccessKey(
            f"filter-server-{random_ids.random_bytes(8).hex()}", random_ids.random_bytes(24).hex()
        )
        account = self._accounts[key.access_key] = Account(
            access_key=key.access_key,
            secret_key=key.secret_key.encode(),
            admin=False,
            matches=lambda parts: False,
            # it pulls for all consumers, which identify themselves to it
            default_topic_permission=SUB,
            default_group_permission=DENY,
            permissions={retry_topic(FILTERSRV_CONSUMER_GROUP): SUB},
        )
        if self._access is not None:
            self._access.own_accounts[key.access_key] = account
        return key

    def revoke(self, key: AccessKey) -> bool:
        """Revoke the key of a process that has ended; returns whether it had registered."""
        self._accounts.pop(key.access_key, None)
        if self._access is not None:
            self._access.own_accounts.pop(key.access_key, None)
        return self._registered_at.pop(key.access_key, None) is not None

    def registered_at(self, key: AccessKey) -> float | None:
        """Monotonic time of the last registration of a key's process; None if there is none."""
        return self._registered_at.get(key.access_key)

    @property
    def started_elsewhere(self) -> int:
        """The number of registered filter servers that this broker has not started."""
        return sum(entry.access_key not in self._accounts for entry in self._entries.values())

    @property
    def addresses(self) -> Sequence[str]:
        """Their addresses, sorted and without duplicates, as sent to name servers."""
        return sorted({entry.address for entry in self._entries.values()})

    @serves(RequestCode.REGISTER_FILTER_SERVER)
    def register(self, command: Command, channel: Channel) -> Command:
        """Register a filter server, or renew its registration."""
        header = command.read_header(RegisterFilterServerRequestHeader)
        access_key = self._sender(command, channel)
        address = header.filter_server_addr
        try:
            parse_address(address)
        except ClientError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if len(address) > _MOST_ADDRESS or not address.isascii() or not address.isprintable():
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{address!r:.100} is not host:port")
        before = self.addresses
        entry = self._entries.get(channel)
        if entry is None:
            if len(self._entries) >= MOST_FILTER_SERVERS:
                raise Refused(ResponseCode.SYSTEM_BUSY, f"{MOST_FILTER_SERVERS} are registered")
            channel.on_close.append(self._closed)
            self._entries[channel] = _Entry(address, clock.monotonic(), access_key)
            log.info("filter server %s has registered, from %s", address, channel.remote)
        else:
            entry.address, entry.seen = address, clock.monotonic()
        if access_key:
            self._registered_at[access_key] = clock.monotonic()
        self._notify_changed(before)
        fields = RegisterFilterServerResponseHeader(
            broker_name=self._settings.broker.broker_name, broker_id=self._settings.broker.broker_id
        ).encode()
        return command.reply(ResponseCode.SUCCESS, fields)

    def expire(self, seconds: float = EXPIRY_SECONDS) -> None:
        """Evict filter servers that have not registered for so long, and disconnect them."""
        oldest = clock.monotonic() - seconds
        for channel in [c for c, entry in self._entries.items() if entry.seen < oldest]:
            log.warning(
                "evicting filter server %s: no registration", self._entries[channel].address
            )
            self._closed(channel)
            channel.close()

    def _closed(self, channel: Channel) -> None:
        before = self.addresses
        entry = self._entries.pop(channel, None)
        if entry is not None:
            log.info("filter server %s has disconnected", entry.address)
            self._notify_changed(before)

    def _notify_changed(self, before: Sequence[str]) -> None:
        if self.addresses != before:
            for callback in self.on_change:
                callback()

    def _sender(self, command: Command, channel: Channel) -> str:
        """The key of a process that this broker has started, "" for another one that may register.

        Raises Refused if the sender may not register.
        """
        host = channel.remote_address[0]
        account = self._accounts.get(command.fields.get(ACCESS_KEY, ""))
        if account is not None and is_signed(account, command.fields, bytes(command.body)):
            return account.access_key
        # The guard has identified an administrator, or an address that may do everything.
        if self._access is not None and self._access.reads_all(command, channel):
            return ""
        allowed = self._settings.broker.filter_server_allow_list
        if is_in(host, parse_networks(allowed, "filterServerAllowList")):
            return ""
        log.warning("%s may not register a filter server", channel.remote, extra={"peer": host})
        raise Refused(
            ResponseCode.NO_PERMISSION,
            f"{host} may not register filter servers: this broker accepts those that it has "
            "started (filterServerNums), addresses of filterServerAllowList and, with aclEnable, "
            "administrators",
        )
