"""Exactly-once writes, even if processes die: prepared by tasks, committed by the driver.

Tasks send half messages of transactions, which no consumer sees. The driver makes visible those of
the task attempts that Spark has accepted, and no others: messages that a killed executor, a second
attempt or an aborted job has prepared are rolled back, or forgotten by their broker in time.

The commit of a stream's batch consists of many small ones, and Spark repeats a batch if the driver
dies before all of it is in the checkpoint. So the driver first stores what it is about to commit
(mq.pipeline.decisions). A driver that finds such a decision finishes it, and rolls back what the
repeated tasks have prepared. To find out which of the messages are visible already it reads their
topics, from their ends at the decision on. docs/decisions/0022 has the limits.
"""

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from pyspark.sql.types import StringType, StructType

from mq.client.errors import BrokerError, MQError
from mq.client.transport.blocking import run
from mq.pipeline.cluster import Bounds, Cluster
from mq.pipeline.decisions import DecisionLog, Writer
from mq.pipeline.errors import BrokerDown, CommitFailed, DataLoss
from mq.pipeline.offsets import Offsets, Queue
from mq.pipeline.options import ReadOptions
from mq.pipeline.planning import ranges
from mq.pipeline.prepared import NO_QUEUE, Prepared, are_same
from mq.pipeline.reading import Partition, read
from mq.pipeline.window import RequestWindow
from mq.pipeline.write_options import WriteOptions
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.flags import SysFlag
from mq.protocol.headers.transaction import ENDED, EndTransactionRequestHeader

log = logging.getLogger(__name__)

_IN_FLIGHT = 128  # requests, and the half messages that they name
_HALVES_IN_FLIGHT = 4096
_HALVES_PER_REQUEST = 256  # the most that one of our brokers ends in one turn
# After the death of a driver its last requests may still be in progress, and their messages may not
# be readable at once.
_SETTLE_SECONDS = 3.0

_MESSAGE_ID = StructType().add("msgId", StringType())


class Transactions:
    """Ends the transactions that tasks have prepared; a context manager."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._session = options.open_session(options.timeout)

    def __enter__(self) -> "Transactions":
        return self

    def __exit__(self, *exc: object) -> None:
        self._session.close()

    def commit(self, prepared: Sequence[Prepared]) -> None:
        """Make messages visible. Raises CommitFailed if that fails for any of them."""
        self._finish(prepared, self._ends(prepared), fresh=True)

    def commit_once(self, query: str, batch: int, prepared: Sequence[Prepared]) -> None:
        """Make the messages of a batch visible, unless an earlier attempt has committed the batch:
        then finish that one. Raises CommitFailed if this fails, or if another writer has
        committed it.
        """
        decisions = DecisionLog(self._session, self._options, batch)
        decision = decisions.find(query, batch)
        if decision is None:
            if not any(prepared):
                return
            decision = decisions.decide(query, batch, self._ends(prepared), prepared)
            fresh = are_same(decision.prepared, prepared)
        else:
            fresh = False
        decision.check(query, batch, Writer.of(self._options))
        if not fresh:
            log.warning("batch %d of query %s was committed before; finishing it", batch, query)
            _compare(query, batch, decision.prepared, prepared)
            self.roll_back(prepared)
        self._finish(decision.prepared, decision.ends, fresh=fresh)

    def open_log(self) -> None:
        """Create the decision log if it is absent. Raises OptionError."""
        DecisionLog(self._session, self._options, 0)

    def abort(
        self, query: str, batch: int, prepared: Sequence[Prepared], *, tried: bool = False
    ) -> None:
        """Roll messages back, unless a decision to commit them exists: then they are committed when
        the query is restarted.

        If a commit was `tried`, its decision may be on its way: a broker that has not answered in
        time may store it later, and messages rolled back by then could never be made visible.
        """
        try:
            decision = DecisionLog(self._session, self._options, batch).find(query, batch)
        except (MQError, CommitFailed) as error:
            log.warning("batch %d of query %s is not rolled back: %s", batch, query, error)
            return
        if decision is None and tried:
            log.warning(
                "batch %d of query %s is not rolled back: it may be committed", batch, query
            )
        elif decision is None or not are_same(decision.prepared, prepared):
            self.roll_back(prepared)

    def roll_back(self, prepared: Iterable[Prepared]) -> None:
        """Discard prepared messages. Failures are logged: brokers forget uncommitted messages."""
        failed, error = self._end(prepared, SysFlag.TRANSACTION_ROLLBACK)
        if failed:
            log.warning("%d messages are not rolled back: %s", _count(failed), error)

    # committing -----------------------------------------------------------------------------------

    def _finish(self, prepared: Sequence[Prepared], ends: Offsets, *, fresh: bool) -> None:
        missing = list(prepared)
        pause = _SETTLE_SECONDS
        if not fresh:
            time.sleep(_SETTLE_SECONDS)
            missing = self._missing(missing, ends)
        for tries_left in range(self._options.retries, -1, -1):
            failed, error = self._end(missing, SysFlag.TRANSACTION_COMMIT)
            if not failed:
                return
            log.warning("%d messages are not committed yet: %s", _count(failed), error)
            time.sleep(pause)
            for topic in {each.topic for each in failed}:
                self._session.outdate_route(topic)
            missing = self._missing(failed, ends)
            if not missing:
                return
            pause = max(pause, self._options.retry_pause)
            if not tries_left or (isinstance(error, BrokerError) and not error.retriable):
                break
        raise CommitFailed(
            f"{_count(missing)} of {_count(prepared)} messages could not be made visible, the "
            f"others are: {error}. A broker that lost or has given up prepared messages "
            "(transactionCheckMax) cannot commit them"
        )

    def _ends(self, prepared: Iterable[Prepared]) -> Offsets:
        """Return the current ends of the topics."""
        bounds = self._bounds((each.topic, each.broker_name) for each in prepared)
        return {queue: at.end for queue, at in bounds.items()}

    def _bounds(self, places: Iterable[tuple[str, str]]) -> dict[Queue, Bounds]:
        """Return the bounds of topics at some brokers. Raises CommitFailed for an absent one, after
        retries: messages at a broker that is unavailable, or not yet at its replica, are not
        missing.
        """
        brokers: dict[str, set[str]] = {}
        for topic, broker_name in places:
            brokers.setdefault(topic, set()).add(broker_name)
        options = self._reading(brokers)
        with Cluster(options, answered=True) as cluster:
            try:
                for tries in range(options.retries + 1):
                    if tries:
                        time.sleep(self._options.retry_pause * 2 ** (tries - 1))
                    found = cluster.bounds(options.topics, brokers)
                    if not any(at.of_replica for at in found.values()):
                        return found
                where = (
                    f"the master of a broker of topic {', '.join(options.topics)} is unavailable"
                )
            except BrokerDown as error:
                where = f"broker {error.broker_name} of topic {error.topic} does not answer"
            except DataLoss as error:
                where = error.what
        raise CommitFailed(f"{where}: unknown what is visible there; start it first")

    def _missing(self, prepared: Sequence[Prepared], ends: Offsets) -> list[Prepared]:
        """Return the prepared messages that are not visible in their topics."""
        options = self._reading({each.topic for each in prepared})
        bounds = self._bounds({(each.topic, each.broker_name) for each in prepared})
        now = {queue: at.end for queue, at in bounds.items()}
        begins = {queue: max(ends.get(queue, 0), bounds[queue].begin) for queue in now}
        seen = {
            message_id
            for each in ranges(begins, now)
            for batch in read(options, _MESSAGE_ID, Partition((each,)))
            for message_id in batch.column(0).to_pylist()
        }
        return [left for each in prepared if len(left := each.without(seen))]

    def _reading(self, topics: Iterable[str]) -> ReadOptions:
        """Return options to read the topics, to find out what is visible there."""
        options = self._options
        return ReadOptions(
            name_server=options.name_server,
            access_key=options.access_key,
            tls=options.tls,
            tls_properties=options.tls_properties,
            topics=tuple(sorted(topics)),
            timeout_ms=options.timeout_ms,
            retries=options.retries,
            retry_pause_ms=options.retry_pause_ms,
        )

    # requests -------------------------------------------------------------------------------------

    def _end(self, prepared: Iterable[Prepared], how: int) -> tuple[list[Prepared], MQError | None]:
        """End transactions, those of a queue one after the other. Returns those not known to have
        ended, with the last error.

        A request names several half messages. A broker that ignores its body (Java's or an older
        one) ends only the first one, and a broker that cannot end one does not try the next ones.
        The rest is sent again, so that each error is about the first half message of its request.
        """
        failed: list[Prepared] = []
        last: MQError | None = None
        in_flight = 0
        window: RequestWindow[Prepared] = RequestWindow(self._session, self._options.timeout)
        try:
            waiting = deque(_lines(prepared))
            while waiting or len(window):
                while waiting and len(window) < _IN_FLIGHT and in_flight < _HALVES_IN_FLIGHT:
                    line = waiting.popleft()
                    try:
                        in_flight += self._send_next(window, line, how)
                    except MQError as error:  # its broker is in no route
                        last = error
                        failed.append(line)
                if not len(window):
                    break
                outcome = window.next_completion()
                line = outcome.token
                in_flight -= min(len(line), _HALVES_PER_REQUEST)
                if outcome.error is None:
                    waiting += _left(line, outcome.fields)
                    continue
                last = outcome.error
                if isinstance(last, BrokerError) and line.queue_id == NO_QUEUE:
                    failed.append(line.part(0, 1))
                    waiting += [line.part(1)] if len(line) > 1 else []
                else:  # the state of all is unknown; or later ones must not overtake the first
                    failed.append(line)
        finally:
            window.close()
        return failed, last

    def _send_next(self, window: "RequestWindow[Prepared]", line: Prepared, how: int) -> int:
        """Send the first half messages of a line; returns how many."""
        named = line.part(0, _HALVES_PER_REQUEST)
        half = next(named.halves())
        header = EndTransactionRequestHeader(
            producer_group=self._options.group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical,
            commit_or_rollback=how,
            msg_id=half.unique_id,
            transaction_id=half.unique_id,
            topic=half.topic,
            broker=half.broker_name,
        )
        body = named.part(1).places()
        opaque = window.next_opaque()
        command = Command(RequestCode.END_TRANSACTION, header.encode(), body, opaque=opaque)
        address = run(self._session.master_address(half.topic, half.broker_name))
        window.send(address, command, line)
        return len(named)


def _compare(query: str, batch: int, before: Iterable[Prepared], now: Iterable[Prepared]) -> None:
    """Log if a batch has a different number of rows than the committed batch of this number.

    Spark repeats a batch with the same rows, unless its checkpoint has forgotten the batch, or the
    query returns other rows each time; the latter is harmless.
    """
    were, are = _count(before), _count(now)
    if were != are:
        log.warning(
            "batch %d of query %s was committed with %d rows, and has %d now, which are discarded. "
            "If its checkpoint was restored from a backup, rows are missing: see "
            "docs/jobs/exactly-once-checkpoints.md",
            *(batch, query, were, are),
        )


def _count(prepared: Iterable[Prepared]) -> int:
    return sum(map(len, prepared))


def _lines(prepared: Iterable[Prepared]) -> Iterator[Prepared]:
    """Group messages into lines: one for each queue if their order counts, else one per request."""
    for (topic, broker_name, queue_id), group in groupby(prepared, lambda each: each[:3]):
        whole = Prepared(topic, broker_name, queue_id, b"".join(each.packed for each in group))
        step = _HALVES_PER_REQUEST if queue_id == NO_QUEUE else max(len(whole), 1)
        for start in range(0, len(whole), step):
            yield whole.part(start, start + step)


def _left(line: Prepared, answer: Mapping[str, object]) -> Iterable[Prepared]:
    """Return the rest of a line after a request for its first half messages has succeeded."""
    text = str(answer.get(ENDED, ""))
    ended = int(text) if text.isdecimal() and len(text) < 5 else 0
    left = line.part(max(ended, 1))
    if not len(left):
        return ()
    # If each request ends one message only, many have to be in flight at once.
    if ended or line.queue_id != NO_QUEUE:
        return (left,)
    return [left.part(at, at + 1) for at in range(len(left))]
