"""Sinks: tables and streams written to topics.

Rows are sent as they arrive: when a task has ended, all its messages are stored, and messages of a
task that failed and was repeated are stored twice. With exactlyOnce they are prepared instead (see
mq.pipeline.exactly_once), and consumers see them when the whole job or micro-batch has ended.
"""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from mq.client.errors import BrokerError, ClientError, MQError, RouteNotFound
from mq.client.transport.blocking import BlockingSession, run
from mq.pipeline.decisions import check_log
from mq.pipeline.declared import wrong
from mq.pipeline.encoding import Encoder, UniqueIds
from mq.pipeline.errors import ClusterAway, CommitFailed, KeyRefused, PipelineError, Unknown
from mq.pipeline.exactly_once import Transactions
from mq.pipeline.prepared import Halves, Prepared
from mq.pipeline.sending import Sender
from mq.pipeline.sink_columns import SinkColumns
from mq.pipeline.sink_queues import QueueChoice, target_of
from mq.pipeline.stream_writes import ArrowStreamWriter
from mq.pipeline.write_options import WriteOptions
from mq.protocol.bodies import HeartbeatData, ProducerData
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.names import DEFAULT_TOPIC

_QUERY_ID = "sql.streaming.queryId"  # a local property of Spark's, the same after a restart


@dataclass
class TaskCommit(WriterCommitMessage):
    """The result of a task's writes."""

    rows: int
    query: str | None = None  # the id of the streaming query
    prepared: list[Prepared] = field(default_factory=list)


class _Writer:
    """Base of the writers of tables and streams."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Raises SchemaError and OptionError for rows that cannot be written."""
        self._options = options
        self._columns = SinkColumns(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Write the rows of a task."""
        options = self._options
        halves = Halves() if options.exactly_once else None
        rows = 0
        with options.open_session(options.timeout) as session:
            queues = QueueChoice(session, options.topic)
            encoder = Encoder(self._columns, options, queues, UniqueIds(own_address()))
            with Sender(session, options, queues, None if halves is None else halves.add) as sender:
                for batch in iterator:
                    rows += batch.num_rows
                    for outgoing in encoder.requests(batch):
                        sender.send(outgoing)
                sender.finish()
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY_ID)
        prepared = [] if halves is None else halves.prepared(ordered=self._columns.ordered)
        return TaskCommit(rows, query, prepared)

    def _prepared(self, messages: list[WriterCommitMessage | None]) -> list[Prepared]:
        """Return the messages that the tasks have prepared; failed tasks have left no commit
        message.
        """
        return [
            each
            for message in messages
            if isinstance(message, TaskCommit)
            for each in message.prepared
        ]


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a table."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the prepared messages visible, now that all tasks have ended."""
        if self._options.exactly_once:
            with Transactions(self._options) as transactions:
                transactions.commit(self._prepared(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Discard the prepared messages, because a task has failed permanently."""
        if self._options.exactly_once:
            with Transactions(self._options) as transactions:
                transactions.roll_back(self._prepared(messages))


class StreamWriter(_Writer, ArrowStreamWriter):
    """Writes the micro-batches of a stream."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit a batch whose tasks have all ended. Spark commits a batch again after a restart if
        it does not know how it ended. Raises CommitFailed for rows of an unknown query.
        """
        if not self._options.exactly_once:
            return
        prepared = self._prepared(messages)
        query = self._query(messages)
        if query is None and prepared:
            raise CommitFailed(
                f"Spark does not report the query of batch {batchId} ({_QUERY_ID}), so it is "
                "unknown whether it was committed before; none of its rows is visible"
            )
        with Transactions(self._options) as transactions:
            if query is not None:
                transactions.commit_once(query, batchId, prepared)
            elif not batchId:
                transactions.open_log()  # the batch has no tasks; later batches need the log

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Roll back after a task has failed permanently, or `commit` has, whose decision is
        kept.
        """
        if not self._options.exactly_once:
            return
        prepared = self._prepared(messages)
        query = self._query(messages)
        with Transactions(self._options) as transactions:
            if query is None:
                transactions.roll_back(prepared)  # `commit` has refused it
            else:  # `commit` was tried if every task has succeeded
                tried = all(isinstance(message, TaskCommit) for message in messages)
                transactions.abort(query, batchId, prepared, tried=tried)

    def _query(self, messages: list[WriterCommitMessage | None]) -> str | None:
        """Return the query of this batch; None unless all tasks with prepared messages agree."""
        written = [message for message in messages if isinstance(message, TaskCommit)]
        found = {each.query for each in written if each.prepared} or {
            each.query for each in written if each.query is not None
        }
        return found.pop() if len(found) == 1 else None


def check_target(options: WriteOptions, *, in_batches: bool = False) -> None:
    """Check in the driver whether the topic is writable, `in_batches` of a stream.

    Raises OptionError if no name server answers, for topics that do not exist and cannot be
    created, and for access keys that a broker refuses.
    """
    with options.open_session(options.timeout) as session:
        topic = options.topic or DEFAULT_TOPIC
        try:
            target = target_of(session, topic)
        except RouteNotFound as error:
            if options.topic is not None:
                raise wrong(WriteOptions, "topic", str(error), Unknown) from None
            target = None  # rows may name existing topics
        except MQError as error:
            raise wrong(WriteOptions, "nameServer", str(error), ClusterAway) from None
        if target is not None:
            _try_key(options, session, next(iter(target.addresses.values())))
        if in_batches and options.exactly_once:
            check_log(session, options)


def _try_key(options: WriteOptions, session: BlockingSession, address: str) -> None:
    """Check the access key by a heartbeat, which needs no permission."""
    client = f"{own_address()}@{os.getpid()}#spark"
    heartbeat = HeartbeatData(
        client_id=client,
        producer_data_set=[ProducerData(group_name=f"{options.group}_check")],
        consumer_data_set=[],
    )
    try:
        run(session.call(address, Command(RequestCode.HEART_BEAT, None, heartbeat.encode())))
    except BrokerError as error:
        raise wrong(WriteOptions, "aclFile", str(error), KeyRefused) from None
    except (MQError, ClientError):
        return  # tasks retry with a broker that is unavailable


def refuse_overwrite() -> None:
    """Raises PipelineError, because topics only grow."""
    raise PipelineError('a topic cannot be overwritten, only appended to: .mode("append")')


def own_address() -> str:
    """Return an IPv4 address of this machine, for the ids of messages; 127.0.0.1 if it has no
    other.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; a network for documentation
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address
