"""Queue choice of a sink: assigns a queue to each row."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mq.client.errors import RouteNotFound
from mq.client.routing.routes import write_queues
from mq.client.routing.targets import Target, queues_to_create
from mq.client.transport.blocking import BlockingSession, run
from mq.pipeline.errors import RowError
from mq.pipeline.sink_columns import Messages
from mq.protocol.bodies import MessageQueue
from mq.protocol.names import DEFAULT_TOPIC
from mq.protocol.tags import java_hash

_ANY = -1

Group = tuple[str, MessageQueue | None, pa.Array | None]


def target_of(session: BlockingSession, topic: str) -> Target:
    """Return the writable queues of a topic, and their brokers.

    For a topic that no name server knows these are queues at brokers that create topics
    automatically. Raises RouteNotFound, and the errors of the query to the name servers.
    """
    try:
        route = run(session.route(topic))
        return Target(topic, route, write_queues(topic, route), 0)
    except RouteNotFound as error:
        try:
            route = run(session.route(DEFAULT_TOPIC))
        except RouteNotFound:
            raise error from None
        return Target(topic, route, queues_to_create(topic, route), 0)


class QueueChoice:
    """Chooses queues by the rows, or in turn."""

    def __init__(self, session: BlockingSession, default_topic: str | None) -> None:
        self._session = session
        self._default_topic = default_topic
        self._targets: dict[str, Target] = {}
        # By topic, the queues for its keys. They do not change while a task runs, whatever the
        # route, so that each key keeps its queue and order.
        self._by_key: dict[str, list[MessageQueue]] = {}

    def target(self, topic: str) -> Target:
        """Return the queues of a topic and their addresses. Raises what `target_of` raises."""
        target = self._targets.get(topic)
        if target is None:
            target = self._targets[topic] = target_of(self._session, topic)
        return target

    def outdate(self, topic: str) -> None:
        """Have the route queried again, because a broker of it has failed."""
        self._session.outdate_route(topic)
        self._targets.pop(topic, None)

    def next(self, topic: str, avoid: str | None = None) -> MessageQueue:
        """Return the next queue in turn, of another broker than `avoid` if there is one."""
        return self.target(topic).next(() if avoid is None else (avoid,))

    def groups(self, messages: Messages, count: int) -> Iterator[Group]:
        """Yield groups of rows: topic, queue (None: any) and indexes of the rows (None: all)."""
        if messages.topic is None:
            assert self._default_topic is not None
            yield from self._of_topic(self._default_topic, messages, None)
            return
        encoded = messages.topic.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if len(names) == 1:
            yield from self._of_topic(names[0], messages, None)
            return
        codes = encoded.indices.to_numpy()
        for code, name in enumerate(names):
            yield from self._of_topic(name, messages, np.flatnonzero(codes == code))

    def _of_topic(
        self, topic: str, messages: Messages, places: npt.NDArray[np.int64] | None
    ) -> Iterator[Group]:
        rows = None if places is None else pa.array(places)
        wanted, queues = self._wanted(topic, messages, rows)
        if wanted is None:
            yield topic, None, rows
            return
        order = np.argsort(wanted, kind="stable")
        edges = [0, *(np.flatnonzero(np.diff(wanted[order])) + 1).tolist(), len(order)]
        for begin, end in pairwise(edges):
            some = order[begin:end]
            number = int(wanted[some[0]])
            queue = None if number == _ANY else queues[number]
            yield topic, queue, pa.array(some if places is None else places[some])

    def _wanted(
        self, topic: str, messages: Messages, rows: pa.Array | None
    ) -> tuple[npt.NDArray[np.int64] | None, list[MessageQueue]]:
        """Return the index of the queue of each row in the list of queues; None if any queue will
        do.
        """
        queues = self._queues(topic)
        if messages.sharding_key is not None:
            column = messages.sharding_key if rows is None else messages.sharding_key.take(rows)
            return _numbers(column, lambda key: abs(java_hash(key)) % len(queues)), queues
        if messages.queue_id is None:
            return None, queues
        column = messages.queue_id.cast(pa.string())
        if messages.broker_name is not None:
            names = messages.broker_name.fill_null("")
            column = pc.binary_join_element_wise(column, names, "@")
        column = column if rows is None else column.take(rows)
        return _numbers(column, lambda text: _place(topic, queues, text)), queues

    def _queues(self, topic: str) -> list[MessageQueue]:
        queues = self._by_key.get(topic)
        if queues is None:
            queues = self._by_key[topic] = list(self.target(topic).queues)
        return queues


def _numbers(column: pa.Array, number: Callable[[str], int]) -> npt.NDArray[np.int64]:
    """Return a number for each text, computed once for equal ones; _ANY for null."""
    encoded = column.dictionary_encode()
    by_code = np.array([*(number(text) for text in encoded.dictionary.to_pylist()), _ANY], np.int64)
    codes: npt.NDArray[np.int32] = encoded.indices.fill_null(len(by_code) - 1).to_numpy()
    return by_code[codes]


def _place(topic: str, queues: list[MessageQueue], text: str) -> int:
    """Return the index of a queue in the list. Raises RowError unless there is exactly one
    match.
    """
    queue_id, _, broker = text.partition("@")
    found = [
        place
        for place, queue in enumerate(queues)
        if str(queue.queue_id) == queue_id and broker in ("", queue.broker_name)
    ]
    if len(found) == 1:
        return found[0]
    where = f"queue {queue_id} of topic {topic}" + (f" at broker {broker}" if broker else "")
    if not found:
        raise RowError(f"there is no {where} to write to")
    names = ", ".join(queues[place].broker_name for place in found)
    raise RowError(f"{where} is at the brokers {names}: choose one in a column brokerName")
