"""The subscription groups of a broker, kept in config/subscriptionGroup.json.

What an administrator changes is on the disk before it can be seen. A group that is made by the way,
for a heartbeat or a pull, is saved a little later, in a thread, together with others: a group that
a kill takes back is made again by the next heartbeat.
"""

import logging
import time
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path

from mq.daemons.broker.config import BrokerConfig
from mq.daemons.broker.table_text import TableText, next_version
from mq.daemons.dispatch import Overloaded
from mq.daemons.state_file import StateFile, read_with_backup
from mq.protocol import names
from mq.protocol.bodies import DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper
from mq.protocol.errors import RemoteProtocolError

log = logging.getLogger(__name__)

Table = dict[str, SubscriptionGroupConfig]

GROUPS_SETTING = "maxAutoCreatedGroups"


class Groups:
    """The subscription groups by name."""

    def __init__(self, path: Path, config: Callable[[], BrokerConfig]) -> None:
        """`config` gives the current configuration: autoCreateSubscriptionGroup may change."""
        self._config = config
        self.most: Callable[[], int] = lambda: 0  # groups made for clients; 0 is any number
        self._text = TableText("subscriptionGroupTable")
        self.file = StateFile(path, lambda: self._text.encode(self.table, self.data_version))
        self.table: dict[str, SubscriptionGroupConfig] = {}
        for name in names.BUILT_IN_GROUPS:
            self.table[name] = SubscriptionGroupConfig(group_name=name)
        self.data_version = DataVersion(timestamp=time.time_ns() // 1_000_000, counter=0)
        saved = read_with_backup(path, _decode)
        if saved is not None:
            self.table.update(saved.subscription_group_table)
            self.data_version = saved.data_version
        log.info("%d subscription groups", len(self.table))

    def find(self, name: str, *, tell: bool = True) -> SubscriptionGroupConfig | None:
        """The group, made if it is new and may be; None if it may not (SUBSCRIPTION_GROUP_NOT_EXIST
        to a client). A name that is not legal never makes a group.

        The log hears of a new group only with `tell`. Raises Overloaded when there are enough.
        """
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
        most = self.most()
        if 0 < most <= len(self.table):
            raise Overloaded(GROUPS_SETTING, f"[OVERLOAD]group {name} is new, and there are {most}")
        group = SubscriptionGroupConfig(group_name=name)
        self.table[name] = group
        self.data_version = next_version(self.data_version)
        if tell:
            log.info("subscription group %s created", name)
        self.file.changed()
        return group

    async def update(self, group: SubscriptionGroupConfig) -> None:
        """Create a group or change it.

        Raises:
            OSError: it could not be saved; nothing has changed.
        """
        await self.update_all([group])

    async def update_all(self, groups: Sequence[SubscriptionGroupConfig]) -> None:
        """Create groups or change them, all or none.

        Raises:
            OSError: they could not be saved; nothing has changed.
        """
        old = dict(self.table)
        new = {group.group_name or "": group for group in groups}
        await self._change(lambda table: {**table, **new})
        for group in groups:
            log.info(
                "subscription group %s: %s -> %s",
                group.group_name,
                old.get(group.group_name),
                group,
            )

    async def delete(self, name: str, also: Callable[[], None] = lambda: None) -> bool:
        """Delete a group; returns whether there was one.

        `also` deletes what belongs to it, in the same turn of the loop: its next member makes the
        group anew, and what that commits stays.

        Raises:
            OSError: the change could not be saved; nothing has changed.
        """
        if name not in self.table:
            also()
            return False
        await self._change(lambda table: {n: g for n, g in table.items() if n != name}, also)
        log.info("subscription group %s deleted", name)
        return True

    def disable_consume(self, name: str) -> None:
        """Let a group consume no more; one that is far behind, for instance."""
        group = self.table.get(name)
        if group is not None and group.consume_enable:
            disabled = self.table[name] = copy(group)
            disabled.consume_enable = False
            self.data_version = next_version(self.data_version)
            self.file.changed()

    def wrapper(self) -> SubscriptionGroupWrapper:
        """All groups, as brokers and tools exchange them."""
        return SubscriptionGroupWrapper(
            subscription_group_table=self.table, data_version=self.data_version
        )

    def snapshot(self) -> SubscriptionGroupWrapper:
        """The same, as it is now: for a thread that encodes it while groups come and go."""
        return SubscriptionGroupWrapper(
            subscription_group_table=dict(self.table), data_version=self.data_version
        )

    async def save_pending(self) -> None:
        """Write the file, in a thread, if groups were made that are not in it. Raises OSError."""
        await self.file.save_pending()

    async def _change(
        self, change: Callable[[Table], Table], also: Callable[[], None] = lambda: None
    ) -> None:
        """As `Topics._change`. Raises OSError; nothing has changed then."""
        before, version = self.data_version, DataVersion()

        def encode() -> tuple[bytes, int]:
            nonlocal before, version
            before, version = self.data_version, next_version(self.data_version)
            return self._text.encode(change(self.table), version)

        def count() -> None:
            self.table = change(self.table)
            alone = self.data_version is before
            self.data_version = version if alone else next_version(self.data_version)
            also()

        await self.file.replace(encode, count)


def _decode(data: bytes) -> SubscriptionGroupWrapper:
    try:
        return SubscriptionGroupWrapper.decode(data)
    except RemoteProtocolError as error:
        raise ValueError(str(error)) from None
