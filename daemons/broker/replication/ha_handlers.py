"""Replication state, as haStatus of 5.x requests it."""

from mq.client.machine import clock
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.replication.epochs import NO_END, Epochs
from mq.daemons.broker.replication.master import HaMaster
from mq.daemons.broker.replication.slave import HaSlave
from mq.daemons.broker.replication.slave_connection import SlaveConnection
from mq.daemons.broker.replication.sync_state import SyncState
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol.bodies import (
    EpochEntry,
    EpochEntryCache,
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command


class EpochHandlers:
    """Lists the epochs of the log; ``epochs`` is None without controllers."""

    def __init__(self, settings: BrokerSettings, master: HaMaster, epochs: Epochs | None) -> None:
        self._settings = settings
        self._master = master
        self._epochs = epochs

    @serves(RequestCode.GET_BROKER_EPOCH_CACHE)
    def epochs(self, command: Command, channel: Channel) -> Command:
        """List all epochs with their start and end offsets
        (AdminBrokerProcessor.getBrokerEpochCache).
        """
        if self._epochs is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, "this request only for controllerMode "
            )  # Java's text, with its trailing blank
        found, broker = self._epochs.all, self._settings.broker
        ends = [*(epoch.start for epoch in found[1:]), NO_END]
        body = EpochEntryCache(
            cluster_name=broker.broker_cluster_name,
            broker_name=broker.broker_name,
            broker_id=broker.broker_id,
            epoch_list=[
                EpochEntry(epoch=epoch.number, start_offset=epoch.start, end_offset=end)
                for epoch, end in zip(found, ends, strict=False)
            ],
            max_offset=self._master.log.written,
        )
        return command.reply(body=body.encode())


class HaHandlers:
    """Reports the state of slaves and of the master."""

    def __init__(
        self,
        settings: BrokerSettings,
        master: HaMaster,
        slave: HaSlave | None,
        state: SyncState | None = None,
    ) -> None:
        self._settings = settings
        self._master = master
        self._slave = slave
        self._state = state

    @serves(RequestCode.GET_BROKER_HA_STATUS)
    def status(self, command: Command, channel: Channel) -> Command:
        """Report each connected slave, and the data received from the master."""
        master = self._master
        connections = [
            HAConnectionRuntimeInfo(
                addr=slave.remote,
                slave_ack_offset=max(slave.acked, 0),
                diff=slave.lag,
                in_sync=self._is_in_sync(slave),
                transferred_byte_in_second=int(slave.rate),
                transfer_from_where=max(slave.next, 0),
            )
            for slave in master.slaves
        ]
        info = HARuntimeInfo(
            master=self._slave is None,
            master_commit_log_max_offset=master.log.written,
            in_sync_slave_nums=sum(one.in_sync for one in connections),
            ha_connection_info=connections,
            ha_client_runtime_info=self._of_slave(),
        )
        return command.reply(body=info.encode())

    def _is_in_sync(self, slave: SlaveConnection) -> bool:
        if self._state is not None:
            return self._state.has(slave)
        limit = self._settings.store.ha_slave_fallbehind_max
        return slave.acked >= 0 and slave.lag < limit

    def _of_slave(self) -> HAClientRuntimeInfo:
        slave = self._slave
        if slave is None:
            return HAClientRuntimeInfo()
        connection = slave.connection
        info = HAClientRuntimeInfo(
            master_addr=slave.master,
            max_offset=self._master.log.written,
            master_flush_offset=slave.master_flush_offset,
        )
        if connection is not None:
            epoch = clock.milliseconds() - int(clock.monotonic() * 1000)
            info.last_read_timestamp = epoch + int(connection.read_at * 1000)
            info.last_write_timestamp = epoch + int(connection.wrote_at * 1000)
            info.transferred_byte_in_second = int(connection.rate)
        return info
