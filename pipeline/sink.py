"""Sinks: tables and streams written to topics.

Rows are sent as they arrive: when a task has ended, all its messages are stored, and messages of a
task that failed and was repeated are stored twice. With exactlyOnce they are prepared instead (see
mq.pipeline.exactly_once), and consumers see them when the whole job or micro-batch has ended.

A task has several requests in flight, and retries those that fail. Rows with a queue keep their
order in it: for such a queue one request is in flight at a time, because brokers process several at
once. A failed request is sent again, to the same queue if its rows name it, otherwise to a queue of
another broker. It may have been stored before it failed: then its messages are stored twice, with
the same unique ids. If a broker does not accept batches of prepared messages, they are sent one by
one from then on.
"""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource
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
from mq.pipeline.sink_columns import SinkColumns
from mq.pipeline.sink_queues import QueueChoice, target_of
from mq.pipeline.write_options import WriteOptions
from mq.protocol.bodies import HeartbeatData, ProducerData
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.names import DEFAULT_TOPIC

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as ArrowStreamWriter
elif hasattr(datasource, "DataSourceStreamArrowWriter"):  # since Spark 4.1
    ArrowStreamWriter = datasource.DataSourceStreamArrowWriter
else:

    class ArrowStreamWriter(datasource.DataSourceArrowWriter, datasource.DataSourceStreamWriter):
        """For tasks Spark 4.0 checks only whether a writer takes Arrow batches, and for commits
        only whether it is a stream writer.
        """


import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from mq.client.errors import (
    ConnectError,
    FlowControl,
    RequestTimeout,
    SystemBusy,
)
from mq.pipeline.encoding import Outgoing
from mq.pipeline.errors import WriteFailed
from mq.pipeline.window import Completion, RequestWindow
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

WINDOW = 8  # batches in flight, of 256 KB: enough to keep every broker busy
WINDOW_OF_SINGLES = 64
_NO_BATCH = ResponseCode.MESSAGE_ILLEGAL

# A broker that refuses a request because it waited too long in the queue can accept more some
# milliseconds later. So the first pauses for it are short: each is twice as long as the previous
# one, and all of them together are as long as the option says. Only later failures count as
# retries.
_SHORT_PAUSES = 6

#: Called for each stored request, with its queue and the fields of the reply.
OnStored = Callable[[Outgoing, MessageQueue, dict[str, object]], None]

__all__ = ["ArrowStreamWriter"]

_QUERY_ID = "sql.streaming.queryId"  # a local property of Spark's, the same after a restart


class _Failures(NamedTuple):
    """How often a request has failed."""

    busy: int = 0  # times that a broker was too busy, up to the number of short pauses
    others: int = 0


class _Sent(NamedTuple):
    outgoing: Outgoing
    queue: MessageQueue
    failures: _Failures
    at: float  # of the monotonic clock


class Sender:
    """Sends requests; a context manager."""

    def __init__(
        self,
        session: BlockingSession,
        options: WriteOptions,
        queues: QueueChoice,
        on_stored: OnStored | None = None,
    ) -> None:
        self._options = options
        self._queues = queues
        self._on_stored = on_stored
        self._window: RequestWindow[_Sent] = RequestWindow(session, options.timeout)
        self._busy: set[MessageQueue] = set()
        self._resumed = 0.0  # when the last pause ended
        self._singly = False  # a broker has refused a batch of prepared messages

    def __enter__(self) -> "Sender":
        return self

    def __exit__(self, *exc: object) -> None:
        self._window.close()

    def send(self, outgoing: Outgoing) -> None:
        """Send a request as soon as there is room for it.

        Raises WriteFailed for this or an earlier request that failed permanently.
        """
        if self._singly and outgoing.ids:
            for single in outgoing.singles():
                self.send(single)
            return
        most = WINDOW_OF_SINGLES if outgoing.unique_id else WINDOW
        while len(self._window) >= most or outgoing.queue in self._busy:
            self._accept(self._window.next_completion())
        if outgoing.queue is not None:
            self._busy.add(outgoing.queue)
        self._send(outgoing, _Failures(), None)

    def finish(self) -> None:
        """Wait until all requests are stored. Raises WriteFailed."""
        for outcome in self._window.drain():
            self._accept(outcome)

    def _send(self, outgoing: Outgoing, failures: _Failures, avoid: str | None) -> None:
        while True:
            try:
                queue = outgoing.queue or self._queues.next(outgoing.topic, avoid)
                address = self._queues.target(outgoing.topic).addresses.get(queue.broker_name)
                if address is None:
                    raise RouteNotFound(queue.topic, f"no master {queue.broker_name} in its route")
            except (RouteNotFound, ConnectError, RequestTimeout) as error:
                failures = self._pause_for_retry(outgoing, failures, error, time.monotonic())
                continue
            command = outgoing.command(queue, self._window.next_opaque())
            sent = _Sent(outgoing, queue, failures, time.monotonic())
            self._window.send(address, command, sent)
            return

    def _accept(self, outcome: Completion[_Sent]) -> None:
        sent = outcome.token
        if sent.outgoing.ids and getattr(outcome.error, "code", None) == _NO_BATCH:
            self._singly = True
            if sent.outgoing.queue is not None:
                self._busy.discard(sent.queue)  # other requests wait until these are sent
            self.send(sent.outgoing)
            return
        if outcome.error is not None:
            failures = self._pause_for_retry(sent.outgoing, sent.failures, outcome.error, sent.at)
            self._send(sent.outgoing, failures, sent.queue.broker_name)
            return
        if sent.outgoing.queue is not None:
            self._busy.discard(sent.queue)
        if self._on_stored is not None:
            self._on_stored(sent.outgoing, sent.queue, outcome.fields)

    def _pause_for_retry(
        self, outgoing: Outgoing, failures: _Failures, error: MQError, sent_at: float
    ) -> _Failures:
        """Pause before a retry, and count it. Raises WriteFailed if no retry is left."""
        busy, others = failures
        if isinstance(error, SystemBusy | FlowControl) and busy < _SHORT_PAUSES:
            busy += 1
            pause = self._options.retry_pause / 2 ** (_SHORT_PAUSES + 1 - busy)
        else:
            others += 1
            self._check(outgoing, others, error)
            pause = self._options.retry_pause * 2 ** (others - 1)
        if sent_at >= self._resumed:  # otherwise it failed with others, for which there was a pause
            log.warning("rows for topic %s: retrying in %g s: %s", outgoing.topic, pause, error)
            if others > failures.others:
                self._queues.outdate(outgoing.topic)
            time.sleep(pause)
            self._resumed = time.monotonic()
        return _Failures(busy, others)

    def _check(self, outgoing: Outgoing, failed: int, error: MQError) -> None:
        """Raises WriteFailed for an error, after `failed` of them, that must not be retried."""
        what = f"{outgoing.rows} rows for topic {outgoing.topic}"
        if not error.retriable and not isinstance(error, RouteNotFound):
            raise WriteFailed(f"{what}: {error}") from None
        if failed > self._options.retries:
            raise WriteFailed(
                f"{what}: {failed} attempts failed: {error}. "
                "Start the broker, or retry longer: numRetries, retryIntervalMs, sendTimeoutMs"
            ) from None


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
