"""The epochs of the log, as getBrokerEpoch of 5.x requests them."""

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.replication.epochs import NO_END, Epochs
from mq.daemons.broker.replication.master import HaMaster
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol.bodies import EpochEntry, EpochEntryCache
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
