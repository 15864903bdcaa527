"""Messages sent, acknowledged and consumed during faults, and the deviations that are not promised.

A message is consumed twice when a group gets the message at one place (broker, queue, offset)
twice. Consumers promise at-least-once delivery, so that is allowed, but only if the offset may not
have been committed in between: if from the first delivery on the queue was disturbed repeatedly,
without a break of `SETTLED` seconds in which the consumer commits and the broker saves the offset.
A queue is disturbed by a fault of its broker, until the group gets a message of it that was sent
after the fault; and, for concurrent groups, by a rebalance, because a listener finishes its
messages, and because the two members may disagree for a while about the queue. An ordered queue is
rebalanced without that. A Java consumer may keep a pull from before the fault for 30 s (it does not
notice the end of a connection while it waits), and continue from its answer.

A message is stored twice if a producer retries it itself, which is allowed if a broker was
disturbed during the send.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from tests.system.faults.cluster import OFFSETS_SECONDS

# The time of a commit and of a save of the offsets, each every OFFSETS_SECONDS, and what a busy
# machine needs for them.
SETTLED = 2 * OFFSETS_SECONDS + 1.5
JAVA_SETTLED = SETTLED + 30.0
SENDERS = "senders"
_MOST_BLAMED = 20  # in the timeline


class Place(NamedTuple):
    """The place of a message in the topic."""

    broker: str
    queue: int
    offset: int


class Delivery(NamedTuple):
    """A message that a group member received."""

    time: float
    member: str
    body: str


class Repeat(NamedTuple):
    """A place that a group received a second time."""

    group: str
    place: Place
    first: Delivery
    second: Delivery


@dataclass
class Sending:
    """A message that a producer tried to send; `place` is set when it was acknowledged."""

    began: float
    ended: float = inf
    place: Place | None = None


@dataclass
class Span:
    """An interval of a disturbance; `over` is the time at which its cause ended."""

    begin: float
    end: float = inf
    over: float = inf


class Spans(list[Span]):
    """Consecutive intervals."""

    def begin(self, at: float) -> None:
        """Start a disturbance, or count another one."""
        if not self or self[-1].end < inf:
            self.append(Span(at))
        self[-1].over = inf

    def end(self, at: float) -> None:
        if self and self[-1].end == inf:
            self[-1].end = self[-1].over = at


@dataclass
class Group:
    """The messages that a group received."""

    name: str
    ordered: bool = False
    settled: float = SETTLED
    got: dict[Place, Delivery] = field(default_factory=dict)
    bodies: set[str] = field(default_factory=set)
    last_offset: dict[tuple[str, int], int] = field(default_factory=dict)
    # By broker, the send time of the newest message received from it.
    newest: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    # While a queue moves between members, it has no owner or several.
    passing: dict[tuple[str, int], Spans] = field(default_factory=lambda: defaultdict(Spans))
    shares: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    # By broker: from the start of a fault until the group has continued.
    disturbed: dict[str, Spans] = field(default_factory=lambda: defaultdict(Spans))
    deliveries: int = 0


class Book:
    """The records of a run. Times are seconds since 1970, as in Java."""

    def __init__(self) -> None:
        self.events: list[tuple[float, str]] = []
        self.faults: list[str] = []  # broken promises
        self.sent: dict[str, Sending] = {}
        self.groups: dict[str, Group] = {}
        self.disturbed: dict[str, Spans] = defaultdict(Spans)  # by broker, for senders
        self.declared: Counter[str] = Counter()
        self.sent_again = 0
        self.longest_send = 0.0  # to a healthy broker
        # By broker, the creation time of the newest message of its own sender that it accepted.
        self.newest_sent: dict[str, float] = defaultdict(float)
        self._repeats: list[Repeat] = []

    def newest(self, group: str) -> Mapping[str, float]:
        """By broker, the creation time of the newest message that a group received, or SENDERS
        sent.
        """
        return self.newest_sent if group == SENDERS else self.groups[group].newest

    def note(self, text: str) -> None:
        self.events.append((time.time(), text))

    def blame(self, text: str) -> None:
        """Record a broken promise."""
        if len(self.faults) < _MOST_BLAMED:
            self.note(f"NOT KEPT: {text}")
        self.faults.append(text)

    def timeline(self, seconds: float = 45.0) -> str:
        """Recent events."""
        now = time.time()
        return "\n".join(
            f"{at - now:8.2f} s  {text}" for at, text in self.events if at > now - seconds
        )

    # faults ---------------------------------------------------------------------------------

    def disturb(self, broker: str) -> None:
        """Record the start of a broker's fault."""
        now = time.time()
        self.disturbed[broker].begin(now)
        for group in self.groups.values():
            group.disturbed[broker].begin(now)

    def over(self, broker: str) -> None:
        """The fault has ended; clients may still have to reconnect."""
        now = time.time()
        for group in self.groups.values():
            group.disturbed[broker][-1].over = now

    def settle(self) -> None:
        """All brokers serve all clients again."""
        now = time.time()
        for spans in self.disturbed.values():
            spans.end(now)

    def was_healthy(self, broker: str, begin: float, end: float) -> bool:
        return not any(span.begin <= end and span.end >= begin for span in self.disturbed[broker])

    def _any_disturbed(self, begin: float, end: float) -> bool:
        return not all(self.was_healthy(broker, begin, end) for broker in list(self.disturbed))

    # sending --------------------------------------------------------------------------------

    def sending(self, body: str) -> None:
        self.sent[body] = Sending(time.time())

    def acknowledged(self, body: str, place: Place, ended: float) -> None:
        sending = self.sent[body]
        sending.place, sending.ended = place, ended
        if body.startswith("once"):
            self.newest_sent[place.broker] = max(self.newest_sent[place.broker], sent_at(body))

    # consuming ------------------------------------------------------------------------------

    def share(self, group: str, member: str, queues: set[tuple[str, int]], at: float) -> None:
        """Record the queues of the topic that a member has from now on."""
        which = self.groups[group]
        former = which.shares.get(member, set())
        which.shares[member] = queues
        for queue in former ^ queues:
            owners = sum(queue in share for share in which.shares.values())
            which.passing[queue].begin(at)
            if owners == 1:
                which.passing[queue].end(at)
        if former != queues:
            names = ", ".join(f"{broker}:{queue}" for broker, queue in sorted(queues))
            self.events.append((at, f"{group} {member}: {names or 'nothing'}"))

    def got(self, group: str, place: Place, delivery: Delivery) -> None:
        """Record a message that a member received."""
        which = self.groups[group]
        which.deliveries += 1
        which.bodies.add(delivery.body)
        sent = sent_at(delivery.body)
        which.newest[place.broker] = max(which.newest[place.broker], sent)
        spans = which.disturbed[place.broker]
        if spans and spans[-1].over < sent:
            spans.end(delivery.time)
        before = which.got.get(place)
        if before is not None:
            if before.body != delivery.body:
                self.blame(f"{group}: at {place} stands {before.body}, then {delivery.body}")
            self._repeats.append(Repeat(group, place, before, delivery))
        which.got[place] = delivery
        if which.ordered:
            self._check_order(which, place, delivery)

    def _check_order(self, group: Group, place: Place, delivery: Delivery) -> None:
        queue = place.broker, place.queue
        last = group.last_offset.get(queue, place.offset - 1)
        if place.offset > last + 1:
            self.blame(
                f"{group.name} {delivery.member}: {place} comes after offset {last}, "
                "nothing in between"
            )
        group.last_offset[queue] = place.offset

    # promises ----------------------------------------------------------------------------------

    def check_repeats(self) -> None:
        """The repetitions of the round, and which of them were allowed."""
        repeats, self._repeats = self._repeats, []
        for repeat in repeats:
            if self._is_declared(repeat):
                self.declared[repeat.group] += 1
            else:
                first, second = repeat.first, repeat.second
                self.blame(
                    f"{repeat.group}: {repeat.place} came to {first.member} and, "
                    f"{second.time - first.time:.2f} s later, to {second.member}, "
                    f"which nothing declares ({self._why_not(repeat)})"
                )

    def _disturbances(self, repeat: Repeat) -> list[tuple[float, float]]:
        group = self.groups[repeat.group]
        all_spans = [*group.disturbed[repeat.place.broker]]
        if not group.ordered:
            all_spans += group.passing[repeat.place.broker, repeat.place.queue]
        spans = [(span.begin, span.end) for span in all_spans]
        begin, end = repeat.first.time, repeat.second.time
        return sorted(span for span in spans if span[1] >= begin - 0.1 and span[0] <= end + 0.5)

    def _is_declared(self, repeat: Repeat) -> bool:
        spans = self._disturbances(repeat)
        covered = repeat.first.time
        settled = self.groups[repeat.group].settled
        for begin, end in spans:
            if begin - covered > settled:
                return False
            covered = max(covered, end)
        return bool(spans) and repeat.second.time - covered <= settled

    def _why_not(self, repeat: Repeat) -> str:
        at = repeat.second.time
        spans = [f"{begin - at:.1f} to {end - at:.1f}" for begin, end in self._disturbances(repeat)]
        return f"disturbed, in seconds before it: {'; '.join(spans) or 'never'}"

    def missing(self, group: str, before: float = inf) -> list[str]:
        """Messages acknowledged before then that a group has not received."""
        bodies = self.groups[group].bodies
        return [
            body
            for body, sending in self.sent.items()
            if sending.place is not None and sending.ended < before and body not in bodies
        ]

    def check_stored(self, stored: Iterable[tuple[Place, str]]) -> None:
        """Compare the messages at the brokers in the end with those sent and consumed."""
        places: dict[str, list[Place]] = defaultdict(list)
        for place, body in stored:
            places[body].append(place)
        for body, where in places.items():
            sending = self.sent.get(body)
            if sending is None:
                self.blame(f"{body} at {where} was never sent")
            elif len(where) > 1:
                self.sent_again += 1
                if body.startswith("once") or not self._any_disturbed(sending.began, sending.ended):
                    self.blame(f"{body} was sent once, acknowledged at {sending.place}: {where}")
        for body, sending in self.sent.items():
            if sending.place is not None and sending.place not in places[body]:
                self.blame(f"{body} was acknowledged at {sending.place}, is at {places[body]}")
        everything = {place for where in places.values() for place in where}
        for group in self.groups.values():
            unread = everything - group.got.keys()
            if unread:
                self.blame(f"{group.name} never got {len(unread)}: {sorted(unread)[:5]}")

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Attach the timeline to an error of the enclosed test."""
        try:
            yield
        except Exception as error:
            self.blame(f"{type(error).__name__}: {error}")
            raise


def make_body(producer: str, number: int) -> str:
    """Create a unique message name with its creation time."""
    return f"{producer}-{number}-{time.time():.3f}"


def sent_at(body: str) -> float:
    """The creation time of a message."""
    return float(body.rpartition("-")[2])
