"""What was sent, acknowledged and consumed while faults struck, and what of it was not promised.

A message is consumed twice when a group gets what stands at one place (broker, queue, offset)
twice. That is declared, at least once being what a consumer promises, only where the offset may
not have been committed in between: from the first time on, something disturbed the queue again and
again, without a break of `SETTLED` seconds in which the consumer commits and the broker writes it
down. What disturbs a queue is a fault of its broker, until the group gets of it what was sent after
the fault; and for concurrent groups that it passes from one member to another, because what the
listener has in hand goes on, and because the two may not agree for a while whose it is. An ordered
queue passes without that. A Java consumer may have a pull of before the fault hang for 30 s (what
waits for answers does not notice the end of its connection), and go on with an answer from there.

A message is stored twice where a producer sends it again itself, which is declared when a broker
was disturbed while it did.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from tests.system.faults.cluster import OFFSETS_SECONDS

# A commit and a write of the offsets, each as often as OFFSETS_SECONDS, and what a busy machine
# needs for them.
SETTLED = 2 * OFFSETS_SECONDS + 1.5
JAVA_SETTLED = SETTLED + 30.0
SENDERS = "senders"
_MOST_BLAMED = 20  # in the timeline


class Place(NamedTuple):
    """Where a message stands in the topic."""

    broker: str
    queue: int
    offset: int


class Delivery(NamedTuple):
    """A message that a member of a group got."""

    time: float
    member: str
    body: str


class Repeat(NamedTuple):
    """One place that a group got a second time."""

    group: str
    place: Place
    first: Delivery
    second: Delivery


@dataclass
class Sending:
    """A message that a producer tried to send; `place` is where it was acknowledged."""

    began: float
    ended: float = inf
    place: Place | None = None


@dataclass
class Span:
    """From when to when something is disturbed; `over` is when what does it has ended."""

    begin: float
    end: float = inf
    over: float = inf


class Spans(list[Span]):
    """One after the other."""

    def begin(self, at: float) -> None:
        """Disturbed from now on; once more if it is."""
        if not self or self[-1].end < inf:
            self.append(Span(at))
        self[-1].over = inf

    def end(self, at: float) -> None:
        if self and self[-1].end == inf:
            self[-1].end = self[-1].over = at


@dataclass
class Group:
    """What a group has got."""

    name: str
    ordered: bool = False
    settled: float = SETTLED
    got: dict[Place, Delivery] = field(default_factory=dict)
    bodies: set[str] = field(default_factory=set)
    last_offset: dict[tuple[str, int], int] = field(default_factory=dict)
    #: When the newest message that was got of a broker was sent.
    newest: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    #: While a queue passes from one member to another: nobody has it, or several say so.
    passing: dict[tuple[str, int], Spans] = field(default_factory=lambda: defaultdict(Spans))
    shares: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    #: By broker: from a fault's begin until the group has gone on.
    disturbed: dict[str, Spans] = field(default_factory=lambda: defaultdict(Spans))
    deliveries: int = 0


class Book:
    """Everything that a run notes. Times are seconds since 1970: Java's clock is the same."""

    def __init__(self) -> None:
        self.events: list[tuple[float, str]] = []
        self.faults: list[str] = []  # what was promised and not kept
        self.sent: dict[str, Sending] = {}
        self.groups: dict[str, Group] = {}
        self.disturbed: dict[str, Spans] = defaultdict(Spans)  # by broker, for who sends
        self.declared: Counter[str] = Counter()
        self.sent_again = 0
        self.longest_send = 0.0  # to a healthy broker
        #: When the newest message was made that each broker has taken of its own sender.
        self.newest_sent: dict[str, float] = defaultdict(float)
        self._repeats: list[Repeat] = []

    def newest(self, group: str) -> Mapping[str, float]:
        """By broker, when the newest message was made that a group has got, or SENDERS sent."""
        return self.newest_sent if group == SENDERS else self.groups[group].newest

    def note(self, text: str) -> None:
        self.events.append((time.time(), text))

    def blame(self, text: str) -> None:
        """Something promised was not kept."""
        if len(self.faults) < _MOST_BLAMED:
            self.note(f"NOT KEPT: {text}")
        self.faults.append(text)

    def timeline(self, seconds: float = 45.0) -> str:
        """What happened of late."""
        now = time.time()
        return "\n".join(
            f"{at - now:8.2f} s  {text}" for at, text in self.events if at > now - seconds
        )

    # faults ---------------------------------------------------------------------------------

    def disturb(self, broker: str) -> None:
        """A fault of a broker begins."""
        now = time.time()
        self.disturbed[broker].begin(now)
        for group in self.groups.values():
            group.disturbed[broker].begin(now)

    def over(self, broker: str) -> None:
        """It has ended; the broker may still have to be found again."""
        now = time.time()
        for group in self.groups.values():
            group.disturbed[broker][-1].over = now

    def settle(self) -> None:
        """Every broker serves everybody again."""
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
        """A member has these queues of the topic from now on."""
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
        """A member got a message."""
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

    # what was promised ----------------------------------------------------------------------

    def check_repeats(self) -> None:
        """Those of the round: which of them were declared."""
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
        """What was acknowledged before then and has not come to a group."""
        bodies = self.groups[group].bodies
        return [
            body
            for body, sending in self.sent.items()
            if sending.place is not None and sending.ended < before and body not in bodies
        ]

    def check_stored(self, stored: Iterable[tuple[Place, str]]) -> None:
        """What the brokers have in the end against what was sent and consumed."""
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
        """An error of the test within has the timeline."""
        try:
            yield
        except Exception as error:
            self.blame(f"{type(error).__name__}: {error}")
            raise


def make_body(producer: str, number: int) -> str:
    """Names a message, and says when it was made; no two are alike."""
    return f"{producer}-{number}-{time.time():.3f}"


def sent_at(body: str) -> float:
    """When a message was made."""
    return float(body.rpartition("-")[2])
