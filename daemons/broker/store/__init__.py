"""The store of a broker: commit log, consume queues and index, on disk as Java's.

The names that the rest of the program may use are exported here, and those of the offline tools in
`tools`; each is imported on first use. `layout` is the one module that others may import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mq.daemons.broker.store.checkpoint import Checkpoint as Checkpoint
    from mq.daemons.broker.store.errors import STORED_ALL_THE_SAME as STORED_ALL_THE_SAME
    from mq.daemons.broker.store.errors import Damage as Damage
    from mq.daemons.broker.store.errors import QueuesLeft as QueuesLeft
    from mq.daemons.broker.store.errors import StoreError as StoreError
    from mq.daemons.broker.store.errors import StoreLoadError as StoreLoadError
    from mq.daemons.broker.store.errors import StoreLocked as StoreLocked
    from mq.daemons.broker.store.errors import StoreRefused as StoreRefused
    from mq.daemons.broker.store.index.index import key_hash as key_hash
    from mq.daemons.broker.store.index.key_query import query_by_key as query_by_key
    from mq.daemons.broker.store.lock import StoreLock as StoreLock
    from mq.daemons.broker.store.lock import is_in_use as is_in_use
    from mq.daemons.broker.store.log.append import Appender as Appender
    from mq.daemons.broker.store.log.batch import Batch as Batch
    from mq.daemons.broker.store.log.batch import BatchedMessage as BatchedMessage
    from mq.daemons.broker.store.log.batch import Extend as Extend
    from mq.daemons.broker.store.log.batch import OnStored as OnStored
    from mq.daemons.broker.store.log.batch import Origin as Origin
    from mq.daemons.broker.store.log.batch import call as call
    from mq.daemons.broker.store.log.batch import log_failure as log_failure
    from mq.daemons.broker.store.log.batch import wake as wake
    from mq.daemons.broker.store.log.commit_log import CommitLog as CommitLog
    from mq.daemons.broker.store.log.commit_log import record_store_host as record_store_host
    from mq.daemons.broker.store.log.flush import Flusher as Flusher
    from mq.daemons.broker.store.log.mapped_file import LogReader as LogReader
    from mq.daemons.broker.store.log.mapped_file import MappedFile as MappedFile
    from mq.daemons.broker.store.log.mapped_file import data_end as data_end
    from mq.daemons.broker.store.log.records import Record as Record
    from mq.daemons.broker.store.log.records import keys_of as keys_of
    from mq.daemons.broker.store.log.records import queue_tags_code as queue_tags_code
    from mq.daemons.broker.store.log.residency import NotInMemory as NotInMemory
    from mq.daemons.broker.store.log.residency import Residency as Residency
    from mq.daemons.broker.store.log.residency import UnreadableLog as UnreadableLog
    from mq.daemons.broker.store.message_store import SLAVE_CAUSE as SLAVE_CAUSE
    from mq.daemons.broker.store.message_store import MessageStore as MessageStore
    from mq.daemons.broker.store.queue.confirm_offset import ConfirmOffset as ConfirmOffset
    from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue as ConsumeQueue
    from mq.daemons.broker.store.queue.extension import Unit as Unit
    from mq.daemons.broker.store.queue.queues import Queues as Queues
    from mq.daemons.broker.store.recovery.known_topics import check_rocksdb as check_rocksdb
    from mq.daemons.broker.store.recovery.quarantine import keep_file as keep_file
    from mq.daemons.broker.store.recovery.quarantine import keep_part as keep_part
    from mq.daemons.broker.store.recovery.recovery import machine_has_crashed as machine_has_crashed
    from mq.daemons.broker.store.recovery.truncation import cut_end as cut_end
    from mq.daemons.broker.store.replica.replica import NotReplicated as NotReplicated
    from mq.daemons.broker.store.replica.replica import Replica as Replica
    from mq.daemons.broker.store.replica.replica import UnknownTopic as UnknownTopic
    from mq.daemons.broker.store.retention import used_ratio as used_ratio
    from mq.daemons.broker.store.store_times import Boundary as Boundary
    from mq.daemons.broker.store.store_times import earliest_store_time as earliest_store_time
    from mq.daemons.broker.store.store_times import nearest_offset as nearest_offset
    from mq.daemons.broker.store.store_times import offset_by_boundary as offset_by_boundary
    from mq.daemons.broker.store.store_times import store_time as store_time

_MODULE_OF = {
    "Appender": "mq.daemons.broker.store.log.append",
    "Batch": "mq.daemons.broker.store.log.batch",
    "BatchedMessage": "mq.daemons.broker.store.log.batch",
    "Boundary": "mq.daemons.broker.store.store_times",
    "Checkpoint": "mq.daemons.broker.store.checkpoint",
    "CommitLog": "mq.daemons.broker.store.log.commit_log",
    "ConfirmOffset": "mq.daemons.broker.store.queue.confirm_offset",
    "ConsumeQueue": "mq.daemons.broker.store.queue.consume_queue",
    "Damage": "mq.daemons.broker.store.errors",
    "Extend": "mq.daemons.broker.store.log.batch",
    "Flusher": "mq.daemons.broker.store.log.flush",
    "LogReader": "mq.daemons.broker.store.log.mapped_file",
    "MappedFile": "mq.daemons.broker.store.log.mapped_file",
    "MessageStore": "mq.daemons.broker.store.message_store",
    "NotInMemory": "mq.daemons.broker.store.log.residency",
    "NotReplicated": "mq.daemons.broker.store.replica.replica",
    "OnStored": "mq.daemons.broker.store.log.batch",
    "Origin": "mq.daemons.broker.store.log.batch",
    "Queues": "mq.daemons.broker.store.queue.queues",
    "QueuesLeft": "mq.daemons.broker.store.errors",
    "Record": "mq.daemons.broker.store.log.records",
    "Replica": "mq.daemons.broker.store.replica.replica",
    "Residency": "mq.daemons.broker.store.log.residency",
    "SLAVE_CAUSE": "mq.daemons.broker.store.message_store",
    "STORED_ALL_THE_SAME": "mq.daemons.broker.store.errors",
    "StoreError": "mq.daemons.broker.store.errors",
    "StoreLoadError": "mq.daemons.broker.store.errors",
    "StoreLock": "mq.daemons.broker.store.lock",
    "StoreLocked": "mq.daemons.broker.store.errors",
    "StoreRefused": "mq.daemons.broker.store.errors",
    "Unit": "mq.daemons.broker.store.queue.extension",
    "UnknownTopic": "mq.daemons.broker.store.replica.replica",
    "UnreadableLog": "mq.daemons.broker.store.log.residency",
    "call": "mq.daemons.broker.store.log.batch",
    "check_rocksdb": "mq.daemons.broker.store.recovery.known_topics",
    "cut_end": "mq.daemons.broker.store.recovery.truncation",
    "data_end": "mq.daemons.broker.store.log.mapped_file",
    "earliest_store_time": "mq.daemons.broker.store.store_times",
    "is_in_use": "mq.daemons.broker.store.lock",
    "keep_file": "mq.daemons.broker.store.recovery.quarantine",
    "keep_part": "mq.daemons.broker.store.recovery.quarantine",
    "key_hash": "mq.daemons.broker.store.index.index",
    "keys_of": "mq.daemons.broker.store.log.records",
    "log_failure": "mq.daemons.broker.store.log.batch",
    "machine_has_crashed": "mq.daemons.broker.store.recovery.recovery",
    "nearest_offset": "mq.daemons.broker.store.store_times",
    "offset_by_boundary": "mq.daemons.broker.store.store_times",
    "query_by_key": "mq.daemons.broker.store.index.key_query",
    "queue_tags_code": "mq.daemons.broker.store.log.records",
    "record_store_host": "mq.daemons.broker.store.log.commit_log",
    "store_time": "mq.daemons.broker.store.store_times",
    "used_ratio": "mq.daemons.broker.store.retention",
    "wake": "mq.daemons.broker.store.log.batch",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value
