"""The differences between a document and a cluster, broker by broker."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.errors import MQError
from mq.client.operations import cluster
from mq.client.operations.declared.document import Declared, Document
from mq.client.operations.errors import Misdeclared, NextStep, NotFound
from mq.protocol.bodies import PlainAccessConfig, SubscriptionGroupConfig, TopicConfig
from mq.protocol.flags import permission_text
from mq.protocol.names import MASTER_ID

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.operations.wire import Clusters

Config = TopicConfig | SubscriptionGroupConfig | PlainAccessConfig


@dataclass(frozen=True)
class ConfigChange:
    """One object to create or change at one broker.

    Attributes:
        config: the complete new configuration.
        differences: a line with the old and new value of each changed setting.
    """

    declared: Declared
    broker: str
    address: str
    new: bool
    config: Config
    differences: str


class Comparison:
    """The state of the masters in a document's scope, queried once."""

    def __init__(self, admin: "Admin") -> None:
        self._admin = admin
        self._topics: dict[str, Mapping[str, TopicConfig]] = {}
        self._groups: dict[str, Mapping[str, SubscriptionGroupConfig]] = {}
        self._accounts: dict[str, Mapping[str, PlainAccessConfig]] = {}
        self.failures: list[str] = []

    async def changes(self, document: Document) -> list[ConfigChange]:
        """Return all changes, in the order of the document.

        A broker that does not answer is added to `failures`. Raises NotFound for a cluster or
        broker that does not exist.
        """
        info = await cluster.clusters(self._admin.session)
        found: list[ConfigChange] = []
        dead: set[str] = set()
        for declared in document.declared:
            for name, address in masters(info, declared):
                if address in dead:
                    continue
                try:
                    change = await self._change(declared, name, address)
                except MQError as error:
                    dead.add(address)
                    self.failures.append(str(error))
                    continue
                if change is not None:
                    found.append(change)
        return found

    async def _change(self, declared: Declared, broker: str, address: str) -> ConfigChange | None:
        there = await self._there(declared.kind, address)
        now = there.get(declared.name)
        old = _usual(declared) if now is None else now
        config = type(old)(**{**old.__dict__, **declared.settings})
        differences = [
            _difference(key, None if now is None else getattr(now, key), value)
            for key, value in declared.settings.items()
            if now is None or not _same(getattr(now, key), value)
        ]
        if now is not None and not differences:
            return None
        return ConfigChange(declared, broker, address, now is None, config, ", ".join(differences))

    async def _there(self, kind: str, address: str) -> Mapping[str, Config]:
        if kind == "topic":
            if address not in self._topics:
                table = (await self._admin.topic_configs(address)).topic_config_table
                self._topics[address] = table
            return self._topics[address]
        if kind == "group":
            if address not in self._groups:
                groups = await self._admin.subscription_groups(address)
                self._groups[address] = groups.subscription_group_table
            return self._groups[address]
        if address not in self._accounts:
            accounts = (await self._admin.accounts(address)).plain_access_configs
            self._accounts[address] = {account.access_key: account for account in accounts}
        return self._accounts[address]


def masters(info: "Clusters", declared: Declared) -> list[tuple[str, str]]:
    """Return name and address of each broker for which an object is declared.

    Raises NotFound for a broker that does not exist, Misdeclared if the cluster is ambiguous.
    """
    if declared.brokers:
        chosen = list(declared.brokers)
    else:
        chosen = cluster.broker_names(info, _cluster_of(info, declared))
    found = []
    for name in chosen:
        broker = info.broker_addr_table.get(name)
        address = None if broker is None else broker.broker_addrs.get(MASTER_ID)
        if address is None:
            raise NotFound(
                f"{declared.kind} {declared.name}: broker {name} has no master now",
                hint=NextStep.LIST_CLUSTERS,
            )
        found.append((name, address))
    return found


def _cluster_of(info: "Clusters", declared: Declared) -> str:
    if declared.cluster is not None:
        return declared.cluster
    known = sorted(info.cluster_addr_table)
    if len(known) != 1:
        raise Misdeclared(
            f"{declared.kind} {declared.name}: which cluster? ({', '.join(known) or 'none'})",
            hint="write cluster: NAME at the top of the file",
        )
    return known[0]


def _usual(declared: Declared) -> Config:
    """Return the default configuration of an object."""
    if declared.kind == "topic":
        # As updateTopic creates it (UpdateTopicSubCommand).
        return TopicConfig(topic_name=declared.name, read_queue_nums=8, write_queue_nums=8)
    if declared.kind == "group":
        return SubscriptionGroupConfig(group_name=declared.name)
    return PlainAccessConfig(access_key=declared.name)


def _same(now: object, wanted: object) -> bool:
    """Compare two values: permission lists are unordered, and brokers omit empty values."""
    if isinstance(wanted, list):
        return sorted(wanted) == sorted(now if isinstance(now, list) else [])
    return (now or "") == wanted if isinstance(wanted, str) else now == wanted


def _difference(key: str, now: object, wanted: object) -> str:
    name = "".join(
        word.capitalize() if number else word for number, word in enumerate(key.split("_"))
    )
    if now is None:
        return f"{name} {_said(key, wanted)}"
    return f"{name} {_said(key, now)} -> {_said(key, wanted)}"


def _said(key: str, value: object) -> str:
    if key == "perm" and isinstance(value, int):
        return permission_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return " ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


async def bring_about(admin: "Admin", change: ConfigChange, secret: str | None) -> None:
    """Apply one change; `secret` is the key of an account that is created."""
    config = change.config
    if isinstance(config, TopicConfig):
        await admin.create_topic(change.address, config)
    elif isinstance(config, SubscriptionGroupConfig):
        await admin.update_subscription_group(change.address, config)
    else:
        assert isinstance(config, PlainAccessConfig)
        config.secret_key = secret
        await admin.update_account(change.address, config)
