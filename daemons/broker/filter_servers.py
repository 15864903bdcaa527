"""The filter servers of a broker: those that it starts, and those that have registered.

Sources: FilterServerManager of 4.2.0. There `sh` starts what is missing, and whoever connects may
register. An address in this table is in the route of every topic of the broker, and consumers send
their classes to it and take messages from it. So only those are taken that sign with the key which
the broker has made for the processes that it starts, administrators (aclEnable), and addresses of
filterServerAllowList.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mq.client.caller import parse_address
from mq.client.credentials import AccessKey
from mq.client.errors import ClientError
from mq.client.machine import clock, random_ids
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
    access_key: str  # that it was started with; "" for one that somebody else has started


class FilterServers:
    """The table of registered filter servers. `on_change` is called when their list is another."""

    def __init__(self, settings: BrokerSettings, access: AccessControl | None) -> None:
        self._settings = settings
        self._access = access
        self._entries: dict[Channel, _Entry] = {}
        self._accounts: dict[str, Account] = {}  # of the processes that this broker has started
        self._registered_at: dict[str, float] = {}  # of those, the last time, by access key
        self.on_change: list[Callable[[], None]] = []

    def issue_key(self) -> AccessKey:
        """What a process that is about to be started signs its requests to this broker with."""
        key = AccessKey(
            f"filter-server-{random_ids.random_bytes(8).hex()}", random_ids.random_bytes(24).hex()
        )
        account = self._accounts[key.access_key] = Account(
            access_key=key.access_key,
            secret_key=key.secret_key.encode(),
            admin=False,
            matches=lambda parts: False,
            default_topic_permission=SUB,  # it pulls for all consumers, whom it asks who they are
            default_group_permission=DENY,
            permissions={retry_topic(FILTERSRV_CONSUMER_GROUP): SUB},
        )
        if self._access is not None:
            self._access.own_accounts[key.access_key] = account
        return key

    def revoke(self, key: AccessKey) -> bool:
        """The process of a key has ended; whether it had registered."""
        self._accounts.pop(key.access_key, None)
        if self._access is not None:
            self._access.own_accounts.pop(key.access_key, None)
        return self._registered_at.pop(key.access_key, None) is not None

    def registered_at(self, key: AccessKey) -> float | None:
        """When the process of a key has last registered, by the monotonic clock; None: never."""
        return self._registered_at.get(key.access_key)

    @property
    def started_elsewhere(self) -> int:
        """How many are registered that this broker has not started."""
        return sum(entry.access_key not in self._accounts for entry in self._entries.values())

    @property
    def addresses(self) -> Sequence[str]:
        """Where they are, each once, in order: as name servers are told."""
        return sorted({entry.address for entry in self._entries.values()})

    @serves(RequestCode.REGISTER_FILTER_SERVER)
    def register(self, command: Command, channel: Channel) -> Command:
        """Take a filter server into the table, or keep it there."""
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
        self._tell(before)
        fields = RegisterFilterServerResponseHeader(
            broker_name=self._settings.broker.broker_name, broker_id=self._settings.broker.broker_id
        ).encode()
        return command.reply(ResponseCode.SUCCESS, fields)

    def expire(self, seconds: float = EXPIRY_SECONDS) -> None:
        """Drop those that have not registered for so long, with their connections."""
        oldest = clock.monotonic() - seconds
        for channel in [c for c, entry in self._entries.items() if entry.seen < oldest]:
            log.warning("filter server %s is silent: dropped", self._entries[channel].address)
            self._closed(channel)
            channel.close()

    def _closed(self, channel: Channel) -> None:
        before = self.addresses
        entry = self._entries.pop(channel, None)
        if entry is not None:
            log.info("filter server %s has gone", entry.address)
            self._tell(before)

    def _tell(self, before: Sequence[str]) -> None:
        if self.addresses != before:
            for hear in self.on_change:
                hear()

    def _sender(self, command: Command, channel: Channel) -> str:
        """The key of a process that this broker has started, "" of another one that may register.

        Raises Refused for who may not.
        """
        host = channel.remote_address[0]
        account = self._accounts.get(command.fields.get(ACCESS_KEY, ""))
        if account is not None and is_signed(account, command.fields, bytes(command.body)):
            return account.access_key
        # As the guard has found: an administrator, or an address that may do everything.
        if self._access is not None and self._access.reads_all(command, channel):
            return ""
        allowed = self._settings.broker.filter_server_allow_list
        if is_in(host, parse_networks(allowed, "filterServerAllowList")):
            return ""
        log.warning("%s may not register a filter server", channel.remote, extra={"peer": host})
        raise Refused(
            ResponseCode.NO_PERMISSION,
            f"{host} may not register filter servers: this broker takes those that it has started "
            "(filterServerNums), addresses of filterServerAllowList and, with aclEnable, "
            "administrators",
        )
