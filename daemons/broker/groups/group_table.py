"""The subscription groups of a broker, kept in config/subscriptionGroup.json.

A group that is created implicitly, by a heartbeat or pull, is saved a little later. If a kill loses
it, the next heartbeat creates it again.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.roles import is_slave
from mq.daemons.broker.tables.saved_table import SavedTable
from mq.daemons.dispatch import Overloaded
from mq.daemons.state_file import read_body
from mq.protocol import attributes, names
from mq.protocol.bodies import DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper

log = logging.getLogger(__name__)

GROUPS_SETTING = "maxAutoCreatedGroups"


class Groups(SavedTable[SubscriptionGroupConfig]):
    """The subscription groups by name."""

    def __init__(self, path: Path, settings: BrokerSettings) -> None:
        self._settings = settings
        saved = read_body(path, SubscriptionGroupWrapper)
        super().__init__(
            path,
            "subscriptionGroupTable",
            {name: SubscriptionGroupConfig(group_name=name) for name in names.BUILT_IN_GROUPS},
            None if saved is None else (saved.subscription_group_table, saved.data_version),
            is_copy=lambda: is_slave(settings),
        )
        # Called with the name of a deleted group, in the same turn of the event loop.
        self.on_deleted: list[Callable[[str], None]] = []
        log.info("%d subscription groups", len(self.table))

    def find(self, name: str, *, tell: bool = True) -> SubscriptionGroupConfig | None:
        """Return the group; creates it if it is missing and may be created. None if it may not
        (SUBSCRIPTION_GROUP_NOT_EXIST to a client); an illegal name never creates a group.

        The creation is logged only with `tell`. Raises Overloaded at the limit of groups.
        """
        known = self.table.get(name)
        if known is not None:
            return known
        if not (
            self._settings.broker.auto_create_subscription_group or names.is_system_group(name)
        ):
            return None
        try:
            names.check_group(name)
        except names.IllegalName as error:
            log.warning("group not created: %s", error)
            return None
        most = self._settings.operation.max_auto_created_groups
        if 0 < most <= len(self.table):
            raise Overloaded(GROUPS_SETTING, f"[OVERLOAD]group {name} is new, and there are {most}")
        group = SubscriptionGroupConfig(group_name=name)
        self.table[name] = group
        if tell:
            log.info("subscription group %s created", name)
        self._changed()
        return group

    async def update(self, group: SubscriptionGroupConfig) -> None:
        """Create or change a group.

        Raises:
            OSError: it could not be saved; nothing has changed.
        """
        await self.update_all([group])

    async def update_all(self, groups: Sequence[SubscriptionGroupConfig]) -> None:
        """Create or change groups, all or none.

        The attributes of `groups` are changes (see `mq.protocol.attributes`).

        Raises:
            ValueError: an attribute is wrong.
            OSError: they could not be saved; nothing has changed.
        """
        for group in groups:
            known = self.table.get(group.group_name or "")
            current = None if known is None else known.attributes or {}
            attributes.check_changes(attributes.GROUP, current, group.attributes or {})
        old = dict(self.table)
        new = {group.group_name or "": group for group in groups}
        await self._change(lambda table: {**table, **_with_kept(table, new)})
        for group in groups:
            log.info(
                "subscription group %s: %s -> %s",
                group.group_name,
                old.get(group.group_name),
                group,
            )

    async def delete(self, name: str, also: Callable[[], None] = lambda: None) -> bool:
        """Delete a group; returns whether it existed.

        `also` deletes the group's other data, in the same turn of the event loop: the next member
        creates the group again, and that one's commits must stay.

        Raises:
            OSError: the change could not be saved; nothing has changed.
        """

        def deletion_counts() -> None:
            for callback in self.on_deleted:  # suspended pops of the group are dropped
                callback(name)
            also()

        deleted = await self._delete(name, deletion_counts, also)
        if deleted:
            log.info("subscription group %s deleted", name)
        return deleted

    def disable_consume(self, name: str) -> None:
        """Disable the consumption of a group, for instance one with too much lag."""
        group = self.table.get(name)
        if group is not None and group.consume_enable:
            disabled = self.table[name] = copy(group)
            disabled.consume_enable = False
            self._changed()

    async def take_copy(
        self, members: Mapping[str, SubscriptionGroupConfig], version: DataVersion
    ) -> None:
        """Replace the groups by those of this slave's master. Raises OSError; nothing has changed
        then.

        A group that this slave created for a consumer is created again by its next request.
        """
        await self.copy(members, version)
        log.info("groups of the master: %d, data version %d", len(members), version.counter)

    def wrapper(self) -> SubscriptionGroupWrapper:
        """All groups, in the form that brokers and tools exchange."""
        return SubscriptionGroupWrapper(
            subscription_group_table=self.table, data_version=self.data_version
        )

    def snapshot(self) -> SubscriptionGroupWrapper:
        """A copy of `wrapper`, for a thread that encodes it while groups change."""
        return SubscriptionGroupWrapper(
            subscription_group_table=dict(self.table), data_version=self.data_version
        )


def _with_kept(
    table: Mapping[str, SubscriptionGroupConfig], new: Mapping[str, SubscriptionGroupConfig]
) -> dict[str, SubscriptionGroupConfig]:
    """New groups with the attributes that they do not change taken from the existing ones."""
    found = {}
    for name, group in new.items():
        known = table.get(name)
        found[name] = copy(group)
        before = None if known is None else known.attributes
        found[name].attributes = attributes.apply_changes(before, group.attributes) or None
    return found
