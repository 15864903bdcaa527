"""Messages: sent, acknowledged and stored.

A broker with SYNC_FLUSH keeps everything that it acknowledged. One with ASYNC_FLUSH keeps it when
it is killed; when its power is cut it may lose the end of its log, for the duration of a flush.
Messages after such a loss get the queue offsets of lost ones.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from tests.simulation.model.groups import Group
from tests.simulation.model.pops import Pops
from tests.simulation.model.registers import Registers


class Place(NamedTuple):
    """The place of a message."""

    topic: str
    broker: str
    queue_id: int
    offset: int


@dataclass
class Sent:
    """A message that a producer tried to send, by its number."""

    number: int
    topic: str
    at: float
    tries: int = 1  # how often the client may store it
    kind: str = "single"
    places: list[Place] = field(default_factory=list)  # as acknowledged
    acknowledged_at: float = 0.0
    # Of a waiting message: its broker, and the range of its delivery time by the broker's clock, ms
    # since 1970.
    waits_at: str = ""
    due: float = 0.0
    due_latest: float = 0.0
    delay: float = 0.0  # ms, of its level
    # Those of `places` for which the broker reported that no slave has the message.
    unreplicated: list[Place] = field(default_factory=list)
    # Of a transaction: the decision of its producer ("commit" or "rollback"), "" before.
    decided: str = ""


@dataclass
class Found:
    """The messages that can be read at the end."""

    numbers: dict[Place, int] = field(default_factory=dict)
    minimums: dict[tuple[str, str, int], int] = field(default_factory=dict)  # by queue
    stored_at: dict[Place, float] = field(default_factory=dict)  # ms since 1970, broker's clock
    # Seconds by the clock of the model, if the broker's clock was right all the time.
    stored: dict[Place, float] = field(default_factory=dict)

    def of_topic(self, topic: str) -> dict[int, list[Place]]:
        """The places of each message."""
        result: dict[int, list[Place]] = defaultdict(list)
        for place, number in self.numbers.items():
            if place.topic == topic:
                result[number].append(place)
        return result


class Model:
    """The actions and answers. ``flush`` is the mode of the brokers."""

    def __init__(self, flush: str = "SYNC_FLUSH") -> None:
        self.flush = flush
        self.keeps = True  # False: brokers delete old messages
        self.problems: list[str] = []
        self.requests = 0
        self.sent: dict[int, Sent] = {}
        self.groups: dict[str, Group] = {}
        self.pops: dict[str, Pops] = {}
        self.registers = Registers(self.wrong)
        # When each broker lost unflushed data.
        self.losses: dict[str, list[float]] = defaultdict(list)
        self.starts: dict[str, int] = {}  # of each broker
        self.crashes: dict[str, list[float]] = {}  # when each ended without an orderly stop
        # Whether there were only orderly stops.
        self.is_orderly = False
        # Whether logs have changed on disk: checksums cover the bodies alone.
        self.is_rotten = False
        # Names of brokers on several machines, if the clock of at least one was set.
        self.clocks_differ: set[str] = set()
        # Whether messages that not all members in sync have may be lost with the next master.
        self.shows_confirmed = False
        # Whether slaves may show messages that their master does not show yet.
        self.shows_early = False
        self._rotten_since: dict[str, float] = {}
        # When brokers were asked to stop, and served again.
        self.stops: list[tuple[float, float]] = []
        self._lost_spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
        # When a slave replaced a master, and since when actions of groups may be forgotten.
        self._failovers: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self._taken: dict[Place, tuple[int, float]] = {}

    def leave_out_but(self, clients: Collection[str]) -> None:
        """Expect nothing of groups without a member among these clients."""
        wanted = set(clients)
        self.groups = {n: one for n, one in self.groups.items() if wanted & set(one.members)}
        self.pops = {n: one for n, one in self.pops.items() if wanted & set(one.members)}

    def wrong(self, text: str) -> None:
        """Record a violation."""
        self.problems.append(text)

    def may_be_lost(
        self, broker: str, since: float, until: float, *, keeps_acknowledged: bool = False
    ) -> None:
        """A broker without flush promise lost unflushed data; messages of that time may be gone, or
        only unacknowledged ones.
        """
        if not keeps_acknowledged:
            self._lost_spans[broker].append((since, until))
        self.losses[broker].append(until)
        for group in self.groups.values():
            group.gave_up_order.add(broker)

    def fails_over(self, broker: str, since: float, now: float) -> None:
        """A slave is about to replace a broker. It may not know actions of groups since a moment,
        nor created and deleted subjects.
        """
        self._failovers[broker].append((since, now))
        self.registers.forget(broker, since)

    def has_failed_over(self, broker: str, since: float) -> bool:
        """Whether a slave has replaced a broker since a moment."""
        return any(at >= since for _, at in self._failovers[broker])

    def may_have_forgotten(self, broker: str, asked: float, answered: float) -> bool:
        """Whether a broker may not know an acknowledged action of a group."""
        return self.may_have_lost(broker, asked, answered) or any(
            since <= answered and asked <= until for since, until in self._failovers[broker]
        )

    def rots(self, broker: str, since: float) -> None:
        """A record of its log has changed on disk. Any recovery may drop later records; earlier
        ones stay.
        """
        self.may_be_lost(broker, since, inf)
        self.is_rotten = True
        self._rotten_since.setdefault(broker, since)

    def may_have_lost(self, broker: str, asked: float, answered: float) -> bool:
        """Whether a broker may have lost an acknowledged request.

        Its answer may have been in flight at the loss.
        """
        return any(
            since <= answered and asked <= until for since, until in self._lost_spans[broker]
        )

    def last_loss(self, broker: str, before: float) -> float:
        """When a broker may last have lost the end of its log before a moment: in a power cut, or,
        if its log has changed, at any recovery. 0: never.
        """
        crashes = self.crashes.get(broker, ())
        rotten = self._rotten_since.get(broker, inf)
        times = [*self.losses[broker], *(at for at in crashes if at >= rotten)]
        return max((at for at in times if at <= before), default=0.0)

    def lost_acknowledged(self, broker: str, since: float) -> bool:
        """Whether a broker may have lost anything acknowledged since a moment."""
        return any(until >= since for _, until in self._lost_spans[broker])

    def lost_any(self, broker: str, since: float) -> bool:
        """Whether a broker may have lost consequences of acknowledged requests."""
        return any(at >= since for at in self.losses[broker])

    def gave_again(self, broker: str, since: float) -> bool:
        """Whether a broker may have reused queue offsets since a moment."""
        return any(at >= since for at in self.losses[broker])

    def is_past(self, offset: int, minimum: int) -> bool:
        """Whether a broker may have deleted an offset as expired, given that its queue starts at
        ``minimum``.
        """
        return not self.keeps and offset < minimum

    def begin(self, sent: Sent) -> Sent:
        """A producer is about to send a message."""
        self.sent[sent.number] = sent
        self.requests += 1
        return sent

    def acknowledged(self, sent: Sent, place: Place, now: float) -> None:
        """A broker has reported the place of a message."""
        sent.places.append(place)
        sent.acknowledged_at = now
        before = self._taken.get(place)
        if before is not None and before[0] != sent.number:
            if not self.gave_again(place.broker, before[1]):
                self.wrong(f"{place} was given to message {before[0]} and to {sent.number}")
        self._taken[place] = sent.number, sent.at  # not now: the answer was in flight

    def check_stored(self, found: Found) -> None:
        """Every acknowledged message is there once, in its place, and no other message is."""
        copies: dict[int, list[Place]] = defaultdict(list)
        for place, number in found.numbers.items():
            copies[number].append(place)
            sent = self.sent.get(number)
            if sent is None:
                self.wrong(f"{place} holds message {number}, which nobody sent")
            elif sent.topic != place.topic:
                self.wrong(f"{place} holds message {number}, which was sent to {sent.topic}")
        for sent in self.sent.values():
            for place in sent.places:
                self._check_place(sent, place, found)
            self._check_copies(sent, copies.get(sent.number, []))

    def _check_place(self, sent: Sent, place: Place, found: Found) -> None:
        other = found.numbers.get(place)
        if other == sent.number or self.may_have_lost(place.broker, sent.at, sent.acknowledged_at):
            return
        if self.is_past(place.offset, found.minimums.get(place[:3], 0)):
            return
        if place in sent.unreplicated and self.has_failed_over(place.broker, sent.at):
            return
        what = "nothing" if other is None else f"message {other}"
        self.wrong(
            f"message {sent.number} ({sent.kind}) was acknowledged at {place} at "
            f"{sent.acknowledged_at:.6f} and {what} is there"
        )

    def _check_copies(self, sent: Sent, here: list[Place]) -> None:
        if sent.kind == "transaction":  # its half may also have been sent to another broker
            brokers = [place.broker for place in here]
            if len(brokers) != len(set(brokers)):
                self.wrong(f"transaction {sent.number} was committed more than once: {here}")
            return
        # an orderly stop answers everything that it has stored
        most = 1 if self.is_orderly else sent.tries
        # Deliveries before a crash may be repeated; so is a slot of the timer that a stop
        # interrupts.
        comes_again = sent.kind == "timer" if self.is_orderly else sent.kind != "single"
        if comes_again and here:
            most += self.starts[here[0].broker] - 1
        if len(here) > most:
            self.wrong(f"message {sent.number} ({sent.kind}), sent {most} times, is at {here}")
