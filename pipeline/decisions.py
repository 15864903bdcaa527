"""Decision log of exactly-once writes: which micro-batches are committed, in a topic of its own.

A decision names a batch of a query, the messages to make visible, and the end of each of their
topics before the commit. It is the point of commit: once it is stored the batch counts, no matter
which process dies then. If there are several decisions about a batch, the first one counts. A
decision also names its writer, because a query whose checkpoint was copied has the same id and the
same batches.

The log has one queue at one broker, so that there is one order. Its records, by tag:

    P<query id>  a part: prepared messages (mq.pipeline.prepared)
    D<query id>  a decision, JSON: batch, token, ends, writer, the offsets of its parts, and the
                 offset from which on there may be another one about that batch or a later one

Brokers delete its records like all others (fileReservedTime). A query that was stopped for longer
does not find its last decision.
"""

import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import orjson

from mq.client.admin import Admin
from mq.client.errors import ConnectError, MQError, RequestTimeout, RouteNotFound
from mq.client.machine import random_ids
from mq.client.operations.subjects import topics
from mq.client.producer.outgoing import draft
from mq.client.pull.pull_consumer import Puller
from mq.client.transport.blocking import BlockingSession, run
from mq.pipeline.declared import wrong
from mq.pipeline.errors import ClusterAway, CommitFailed, Unknown
from mq.pipeline.offsets import Offsets, from_nested, to_nested
from mq.pipeline.prepared import Prepared, from_part, to_parts
from mq.pipeline.write_options import WriteOptions
from mq.protocol.bodies import MessageQueue, TopicConfig, TopicRouteData
from mq.protocol.headers.send import SendMessageResponseHeader
from mq.protocol.message import Message, StoredMessage
from mq.protocol.message_id import UniqueIdMaker
from mq.protocol.names import TOOLS_CONSUMER_GROUP
from mq.protocol.tags import TagExpression

log = logging.getLogger(__name__)

_FIRST_STEP = 64  # offsets in the first search step: a query's last decision is near the end
_LARGEST_STEP = 1 << 20
# bytes read from a log before the records of other queries are skipped
_MOST_LOOKED_AT = 64 * 1024 * 1024
_JSON = b"{"  # the first byte of a decision; a part is compressed
_PAUSE = 0.02  # seconds between two polls for a record that was just stored
_START_SECONDS = 30.0  # until name servers know a topic that was just created
_NO_COMPRESSION = 1 << 30


class Writer(NamedTuple):
    """The writer that commits. A field is None if it is unknown, and the topic if rows name
    theirs.
    """

    topic: str | None
    checkpoint: str | None

    @classmethod
    def of(cls, options: WriteOptions) -> "Writer":
        """Return the writer with these options."""
        place = options.checkpoint
        if place is not None:
            place = re.sub(r"/+", "/", re.sub(r"^file:(//)?(?=/)", "", place))
            place = place.rstrip("/") or "/"
        return cls(options.topic, place)


class Decision(NamedTuple):
    """The decision that a batch is committed, and its messages."""

    token: str
    ends: Offsets  # of the topics, before any of the messages was visible
    prepared: list[Prepared]
    writer: Writer | None  # None in records of earlier releases

    def check(self, query: str, batch: int, writer: Writer) -> None:
        """Raises CommitFailed if another writer has decided."""
        if self.writer is None:
            return
        what = f"batch {batch} of query {query} was committed"
        advice = (
            "A copied checkpoint belongs to the same query: give each query its own checkpoint or "
            "commitTopic. If this query was changed, start it once as it was"
        )
        if self.writer.topic != writer.topic:
            raise CommitFailed(
                f"{what} to {_target(self.writer)}, not to {_target(writer)}. {advice}"
            )
        places = (self.writer.checkpoint, writer.checkpoint)
        if None not in places and places[0] != places[1]:
            raise CommitFailed(f"{what} of the checkpoint {places[0]}, not {places[1]}. {advice}")


def _target(writer: Writer) -> str:
    return "the topics of its rows" if writer.topic is None else f"topic {writer.topic}"


class _Found(NamedTuple):
    batch: int
    offset: int
    # no decision before it is about this batch or a later one; `offset` in earlier releases
    since: int
    record: dict[str, object]


class DecisionLog:
    """The decision log of a cluster."""

    def __init__(self, session: BlockingSession, options: WriteOptions, batch: int) -> None:
        """Open the log for a batch. Raises what `open_log` raises."""
        self._session = session
        self._options = options
        self._admin = Admin(session)
        # A replica may lag, or its queue may begin later.
        self._puller = Puller(session, TOOLS_CONSUMER_GROUP, master_only=True)
        self._looked_at = 0  # bytes
        self._without: dict[tuple[str, int], int] = {}  # up to which offset a batch has no decision
        self._since: dict[tuple[str, int], int] = {}  # nor has a later batch; see `_Found.since`
        self._next_id = UniqueIdMaker("127.0.0.1", os.getpid(), time.time, random_ids.salt())
        self._queue = open_log(session, options, batch)

    def find(self, query: str, batch: int) -> Decision | None:
        """Return the decision about a batch, or None. Raises CommitFailed if that is unknown: an
        unreadable decision must not be taken for an absent one.
        """
        topic = self._queue.topic
        least = max(self._min_offset(), self._without.get((query, batch), 0))
        end = high = run(self._admin.max_offset(self._address(), topic, 0))
        step = _FIRST_STEP
        found: _Found | None = None
        # there is no decision before it, according to the last one about an earlier batch
        floor = -1
        later = end  # the offset of the first decision about a later batch
        missing: list[int] = []
        known = least == 0 or (query, batch) in self._without
        while high > max(least, floor):
            low = max(least, high - step)
            seen = self._decisions(query, batch, low, high, missing)
            known = known or bool(seen)
            found = next((each for each in seen if each.batch == batch), found)
            # The first decisions of a query are in the order of its batches. A second one about a
            # batch may come much later, from a driver that was suspended after its search.
            floor = max([floor, *(each.since for each in seen if each.batch < batch)])
            # A batch without rows has no decision. If it gets rows later, its decision is after
            # those of later batches.
            later = min([later, *(each.offset for each in seen if each.batch > batch)])
            high, step = low, min(4 * step, _LARGEST_STEP)
        last = end if found is None else found.offset  # the first of several counts
        self._check([offset for offset in missing if floor <= offset < last])
        if not known and batch:
            log.warning(
                "no decision of query %s is left in %s, where records before offset %d were "
                "deleted: if batch %d was committed before, it will be there twice",
                *(query, topic, least, batch),
            )
        if found is None:
            self._without[query, batch] = end
            self._since[query, batch] = min(later, self._since.get((query, batch), end))
            return None
        return self._read(found)

    def decide(
        self, query: str, batch: int, ends: Offsets, prepared: Sequence[Prepared]
    ) -> Decision:
        """Commit a batch. Returns the decision that counts, possibly that of another driver."""
        token = uuid.uuid4().hex
        offsets = [self._put(f"P{query}", part) for part in to_parts(prepared)]
        record = {
            "query": query,
            "batch": batch,
            "token": token,
            "ends": to_nested(ends),
            "writer": Writer.of(self._options)._asdict(),
            "parts": offsets,
            "since": self._since.get((query, batch), 0),
        }
        stored = self._put(f"D{query}", orjson.dumps(record))
        self._wait_for(stored)
        decision = self.find(query, batch)
        if decision is None:
            raise CommitFailed(f"the decision about batch {batch} is not in {self._queue.topic}")
        return decision

    # writing --------------------------------------------------------------------------------------

    def _put(self, tag: str, body: bytes) -> int:
        """Store a record; returns its offset. Retries as the options say."""
        message = Message(self._queue.topic, body, tag)
        outgoing = draft(self._options.group, message, self._next_id, _NO_COMPRESSION)
        pause = self._options.retry_pause
        for tries_left in range(self._options.retries, -1, -1):
            try:
                response = run(self._session.call(self._address(), outgoing.command(self._queue)))
                return SendMessageResponseHeader.decode(response.fields).queue_offset
            except MQError as error:
                if not tries_left or not error.retriable:
                    raise
                self._session.outdate_route(self._queue.topic)
                time.sleep(pause)
                pause *= 2
        raise AssertionError("not reached")

    def _wait_for(self, offset: int) -> None:
        """Wait until a record can be read: brokers build their queues a moment after they store."""
        deadline = time.monotonic() + self._options.timeout
        while run(self._admin.max_offset(self._address(), self._queue.topic, 0)) <= offset:
            if time.monotonic() > deadline:
                raise CommitFailed(f"{self._queue}: offset {offset} was stored, but is not there")
            time.sleep(_PAUSE)

    # reading --------------------------------------------------------------------------------------

    def _decisions(
        self, query: str, batch: int, low: int, high: int, missing: list[int]
    ) -> list[_Found]:
        """Return the decisions of a query between two offsets, in order.

        Adds to ``missing`` the offsets of absent records that may be decisions. A pull by tag may
        omit a damaged record silently: checksums cover only bodies, and a broker skips what is not
        a record of its queue. So all records are read. But nothing limits how far back the decision
        about a first batch may be (docs/decisions/0022).
        """
        found = []
        tag = f"D{query}"

        def wanted() -> str | None:
            return None if batch or self._looked_at < _MOST_LOOKED_AT else tag

        for messages, gaps in self._pulls(low, high, wanted):
            missing += gaps
            for message in messages:
                self._looked_at += len(message.body)
                is_decision = message.tags == tag
                # a part, or of another query
                if not (is_decision or message.body.startswith(_JSON)):
                    continue
                try:
                    record = orjson.loads(message.body)
                    if record["query"] == query:
                        at = message.queue_offset
                        since = min(int(record.get("since", at)), at)
                        found.append(_Found(int(record["batch"]), at, since, record))
                except (ValueError, KeyError, TypeError) as error:
                    if is_decision:
                        raise self._damaged(message.queue_offset, error) from None
        return found

    def _check(self, missing: list[int]) -> None:
        """Wait until records at these offsets, any of which may be the decision, turn out to be
        deleted by age. Raises CommitFailed if they are not.
        """
        deadline = time.monotonic() + self._options.timeout
        while missing:
            least = self._min_offset()
            missing = [offset for offset in missing if offset >= least]
            if not missing:
                return
            if time.monotonic() > deadline:
                raise self._missing(min(missing))
            time.sleep(_PAUSE)

    def _min_offset(self) -> int:
        return run(self._admin.min_offset(self._address(), self._queue.topic, 0))

    def _read(self, found: _Found) -> Decision:
        try:
            record = found.record
            parts = record["parts"]
            assert isinstance(parts, list)
            prepared = [each for offset in parts for each in self._part(int(offset))]
            by = record.get("writer")
            assert by is None or isinstance(by, dict)
            writer = None if by is None else Writer(by.get("topic"), by.get("checkpoint"))
            return Decision(str(record["token"]), from_nested(record["ends"]), prepared, writer)
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            raise self._damaged(found.offset, error) from None

    def _part(self, offset: int) -> list[Prepared]:
        found = [
            message
            for messages, _ in self._pulls(offset, offset + 1, lambda: None)
            for message in messages
        ]
        if len(found) != 1:
            raise self._missing(offset)
        return from_part(found[0].body)

    def _pulls(
        self, low: int, high: int, wanted: Callable[[], str | None]
    ) -> Iterator[tuple[list[StoredMessage], list[int]]]:
        """Read the records between two offsets, pull by pull: all of them, or those with the tag
        that `wanted` returns at that time. Also yields the offsets of missing records. Raises
        CommitFailed if the master returns nothing.
        """
        deadline = time.monotonic() + self._options.timeout
        while low < high:
            tag = wanted()
            tags = None if tag is None else TagExpression.parse(tag)
            pulled = run(self._puller.pull(self._queue, low, tags, subscription=tag or "*"))
            end = min(pulled.next_offset, high)
            messages = [each for each in pulled.messages if low <= each.queue_offset < end]
            if tag is None:
                there = {message.queue_offset for message in messages}
                first = max(low, pulled.min_offset)
                missing = [offset for offset in range(first, end) if offset not in there]
            else:
                missing = [low] if pulled.damaged else []
            yield messages, missing
            if pulled.next_offset > low:
                low = pulled.next_offset
                # the deadline is for each step: long logs take longer
                deadline = time.monotonic() + self._options.timeout
                continue
            if time.monotonic() > deadline:
                raise CommitFailed(
                    f"{self._queue}: its master does not return offset {low}, which may hold "
                    "a decision: try again when it answers"
                )
            time.sleep(_PAUSE)

    def _missing(self, offset: int) -> CommitFailed:
        return CommitFailed(
            f"{self._queue}: a record from offset {offset} on is damaged, and it may be the "
            "decision about this batch: start the broker with an intact copy of its log, or, "
            "if the rows of the batch need not become visible, give the query another "
            "commitTopic"
        )

    def _damaged(self, offset: int, error: Exception) -> CommitFailed:
        return CommitFailed(
            f"offset {offset} of {self._queue.topic} is no record of a commit: {error!r}. No other "
            "program may send to that topic"
        )

    def _address(self) -> str:
        return run(self._session.master_address(self._queue.topic, self._queue.broker_name))


def check_log(session: BlockingSession, options: WriteOptions) -> None:
    """Check whether the log can be used, if it exists; the number of the next batch, and so whether
    to create the log, is not known yet. Raises OptionError.
    """
    try:
        _queue_of(options.commit_topic, run(session.route(options.commit_topic)))
    except RouteNotFound:
        return
    except (ConnectError, RequestTimeout) as error:
        raise wrong(WriteOptions, "nameServer", str(error), ClusterAway) from None


def open_log(session: BlockingSession, options: WriteOptions, batch: int) -> MessageQueue:
    """Return the queue of the log. For the first batch its topic is created at a broker of the
    cluster if no broker has it.

    A later batch may have been committed in a log whose only broker is unavailable: name servers do
    not know the topic then, and a new log at another broker would have the batch committed again.
    Raises CommitFailed in this case; OptionError if the topic cannot be created or is at several
    brokers.
    """
    topic = options.commit_topic
    deadline = time.monotonic() + _START_SECONDS
    made = False
    while True:
        try:
            route = run(session.route(topic))
            break
        except RouteNotFound:
            if time.monotonic() > deadline:
                if batch:
                    raise _log_away(topic, batch) from None
                reason = f"no name server knows {topic}"
                raise wrong(WriteOptions, "commitTopic", reason, Unknown) from None
            if not batch and not made:
                _make(session, options)
                made = True
            time.sleep(_PAUSE)
        except (ConnectError, RequestTimeout) as error:
            raise wrong(WriteOptions, "nameServer", str(error), ClusterAway) from None
    return _queue_of(topic, route)


def _log_away(topic: str, batch: int) -> CommitFailed:
    return CommitFailed(
        f"topic {topic} is not there, and batch {batch} may have been committed in it: start the "
        "broker that has it. If this query has committed nothing with exactlyOnce yet, make it: "
        f"mq updateTopic -b BROKER:10911 -t {topic} -r 1 -w 1"
    )


def _queue_of(topic: str, route: TopicRouteData) -> MessageQueue:
    """Return its only queue. Raises OptionError if it is at several brokers."""
    brokers = sorted(queues.broker_name for queues in route.queue_datas)
    if len(brokers) != 1:
        raise wrong(
            WriteOptions,
            "commitTopic",
            f"topic {topic} is at the brokers {', '.join(brokers)}: it has to be at one only, so "
            "that there is one order of commits",
        )
    return MessageQueue(topic, brokers[0], 0)


def _make(session: BlockingSession, options: WriteOptions) -> None:
    topic = options.commit_topic
    config = TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1, perm=6)
    try:
        if run(topics.holders(Admin(session), topic))[0]:
            return  # name servers learn of it soon
        info = run(Admin(session).cluster_info())
        names = sorted(info.broker_addr_table)
        addresses = info.broker_addr_table[names[0]].broker_addrs
        run(Admin(session).create_topic(addresses[0], config))
    except (MQError, LookupError) as error:
        raise wrong(
            WriteOptions,
            "commitTopic",
            f"topic {topic} is not there and cannot be made ({error}): make it with one queue at "
            f"one broker: mq updateTopic -b BROKER:10911 -t {topic} -r 1 -w 1",
        ) from None
