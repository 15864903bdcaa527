"""Lives of topics: how a stream notices that a topic was deleted and created again.

Offsets alone do not show it once the new queues are longer than the part that was read. So a
checkpoint keeps, for each topic at each broker, one message of its present life: an offset and the
store time of the message there. A message with another store time belongs to a new life.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mq.pipeline.cluster import Bounds
from mq.pipeline.offsets import Offsets, Queue, from_nested

KEY = "@lives"  # in a checkpoint, next to the topics; no topic can have this name

Place = tuple[str, str]  # topic and broker
FirstStored = Callable[[Queue, int], tuple[int, int] | None]


class TopicGeneration(NamedTuple):
    """A life of a topic at a broker. `number` counts the lives that the query has seen.

    The message is known by queue, offset and store time; `offset` is -1 if there was none.
    """

    number: int
    queue_id: int = -1
    offset: int = -1
    stored: int = -1


TopicGenerations = dict[Place, TopicGeneration]


def lives_to_json(lives: Mapping[Place, TopicGeneration]) -> dict[str, Any]:
    """Part of a checkpoint, sorted, since Spark compares texts; empty without lives."""
    nested: dict[str, dict[str, list[int]]] = {}
    for (topic, broker_name), life in sorted(lives.items()):
        nested.setdefault(topic, {})[broker_name] = list(life)
    return {KEY: nested} if nested else {}


def from_checkpoint(json: object) -> Offsets:
    """The offsets of a checkpoint. Raises ValueError if they are not well formed."""
    if isinstance(json, dict):
        json = {topic: brokers for topic, brokers in json.items() if topic != KEY}
    return from_nested(json)


def lives_from_json(json: Mapping[str, Any]) -> TopicGenerations:
    """The lives of a checkpoint; none if an earlier release wrote it."""
    return {
        (topic, broker_name): TopicGeneration(*life)
        for topic, brokers in json.get(KEY, {}).items()
        for broker_name, life in brokers.items()
    }


def recreated(
    before: Mapping[Place, TopicGeneration], after: Mapping[Place, TopicGeneration]
) -> set[Place]:
    """The topics at brokers that have another life than before."""
    return {place for place, life in before.items() if after.get(place, life).number != life.number}


class GenerationCheck:
    """Compares the lives of a checkpoint with the messages that the brokers have now."""

    def __init__(self, bounds: Mapping[Queue, Bounds], first_stored: FirstStored) -> None:
        """`first_stored` answers the offset and store time of the first message from an offset on,
        None if there is none or its broker does not answer."""
        self._bounds = bounds
        self._first_stored = first_stored

    def renewed(self, lives: Mapping[Place, TopicGeneration], began: Offsets) -> TopicGenerations:
        """The lives after a batch that continues from `began`.

        Where a topic has no new messages at a broker, its life stays as it is.
        """
        places: dict[Place, dict[Queue, Bounds]] = {}
        for queue, at in self._bounds.items():
            places.setdefault(queue[:2], {})[queue] = at
        new = dict(lives)
        for place, queues in places.items():
            if any(at.end != began.get(queue, at.begin) for queue, at in queues.items()):
                life = self._renew(lives.get(place), queues, began)
                if life is not None:
                    new[place] = life
        return new

    def first(self, began: Offsets) -> TopicGenerations:
        """The lives of a query that begins there."""
        found: TopicGenerations = {}
        for queue, at in sorted(self._bounds.items()):
            if at.begin < at.end and queue[:2] not in found:
                offset = min(max(began.get(queue, at.begin), at.begin), at.end - 1)
                stored = self._first_stored(queue, offset)
                if stored is not None:
                    found[queue[:2]] = TopicGeneration(0, queue.queue_id, *stored)
        return found

    def _renew(
        self, life: TopicGeneration | None, queues: Mapping[Queue, Bounds], began: Offsets
    ) -> TopicGeneration | None:
        # The new message is read before the old one is compared. So it is of the old life if the
        # old message is still there, also when the topic is recreated between the two requests.
        number = 0 if life is None else life.number
        fresh = self._message(number, queues, began)
        if life is None or life.offset < 0:
            return fresh or life
        is_same = self._is_same(life, queues)
        if is_same is None:
            return life
        if is_same:
            return fresh or life
        return self._message(number + 1, queues, {}) or TopicGeneration(number + 1)

    def _message(
        self, number: int, queues: Mapping[Queue, Bounds], began: Offsets
    ) -> TopicGeneration | None:
        """A life with the first new message of one of the queues."""
        for queue, at in sorted(queues.items()):
            offset = max(began.get(queue, at.begin), at.begin)
            if offset < at.end:
                stored = self._first_stored(queue, offset)
                if stored is not None:
                    return TopicGeneration(number, queue.queue_id, *stored)
        return None

    def _is_same(self, life: TopicGeneration, queues: Mapping[Queue, Bounds]) -> bool | None:
        """Whether the message of a life is still there, or has expired; None if this cannot be
        found out now."""
        found = next(((q, at) for q, at in queues.items() if q.queue_id == life.queue_id), None)
        if found is None:
            return True  # the topic has fewer queues now
        queue, at = found
        if life.offset < at.begin:
            return True
        if life.offset >= at.end:
            return None if at.of_replica else False
        stored = self._first_stored(queue, life.offset)
        if stored is None:
            return None
        return stored[0] > life.offset or stored[1] == life.stored
