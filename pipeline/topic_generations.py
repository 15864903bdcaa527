"""Topic generations: how a stream detects that a topic was deleted and created again.

Offsets alone do not show it once the new queues are longer than the part that was read. So a
checkpoint keeps, for each topic at each broker, one message of its current generation: an offset
and the store time of the message there. A message with another store time belongs to a new
generation.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mq.pipeline.cluster import Bounds
from mq.pipeline.offsets import Offsets, Queue, from_nested

KEY = "@lives"  # in a checkpoint, next to the topics; no topic can have this name

Place = tuple[str, str]  # topic and broker
FirstStored = Callable[[Queue, int], tuple[int, int] | None]


class TopicGeneration(NamedTuple):
    """A generation of a topic at a broker. `number` counts the generations that the query has seen.

    The message is identified by queue, offset and store time; `offset` is -1 if there was none.
    """

    number: int
    queue_id: int = -1
    offset: int = -1
    stored: int = -1


TopicGenerations = dict[Place, TopicGeneration]


def generations_to_json(generations: Mapping[Place, TopicGeneration]) -> dict[str, Any]:
    """Return a part of a checkpoint, sorted, since Spark compares texts; empty without
    generations.
    """
    nested: dict[str, dict[str, list[int]]] = {}
    for (topic, broker_name), generation in sorted(generations.items()):
        nested.setdefault(topic, {})[broker_name] = list(generation)
    return {KEY: nested} if nested else {}


def from_checkpoint(json: object) -> Offsets:
    """Return the offsets of a checkpoint. Raises ValueError if they are malformed."""
    if isinstance(json, dict):
        json = {topic: brokers for topic, brokers in json.items() if topic != KEY}
    return from_nested(json)


def generations_from_json(json: Mapping[str, Any]) -> TopicGenerations:
    """Return the generations of a checkpoint; none if an earlier release wrote it."""
    return {
        (topic, broker_name): TopicGeneration(*generation)
        for topic, brokers in json.get(KEY, {}).items()
        for broker_name, generation in brokers.items()
    }


def recreated(
    before: Mapping[Place, TopicGeneration], after: Mapping[Place, TopicGeneration]
) -> set[Place]:
    """Return the topics at brokers that have another generation than before."""
    return {
        place
        for place, generation in before.items()
        if after.get(place, generation).number != generation.number
    }


class GenerationCheck:
    """Compares the generations of a checkpoint with the messages that the brokers have now."""

    def __init__(self, bounds: Mapping[Queue, Bounds], first_stored: FirstStored) -> None:
        """`first_stored` returns the offset and store time of the first message from an offset on,
        None if there is none or its broker does not answer.
        """
        self._bounds = bounds
        self._first_stored = first_stored

    def renewed(
        self, generations: Mapping[Place, TopicGeneration], began: Offsets
    ) -> TopicGenerations:
        """Return the generations after a batch that continues from `began`.

        If a topic has no new messages at a broker, its generation does not change.
        """
        places: dict[Place, dict[Queue, Bounds]] = {}
        for queue, at in self._bounds.items():
            places.setdefault(queue[:2], {})[queue] = at
        new = dict(generations)
        for place, queues in places.items():
            if any(at.end != began.get(queue, at.begin) for queue, at in queues.items()):
                generation = self._renew(generations.get(place), queues, began)
                if generation is not None:
                    new[place] = generation
        return new

    def first(self, began: Offsets) -> TopicGenerations:
        """Return the generations of a query with this start."""
        found: TopicGenerations = {}
        for queue, at in sorted(self._bounds.items()):
            if at.begin < at.end and queue[:2] not in found:
                offset = min(max(began.get(queue, at.begin), at.begin), at.end - 1)
                stored = self._first_stored(queue, offset)
                if stored is not None:
                    found[queue[:2]] = TopicGeneration(0, queue.queue_id, *stored)
        return found

    def _renew(
        self, generation: TopicGeneration | None, queues: Mapping[Queue, Bounds], began: Offsets
    ) -> TopicGeneration | None:
        # The new message is read before the old one is compared. So it belongs to the old
        # generation if the old message still exists, even if the topic is recreated between the two
        # requests.
        number = 0 if generation is None else generation.number
        fresh = self._message(number, queues, began)
        if generation is None or generation.offset < 0:
            return fresh or generation
        is_same = self._is_same(generation, queues)
        if is_same is None:
            return generation
        if is_same:
            return fresh or generation
        return self._message(number + 1, queues, {}) or TopicGeneration(number + 1)

    def _message(
        self, number: int, queues: Mapping[Queue, Bounds], began: Offsets
    ) -> TopicGeneration | None:
        """Return a generation with the first new message of one of the queues."""
        for queue, at in sorted(queues.items()):
            offset = max(began.get(queue, at.begin), at.begin)
            if offset < at.end:
                stored = self._first_stored(queue, offset)
                if stored is not None:
                    return TopicGeneration(number, queue.queue_id, *stored)
        return None

    def _is_same(self, generation: TopicGeneration, queues: Mapping[Queue, Bounds]) -> bool | None:
        """Whether the message of a generation still exists, or has expired; None if unknown."""
        found = next(
            ((q, at) for q, at in queues.items() if q.queue_id == generation.queue_id), None
        )
        if found is None:
            return True  # the topic has fewer queues now
        queue, at = found
        if generation.offset < at.begin:
            return True
        if generation.offset >= at.end:
            return None if at.of_replica else False
        stored = self._first_stored(queue, generation.offset)
        if stored is None:
            return None
        return stored[0] > generation.offset or stored[1] == generation.stored
