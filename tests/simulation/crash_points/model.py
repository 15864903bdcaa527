"""The actions on a store, and what must be there after a crash.

The ledger is a list of events; for a point only earlier ones count. They determine the expectation:
which messages may be in which place, and which must.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

Place = tuple[str, int, int]  # topic, queue id, queue offset


@dataclass(frozen=True)
class Message:
    """A message that was put into the store."""

    number: int
    place: Place
    start: int  # physical offsets
    end: int
    body: bytes
    key: str

    @property
    def topic(self) -> str:
        return self.place[0]


@dataclass(frozen=True)
class Appended:
    message: Message


@dataclass(frozen=True)
class Stored:
    """The store has acknowledged it."""

    number: int


@dataclass(frozen=True)
class Flushed:
    """The store reports that its log is on the disk up to this offset."""

    upto: int


@dataclass(frozen=True)
class Found:
    """A start has finished: these messages can be read, and no others exist."""

    numbers: frozenset[int]


@dataclass(frozen=True)
class Expiring:
    """Messages before an offset may expire from now on, oldest first."""

    before: int


@dataclass(frozen=True)
class Deleting:
    """A topic is being deleted."""

    topic: str


@dataclass(frozen=True)
class Deleted:
    """The deletion was acknowledged."""

    topic: str


@dataclass(frozen=True)
class Cutting:
    """The log is being truncated at an offset."""

    point: int


@dataclass(frozen=True)
class Cut:
    """The truncation is done."""

    point: int


@dataclass(frozen=True)
class Begun:
    """Of a broker: a message was sent and may be delivered."""

    body: str


@dataclass(frozen=True)
class Due:
    """The message was acknowledged and must be delivered."""

    body: str


@dataclass(frozen=True)
class RolledBack:
    """A transaction was rolled back: its message must not be delivered."""

    body: str


@dataclass(frozen=True)
class TransactionEnding:
    """The end of a transaction was requested, with these fields."""

    body: str
    fields: dict[str, str]


@dataclass(frozen=True)
class MessageAcknowledging:
    """The acknowledgement of a popped message was sent: it need not be redelivered."""

    body: str


@dataclass(frozen=True)
class AcknowledgementRefused:
    """The acknowledgement was refused: the message is redelivered."""

    body: str


@dataclass(frozen=True)
class MessageAcknowledged:
    """The acknowledgement was answered: the message must not be redelivered."""

    body: str


@dataclass(frozen=True)
class OffsetCommitting:
    """The commit of a group's offset in a queue was sent."""

    queue_id: int
    offset: int
    at: float


@dataclass(frozen=True)
class OffsetCommitted:
    """The commit was answered."""

    queue_id: int
    offset: int
    at: float


@dataclass(frozen=True)
class Stopped:
    """A broker has stopped in order, with everything saved."""


Event = (
    Appended
    | Stored
    | Flushed
    | Found
    | Expiring
    | Deleting
    | Deleted
    | Cutting
    | Cut
    | Begun
    | Due
    | RolledBack
    | TransactionEnding
    | MessageAcknowledging
    | AcknowledgementRefused
    | MessageAcknowledged
    | OffsetCommitting
    | OffsetCommitted
    | Stopped
)


@dataclass
class Expectation:
    """The expected result of a start."""

    messages: dict[int, Message] = field(default_factory=dict)  # that may be there
    promised: set[int] = field(default_factory=set)  # that must be there
    deleting: set[str] = field(default_factory=set)  # topics that are complete or deleted
    doomed: set[int] = field(default_factory=set)  # messages of these
    expired_before: int = 0
    gone: set[int] = field(default_factory=set)  # messages that must not be there

    @classmethod
    def of(cls, events: Iterable[Event], *, is_synced: bool, has_lost_power: bool) -> "Expectation":
        """``is_synced``: acknowledged messages have been flushed; otherwise a power cut takes
        unflushed ones.
        """
        self = cls()
        survives_all = is_synced or not has_lost_power
        stored: set[int] = set()
        flushed = 0
        for event in events:
            match event:
                case Appended(message):
                    self.messages[message.number] = message
                case Stored(number):
                    stored.add(number)
                case Flushed(upto):
                    flushed = upto
                case Found(numbers):
                    self.gone |= self.messages.keys() - numbers
                    self.messages = {n: m for n, m in self.messages.items() if n in numbers}
                    self.promised = set(numbers)
                    stored.clear()
                    self.doomed.clear()
                    self.deleting.clear()
                case Expiring(before):
                    self.expired_before = max(self.expired_before, before)
                case Deleting(topic):
                    self.deleting.add(topic)
                    self.doomed |= {n for n, m in self.messages.items() if m.topic == topic}
                case Deleted(topic):
                    self._delete(topic)
        self.promised |= {
            number
            for number in stored & self.messages.keys()
            if survives_all or self.messages[number].end <= flushed
        }
        self.promised &= self.messages.keys()
        self.promised -= self.doomed
        self.promised = {n for n in self.promised if self.messages[n].start >= self.expired_before}
        return self

    def _delete(self, topic: str) -> None:
        gone = {n for n in self.doomed if self.messages[n].topic == topic}
        for number in gone:
            del self.messages[number]
        self.gone |= gone
        self.doomed -= gone
        self.deleting.discard(topic)

    def problems(self, found: dict[Place, bytes], keyed: dict[str, list[bytes]]) -> list[str]:
        """The violations in what was found: bodies by place, and bodies by key."""
        wrong = []
        allowed: dict[Place, list[Message]] = {}
        for message in self.messages.values():
            allowed.setdefault(message.place, []).append(message)
        present: set[int] = set()
        for place, body in sorted(found.items()):
            numbers = [m.number for m in allowed.get(place, []) if m.body == body]
            if not numbers:
                wrong.append(f"{place} holds {body[:20]!r}, which was not put there")
            present.update(numbers)
        for number in sorted(self.promised - present):
            message = self.messages[number]
            there = found.get(message.place)
            what = "nothing" if there is None else repr(there[:20])
            wrong.append(f"{message.body[:20]!r} was promised at {message.place}; {what} is there")
        wrong += self._order_problems(present)
        for number in sorted(present):
            message = self.messages[number]
            if message.key and keyed.get(message.key) != [message.body]:
                hits = [body[:20] for body in keyed.get(message.key, [])]
                wrong.append(f"key {message.key} of {message.body[:20]!r} finds {hits}")
        return wrong

    def _order_problems(self, present: set[int]) -> list[str]:
        """The log keeps a contiguous part; a deleted topic is deleted as a whole."""
        wrong = []
        for topic in sorted(self.deleting):
            doomed = {n for n in self.doomed if self.messages[n].topic == topic}
            if doomed & present and doomed - present and not self.expired_before:
                wrong.append(f"topic {topic} is half deleted: {sorted(doomed - present)} are gone")
        order = sorted(self.messages.values(), key=lambda message: message.start)
        stretch = [m for m in order if m.number not in self.doomed]
        there = [index for index, m in enumerate(stretch) if m.number in present]
        if there:
            missing = [
                m.body[:20] for m in stretch[there[0] : there[-1]] if m.number not in present
            ]
            if missing:
                wrong.append(f"{missing} are missing within the log")
            if there[0] and stretch[there[0] - 1].start >= self.expired_before:
                wrong.append(f"{stretch[there[0] - 1].body[:20]!r} is missing before the first")
        return wrong
