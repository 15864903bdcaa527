"""The broker's settings and statistics."""

import logging
from collections.abc import Callable, Mapping

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.roles import is_slave
from mq.daemons.broker.statistics.day_totals import DayTotals
from mq.daemons.broker.statistics.runtime_info import runtime_info_of
from mq.daemons.broker.statistics.stat_items import StatItems
from mq.daemons.broker.statistics.stats import BrokerStats
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.channel import Channel
from mq.daemons.config_requests import reply_to_update, update_settings
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol.bodies import KVTable
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.broker import (
    ExportRocksDBConfigToJsonRequestHeader,
    GetBrokerConfigResponseHeader,
    ViewBrokerStatsDataRequestHeader,
)

log = logging.getLogger(__name__)


class ConfigHandlers:
    """Shows and changes settings."""

    def __init__(self, settings: BrokerSettings, topics: Topics) -> None:
        self._settings = settings
        self._topics = topics

    @serves(RequestCode.GET_BROKER_CONFIG)
    def get(self, command: Command, channel: Channel) -> Command:
        """All settings as a .properties text."""
        fields = GetBrokerConfigResponseHeader(version=self._settings.version_json()).encode()
        return command.reply(fields=fields, body=self._settings.text().encode())

    @serves(RequestCode.UPDATE_BROKER_CONFIG)
    async def update(self, command: Command, channel: Channel) -> Command:
        """Change settings, all or none; some take effect at the next start."""
        update = update_settings(self._settings, command, channel)
        if "brokerPermission" in update.changed and not is_slave(self._settings):
            await self._topics.next_version()  # name servers show topics with this permission
        return reply_to_update(command, update)

    @serves(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON)
    def export_to_json(self, command: Command, channel: Channel) -> Command:
        """Export settings from RocksDB as JSON. Does nothing: this broker keeps all of them as
        JSON.
        """
        command.read_header(ExportRocksDBConfigToJsonRequestHeader)
        return command.reply()


class StatsHandlers:
    """Reports statistics. ``info`` returns the values that other tasks of the broker report."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        stats: BrokerStats,
        days: DayTotals,
        items: StatItems,
        info: Callable[[], Mapping[str, str]],
    ) -> None:
        self._settings = settings
        self._store = store
        self._stats = stats
        self._days = days
        self._items = items
        self._info = info

    @serves(RequestCode.GET_BROKER_RUNTIME_INFO)
    def runtime_info(self, command: Command, channel: Channel) -> Command:
        """State and statistics of the running broker."""
        table = runtime_info_of(self._settings, self._store, self._stats, self._days)
        table.update(self._info())
        return command.reply(body=KVTable(table=table).encode())

    @serves(RequestCode.VIEW_BROKER_STATS_DATA)
    def view_stats(self, command: Command, channel: Channel) -> Command:
        """One item over the last minute, hour and day."""
        header = command.read_header(ViewBrokerStatsDataRequestHeader)
        data = self._items.view(header.stats_name, header.stats_key)
        if data is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        return command.reply(body=data.encode())
