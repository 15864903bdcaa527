"""The broker's own settings and figures."""

import logging
from collections.abc import Callable, Mapping

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.day_totals import DayTotals
from mq.daemons.broker.delay import DelayedMessages
from mq.daemons.broker.runtime_info import runtime_info_of
from mq.daemons.broker.stat_items import StatItems
from mq.daemons.broker.stats import BrokerStats
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.topics import Topics
from mq.daemons.channel import Channel
from mq.daemons.config import ConfigError, NotUpdatable
from mq.daemons.dispatch import Handler, Refused
from mq.daemons.properties import read_update
from mq.protocol.bodies import KVTable
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.broker import (
    ExportRocksDBConfigToJsonRequestHeader,
    GetBrokerConfigResponseHeader,
    ViewBrokerStatsDataRequestHeader,
)

log = logging.getLogger(__name__)


def handlers(
    settings: BrokerSettings,
    topics: Topics,
    store: MessageStore,
    stats: BrokerStats,
    days: DayTotals,
    delayed: DelayedMessages,
    items: StatItems,
    own_work: Callable[[], Mapping[str, str]] = dict,
) -> dict[int, Handler]:
    """The table of this subject. ``own_work`` gives figures of the broker's own tasks."""

    def get(command: Command, channel: Channel) -> Command:
        """All settings as a .properties text."""
        fields = GetBrokerConfigResponseHeader(version=settings.version_json()).encode()
        return command.reply(fields=fields, body=settings.text().encode())

    async def update(command: Command, channel: Channel) -> Command:
        """Change settings of the allow list, all or none."""
        try:
            changed = settings.update(read_update(command.body))
        except NotUpdatable as error:
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from None
        except (ConfigError, ValueError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        log.info("%s changed settings: %s", channel.remote, ", ".join(sorted(changed)) or "none")
        if "brokerPermission" in changed:
            await topics.next_version()  # name servers show topics with this permission
        return command.reply()

    def runtime_info(command: Command, channel: Channel) -> Command:
        """Figures of the running broker."""
        table = runtime_info_of(settings, store, stats, days)
        table.update(delayed.running_info())
        table.update(own_work())
        return command.reply(body=KVTable(table=table).encode())

    def view_stats(command: Command, channel: Channel) -> Command:
        """One figure over the last minute, hour and day."""
        header = command.read_header(ViewBrokerStatsDataRequestHeader)
        data = items.view(header.stats_name, header.stats_key)
        if data is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        return command.reply(body=data.encode())

    def export_to_json(command: Command, channel: Channel) -> Command:
        """Write settings as JSON that are kept in RocksDB: here all of them are JSON already."""
        command.read_header(ExportRocksDBConfigToJsonRequestHeader)
        return command.reply()

    return {
        RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: export_to_json,
        RequestCode.VIEW_BROKER_STATS_DATA: view_stats,
        RequestCode.GET_BROKER_CONFIG: get,
        RequestCode.UPDATE_BROKER_CONFIG: update,
        RequestCode.GET_BROKER_RUNTIME_INFO: runtime_info,
    }
