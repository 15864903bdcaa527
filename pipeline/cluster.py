"""Access of a read's driver to the cluster: topics, queues and their offsets.

Expected topics and brokers that are in no route.

A broker that is down leaves the routes within seconds, as if its queues had never existed. Only
readers that know of it (by an option, a previous batch, or messages prepared there) detect its
absence.
"""

import logging
import re
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from mq.client.admin import Admin
from mq.client.errors import (
    BadAnswer,
    BrokerError,
    ConnectError,
    MQError,
    NoPermission,
    RequestTimeout,
    RouteNotFound,
    ServiceNotAvailable,
    SubscriptionGroupNotExist,
    SystemBusy,
    TopicNotExist,
)
from mq.client.operations.offsets.bounds import bounds
from mq.client.pull.pull_consumer import DEFAULT_MAX_COUNT, Puller
from mq.client.routing.routes import broker_address, read_queues
from mq.client.transport.blocking import run
from mq.pipeline.errors import BrokerDown, ClusterAway, DataLoss, KeyRefused, OptionError, Unknown
from mq.pipeline.offsets import Offsets, Queue
from mq.pipeline.options import ReadOptions, example
from mq.pipeline.puller import WITHOUT_MESSAGES, QueueRange, pull_fields
from mq.protocol.bodies import MessageQueue, TopicOffset, TopicRouteData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.names import is_system_topic
from mq.protocol.tags import ALL_TAGS

log = logging.getLogger(__name__)

T = TypeVar("T")

_LATER = (SystemBusy, ServiceNotAvailable)  # errors of a broker that may answer a moment later


class Missing(NamedTuple):
    """A topic that no name server knows, or a broker that is not in its route."""

    topic: str
    broker_name: str | None
    reason: MQError

    def __str__(self) -> str:
        where = "" if self.broker_name is None else f"broker {self.broker_name} of "
        return f"{where}topic {self.topic}"


def complain(options: ReadOptions, absent: Iterable[Missing], *, running: bool) -> None:
    """Raise the error for what is absent.

    `running` says that it was there before: then it is DataLoss for a topic. Otherwise it is
    Unknown, because the name may be wrong. It is always BrokerDown for a broker.
    """
    for each in absent:
        if each.broker_name is not None:
            raise BrokerDown(each.broker_name, each.topic, "it is not in its route")
        if running:
            raise DataLoss(
                f"topic {each.topic} has disappeared: its brokers are down, or it was deleted"
            )
        if options.topic_pattern is None:
            raise Unknown("topic", f"{each.reason}; or all its brokers are down", example("topic"))


def log_once(absent: Iterable[Missing], logged: set[str]) -> None:
    """Log what is skipped, unless it is in `logged`, and remove from `logged` what has returned."""
    names = {str(each) for each in absent}
    for name in sorted(names - logged):
        log.warning("%s is absent; skipping it until it returns", name)
    logged &= names
    logged |= names


class Bounds(NamedTuple):
    """The offsets of a queue: of its oldest message, and the one that the next message will get."""

    begin: int
    end: int
    of_replica: bool = False  # the master is unavailable; the replica may lag behind it


class Cluster:
    """Queries a cluster; a context manager."""

    def __init__(
        self, options: ReadOptions, *, answered: bool = False, logged: set[str] | None = None
    ) -> None:
        """`answered` says that name servers and topics were there before, so they may return.

        An absent topic that may be absent is logged once, as long as it is in `logged`.
        """
        self._options = options
        self._session = options.session()
        self._admin = Admin(self._session)
        self._puller = Puller(self._session, options.group)
        self._answered = answered
        self._running = answered
        self._logged = set() if logged is None else logged

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *exc: object) -> None:
        self._session.close()

    def topics(self) -> list[str]:
        """Return the topics that the options name, or that their pattern matches now.

        A pattern does not match system topics. Raises OptionError if no name server answers.
        """
        if self._options.topic_pattern is None:
            return list(self._options.topics)
        names = self._of_name_server(lambda: self._admin.topic_list()).topic_list
        matches = re.compile(self._options.topic_pattern).fullmatch
        return sorted(name for name in names if matches(name) and not is_system_topic(name))

    def bounds(
        self, topics: Iterable[str], at: Mapping[str, Collection[str]] = MappingProxyType({})
    ) -> dict[Queue, Bounds]:
        """Return the readable queues of the topics, with their offsets.

        A topic must be at the brokers of the options, or at those that `at` names for it; then only
        these are queried. After the retries of the options it raises OptionError for an absent
        topic or if no name server answers, BrokerDown for a broker that does not answer, and
        DataLoss for a topic that was there before. If the options allow data loss, these topics and
        brokers are left out instead.
        """
        topics = list(topics)
        found: dict[Queue, Bounds] = {}
        strict = self._options.fail_on_data_loss
        pause = self._options.retry_pause_ms / 1000
        absent: list[Missing] = []
        for tries_left in range(self._options.retries if self._running and strict else 0, -1, -1):
            again = [each.topic for each in absent] or topics
            absent = [
                gone for topic in again if (gone := self._find(topic, found, at.get(topic, ())))
            ]
            if not absent:
                break
            if tries_left:
                log.warning("%s is absent; retrying in %g s", absent[0], pause)
                time.sleep(pause)
                pause *= 2
        if strict or not (found or self._running):
            complain(self._options, absent, running=self._running)
        else:
            log_once(absent, self._logged)
        return found

    def _find(
        self, topic: str, found: dict[Queue, Bounds], needed: Collection[str]
    ) -> Missing | None:
        """Add the queues of a topic to `found`; returns what is missing of it."""
        try:
            if self._running:
                self._session.outdate_route(topic)
            names = {queues.broker_name for queues in self._route(topic).queue_datas}
            for name in sorted(names.intersection(needed) if needed else names):
                found.update(self._bounds_at(topic, name))
        except (RouteNotFound, TopicNotExist) as error:
            return Missing(topic, None, error)
        except BrokerError as error:
            raise _refused(error) from None
        missing = sorted({*self._options.expected_brokers, *needed} - names)
        if not missing:
            return None
        return Missing(topic, missing[0], RouteNotFound(topic, f"no broker {missing[0]}"))

    def try_pulls(self, ranges: Iterable[QueueRange]) -> None:
        """Pull one message of one range of each topic, to see now what a task would be refused.

        Raises OptionError that names the option at fault.
        """
        settings = self._options.pull_settings()
        for tried in {each.topic: each for each in ranges}.values():
            fields = {
                **pull_fields(tried, settings),
                "queueOffset": str(tried.begin),
                "maxMsgNums": "1",
            }
            accepted = (int(ResponseCode.SUCCESS), *WITHOUT_MESSAGES)
            try:
                command = Command(RequestCode.PULL_MESSAGE, fields)
                ask = partial(self._session.call, command=command, accept=accepted)
                self._with_retries(tried.topic, tried.broker_name, ask)
            except BrokerError as error:
                raise _refused(error) from None

    def at_time(self, bounds: Mapping[Queue, Bounds], timestamp: int) -> Offsets:
        """Return for each queue the offset of the first message stored at `timestamp` (ms) or
        later.

        If there is no such message, it is the end of the queue. Raises BrokerDown for a broker that
        does not answer.
        """
        found = {}
        for queue, at in bounds.items():
            topic, broker_name, queue_id = queue
            search = partial(
                self._admin.search_offset, topic=topic, queue_id=queue_id, timestamp=timestamp
            )
            near = self._with_retries(topic, broker_name, search)
            found[queue] = at.end if near is None else self._first_at(queue, at, near, timestamp)
        return found

    def first_stored(self, queue: Queue, begin: int) -> tuple[int, int] | None:
        """Return offset and store time (ms) of the first message from an offset on; None at the
        end. Raises BrokerDown for a broker that does not answer.
        """
        return next(iter(self._store_times(queue, begin)), None)

    def first_readable(self, queue: Queue, begin: int) -> tuple[int, int] | None:
        """Like `first_stored`, of one message only; also None if the broker cannot read it."""
        try:
            return next(iter(self._store_times(queue, begin, 1)), None)
        except BrokerError as error:
            log.warning("%s: the message at offset %d cannot be read: %s", queue, begin, error)
            return None

    def _first_at(self, queue: Queue, at: Bounds, near: int, timestamp: int) -> int:
        """Search around `near`: brokers answer with the nearest message, which may be an earlier
        one, and with any of several messages stored in the same millisecond (ConsumeQueue of
        4.9.8, getOffsetInQueueByTime).
        """
        begin = min(max(near, at.begin), at.end)
        while begin > at.begin:
            begin = max(at.begin, begin - DEFAULT_MAX_COUNT)
            if self._store_times(queue, begin)[:1] < [(begin, timestamp)]:
                break
        while begin < at.end:
            times = self._store_times(queue, begin)
            if not times:
                break
            for offset, stored in times:
                if stored >= timestamp:
                    return offset
            begin = times[-1][0] + 1
        return at.end

    def _store_times(
        self, queue: Queue, begin: int, count: int = DEFAULT_MAX_COUNT
    ) -> list[tuple[int, int]]:
        """Return offset and store time of some messages from an offset on; none at the end."""
        pulled = self._with_retries(
            queue.topic,
            queue.broker_name,
            lambda _: self._puller.pull(
                MessageQueue(*queue), begin, None, max_count=count, subscription=ALL_TAGS
            ),
        )
        messages = () if pulled is None else pulled.messages
        return [(each.queue_offset, each.store_timestamp) for each in messages]

    def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Set the offsets of a consumer group, best effort: failures are logged."""
        for queue, offset in offsets.items():
            try:
                address = self._address(queue.topic, queue.broker_name)
                run(
                    self._admin.update_consumer_offset(
                        address, group, queue.topic, queue.queue_id, offset
                    )
                )
            except MQError as error:
                log.warning("%s: offset %d not committed for %s: %s", queue, offset, group, error)

    def _route(self, topic: str) -> TopicRouteData:
        return self._of_name_server(lambda: self._session.route(topic))

    def _of_name_server(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Query the name servers, with the retries of the options. Raises OptionError.

        If none of them answers the first query, the address is assumed to be wrong, and there is no
        retry.
        """
        pause = self._options.retry_pause_ms / 1000
        for tries_left in range(self._options.retries if self._answered else 0, -1, -1):
            try:
                answer = run(ask())
            except (ConnectError, RequestTimeout, BadAnswer) as error:
                if not tries_left:
                    raise ClusterAway("nameServer", str(error), example("nameServer")) from None
                log.warning("no name server answers; retrying in %g s: %s", pause, error)
                time.sleep(pause)
                pause *= 2
            else:
                self._answered = True
                return answer
        raise AssertionError("not reached")

    def _bounds_at(self, topic: str, broker_name: str) -> dict[Queue, Bounds]:
        every = read_queues(topic, self._route(topic))
        queues = [queue for queue in every if queue.broker_name == broker_name]

        async def ask(address: str) -> tuple[str, dict[MessageQueue, TopicOffset]]:
            return address, await bounds(self._admin, address, topic, queues)

        if (answer := self._with_retries(topic, broker_name, ask)) is None:
            return {}
        address, table = answer
        of_replica = address != broker_address(self._route(topic), broker_name)
        found = ((queue.queue_id, table[queue]) for queue in queues)
        return {
            Queue(topic, broker_name, queue_id): Bounds(at.min_offset, at.max_offset, of_replica)
            for queue_id, at in found
        }

    def _with_retries(
        self, topic: str, broker_name: str, ask: Callable[[str], Coroutine[Any, Any, T]]
    ) -> T | None:
        """Query a broker, with the retries of the options.

        Returns None if it does not answer and may be left out. Otherwise raises BrokerDown, also if
        the broker has left the route meanwhile or is too busy.
        """
        pause = self._options.retry_pause_ms / 1000
        for tries_left in range(self._options.retries, -1, -1):
            try:
                return run(ask(self._address(topic, broker_name)))
            except (ConnectError, RequestTimeout, RouteNotFound, *_LATER) as error:
                self._session.outdate_route(topic)
                if tries_left:
                    log.warning("broker %s: retrying in %g s: %s", broker_name, pause, error)
                    time.sleep(pause)
                    pause *= 2
                elif self._options.fail_on_data_loss:
                    raise BrokerDown(broker_name, topic, str(error)) from None
                else:
                    log.warning("skipping broker %s of topic %s: %s", broker_name, topic, error)
        return None

    def _address(self, topic: str, broker_name: str) -> str:
        address = broker_address(self._route(topic), broker_name, exact=False)
        if address is None:
            raise RouteNotFound(topic, f"no broker {broker_name} in its route")
        return address


def _refused(error: BrokerError) -> OptionError:
    """Return the error of the option that caused a broker's refusal."""
    if isinstance(error, NoPermission):
        return KeyRefused("aclFile", str(error), example("aclFile"))
    if isinstance(error, SubscriptionGroupNotExist):
        return Unknown("group", str(error), example("group"))
    return OptionError("subExpression", str(error), example("subExpression"))
