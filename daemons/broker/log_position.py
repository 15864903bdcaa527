"""Log position: how far a broker's log reaches, by which controllers elect among in-sync
replicas."""

from pathlib import Path
from typing import NamedTuple

from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.replication.epochs import decode
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.checkpoint import Checkpoint
from mq.daemons.broker.store.recovery import machine_has_crashed
from mq.daemons.broker.store_config import FlushDiskType
from mq.daemons.state_file import read_with_backup


class LogPosition(NamedTuple):
    """The epoch of the last record, the end of the log, and the confirm offset; -1 for unknown
    values.
    """

    epoch: int
    max_offset: int
    confirm_offset: int


NOTHING = LogPosition(-1, -1, -1)


def position_on_disk(settings: BrokerSettings) -> LogPosition:
    """The log position of a broker that has not started yet, from what is certainly on its disk;
    the log may reach further. Runs in a thread. Raises OSError.
    """
    checkpoint = Checkpoint(Path(settings.store.store_path_root_dir) / layout.CHECKPOINT_FILE)
    checkpoint.load()
    end = checkpoint.safe_offset
    epochs = read_with_backup(settings.store.epoch_path, decode) or []
    there = [epoch.number for epoch in epochs if epoch.start <= end]
    if not there:
        return NOTHING
    return LogPosition(there[-1], end, min(end, checkpoint.confirm_offset))


def may_have_lost_its_end(settings: BrokerSettings) -> bool:
    """Whether a broker that has not started yet may lack acknowledged messages that other in-sync
    replicas have, because its machine crashed before they were flushed. Runs in a thread. Raises
    OSError.
    """
    store = settings.store
    is_flushed = store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    if is_flushed or not store.all_ack_in_sync_state_set:
        return False
    return machine_has_crashed(Path(store.store_path_root_dir))


def position_of(broker: Broker) -> LogPosition:
    """The log position of a running broker."""
    replication = broker.replication
    return LogPosition(
        replication.last_epoch, broker.stores.messages.log.written, replication.confirmed
    )
