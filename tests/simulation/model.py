"""What must hold, told by a model far simpler than the system: sets of messages and what was said.

Workloads tell the model what they did and were answered; at the end it is held against what the
queues hold. What cannot be known (a send without an answer may have been stored, or not) is allowed
either way, but never twice in one place.
"""

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass(frozen=True, order=True)
class Place:
    """Where a message lies."""

    topic: str
    broker: str
    queue_id: int
    offset: int


@dataclass
class Sent:
    """A message that a producer tried to send, by its number; the number is its body, too."""

    number: int
    topic: str
    at: float
    tries: int = 0
    places: list[Place] = field(default_factory=list)  # as acknowledged
    acknowledged_at: float = 0.0


@dataclass
class Model:
    """What was done and answered."""

    sent: dict[int, Sent] = field(default_factory=dict)
    #: When a broker may have lost what it had not flushed: since when, and until when.
    losses: list[tuple[str, float, float]] = field(default_factory=list)
    #: By group: how often each message was delivered.
    delivered: dict[str, dict[int, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )
    #: By group and place: the messages that it was given from there.
    given: dict[str, dict[Place, set[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )
    problems: list[str] = field(default_factory=list)
    requests: int = 0

    def wrong(self, text: str) -> None:
        """Something that must never be."""
        self.problems.append(text)

    def may_be_lost(self, broker: str, since: float, until: float) -> None:
        """A broker that promises no more lost its power: what it got since then may be gone."""
        self.losses.append((broker, since, until))

    def _is_excused(self, sent: Sent) -> bool:
        return any(
            broker == place.broker and since <= sent.acknowledged_at <= until
            for place in sent.places
            for broker, since, until in self.losses
        )

    def check_stored(self, found: dict[Place, int]) -> None:
        """``found``: the number of the message in each place that can be read."""
        of_message: dict[int, list[Place]] = defaultdict(list)
        for place, number in sorted(found.items()):
            of_message[number].append(place)
            if number not in self.sent:
                self.wrong(f"{place} holds message {number}, which nobody sent")
        for sent in self.sent.values():
            here = of_message.get(sent.number, [])
            for place in sent.places:
                other = found.get(place)
                if other == sent.number:
                    continue
                if other is None and self._is_excused(sent):
                    continue
                if other is not None and self._is_excused(sent):
                    continue  # its place was given away after the loss
                what = "nothing" if other is None else f"message {other}"
                self.wrong(
                    f"message {sent.number} was acknowledged at {place} at "
                    f"{sent.acknowledged_at:.6f} and {what} is there"
                )
            if len(here) > sent.tries:
                self.wrong(f"message {sent.number}, sent {sent.tries} times, is at {here}")

    def _passed(self, group: str, found: dict[Place, int]) -> dict[tuple[str, str, int], int]:
        """By queue: up to which offset a group had got when the queue lost its end.

        Who waits at an offset that is given away a second time does not see what comes before it.
        """
        passed: dict[tuple[str, str, int], int] = {}
        for place, numbers in self.given[group].items():
            lost = any(place.broker == broker for broker, _, _ in self.losses)
            if lost and numbers - {found.get(place, -1)}:
                queue = (place.topic, place.broker, place.queue_id)
                passed[queue] = max(passed.get(queue, -1), place.offset)
        return passed

    def check_delivered(self, group: str, found: dict[Place, int], *, once: bool) -> None:
        """Everything that is stored was delivered to a group; ``once``: and not twice."""
        counts = self.delivered[group]
        stored: dict[int, int] = defaultdict(int)
        passed = self._passed(group, found)
        for place, number in found.items():
            if place.offset > passed.get((place.topic, place.broker, place.queue_id), -1):
                stored[number] += 1
        for number, copies in sorted(stored.items()):
            if not counts.get(number):
                self.wrong(f"message {number} is stored and was not delivered to {group}")
            elif once and counts[number] > copies:
                self.wrong(f"message {number} was delivered {counts[number]} times to {group}")
        for number in sorted(set(counts) - set(self.sent)):
            self.wrong(f"{group} was given message {number}, which nobody sent")
