"""The subscription groups of a broker, kept in config/subscriptionGroup.json."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from mq.daemons.broker.config import BrokerConfig
from mq.daemons.state_file import read_with_backup, write_atomically
from mq.protocol import fastjson, names
from mq.protocol.bodies import DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper
from mq.protocol.errors import RemoteProtocolError

log = logging.getLogger(__name__)


class Groups:
    """The subscription groups by name."""

    def __init__(self, path: Path, config: Callable[[], BrokerConfig]) -> None:
        """`config` gives the current configuration: autoCreateSubscriptionGroup may change."""
        self._path = path
        self._config = config
        self.table: dict[str, SubscriptionGroupConfig] = {}
        for name in names.BUILT_IN_GROUPS:
            self.table[name] = SubscriptionGroupConfig(group_name=name)
        self.data_version = DataVersion(timestamp=time.time_ns() // 1_000_000, counter=0)
        saved = read_with_backup(path, _decode)
        if saved is not None:
            self.table.update(saved.subscription_group_table)
            self.data_version = saved.data_version
        log.info("%d subscription groups", len(self.table))

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """The group, made if it is new and may be; None if it may not (SUBSCRIPTION_GROUP_NOT_EXIST
        to a client). A name that is not legal never makes a group."""
        known = self.table.get(name)
        if known is not None:
            return known
        if not (self._config().auto_create_subscription_group or names.is_system_group(name)):
            return None
        try:
            names.check_group(name)
        except names.IllegalName as error:
            log.warning("group not created: %s", error)
            return None
        group = SubscriptionGroupConfig(group_name=name)
        try:
            self.update(group)
        except OSError as error:
            # A full disk is no reason to keep messages from consumers: the group is made again
            # after a restart, and saved with the next change.
            log.error("subscription group %s is not saved: %s", name, error,
                      extra={"failure": "subscription group saves"})  # fmt: skip
            self.table[name] = group
        return group

    def update(self, group: SubscriptionGroupConfig) -> None:
        """Create a group or change it.

        Raises:
            OSError: it could not be saved; nothing has changed.
        """
        self.update_all([group])

    def update_all(self, groups: Sequence[SubscriptionGroupConfig]) -> None:
        """Create groups or change them, all or none.

        Raises:
            OSError: they could not be saved; nothing has changed.
        """
        old = self.table
        self._save({**old, **{group.group_name: group for group in groups}})
        for group in groups:
            log.info(
                "subscription group %s: %s -> %s",
                group.group_name,
                old.get(group.group_name),
                group,
            )

    def delete(self, name: str) -> bool:
        """Delete a group; returns whether there was one.

        Raises:
            OSError: the change could not be saved; nothing has changed.
        """
        if name not in self.table:
            return False
        table = dict(self.table)
        del table[name]
        self._save(table)
        log.info("subscription group %s deleted", name)
        return True

    def disable_consume(self, name: str) -> None:
        """Let a group consume no more; one that is far behind, for instance."""
        group = self.table.get(name)
        if group is not None and group.consume_enable:
            group.consume_enable = False
            self._save(self.table)

    def wrapper(self) -> SubscriptionGroupWrapper:
        """All groups, as brokers and tools exchange them."""
        return SubscriptionGroupWrapper(
            subscription_group_table=self.table, data_version=self.data_version
        )

    def _save(self, table: dict[str, SubscriptionGroupConfig]) -> None:
        version = DataVersion(
            timestamp=time.time_ns() // 1_000_000, counter=self.data_version.counter + 1
        )
        wrapper = SubscriptionGroupWrapper(subscription_group_table=table, data_version=version)
        write_atomically(self._path, fastjson.dumps_pretty(wrapper.to_plain()))
        self.table = table
        self.data_version = version


def _decode(data: bytes) -> SubscriptionGroupWrapper:
    try:
        return SubscriptionGroupWrapper.decode(data)
    except RemoteProtocolError as error:
        raise ValueError(str(error)) from None
