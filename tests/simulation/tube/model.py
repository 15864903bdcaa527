"""The actions and answers of TubeMQ clients, compared with the content of the brokers.

kept        an acknowledged message is there, once, at the reported offset, in its partition's
            order; with flush mode `os` a power cut may lose unflushed ones
true        no message is there, or delivered, that was not sent so
confirmed   a group is never past messages that its members received and confirmed
one hand    no two members confirm the same messages while their broker is alive
promised    a group's offset does not go back while its broker is alive; after a crash it is at
            the last save, after an orderly stop unchanged
delivered   at the end each group has received all that it wants
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from mq.client.tube import TubeBatch, TubeMessage
from mq.client.tube.producer import TubeSendResult

# Broker, topic, partition.
Key = tuple[int, str, int]


@dataclass(eq=False)
class Sent:
    """A message. ``burst``: its burst, and its position there."""

    number: int
    topic: str
    body: bytes
    kind: str
    at: float
    burst: tuple[int, int] = (-1, 0)
    key: Key | None = None  # its place as reported by the broker
    offset: int = -1
    acknowledged: float = inf


@dataclass(frozen=True)
class Stored:
    """A record of a partition: its index offset and its number; -1: no client sent it."""

    offset: int
    number: int


@dataclass
class Group:
    """A group of consumers. ``kinds``: the message types that it wants, None for all."""

    name: str
    topic: str
    kinds: tuple[str, ...] | None = None
    given: set[int] = field(default_factory=set)
    # numbers whose confirmation was requested by their receiver
    asked: set[int] = field(default_factory=set)

    def wants(self, sent: Sent) -> bool:
        return sent.topic == self.topic and (self.kinds is None or sent.kind in self.kinds)


def number_of(body: bytes) -> int:
    """The number at the start of a body, -1 for none."""
    text = body.partition(b" ")[0]
    return int(text) if text.isdigit() else -1


def key_of(text: str) -> Key:
    broker, topic, partition = text.split(":")
    return int(broker), topic, int(partition)


class Model:
    """All known actions; `problems` are violations."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.problems: list[str] = []
        self.sent: dict[int, Sent] = {}
        self.groups: dict[str, Group] = {}
        self.requests = 0
        self.partitions: dict[str, int] = {}  # topics at each broker, as acknowledged
        self.wanted: dict[str, int] = {}  # and as last requested
        # Of each broker: messages acknowledged between these moments may be gone.
        self.cuts: dict[int, list[tuple[float, float]]] = {}
        # The end of a member's last confirmation, by group, partition, start of the broker.
        self._confirmed: dict[tuple[str, str, int], tuple[int, str]] = {}
        self._now = now

    def wrong(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)

    # reports of clients ---------------------------------------------------------------------------

    def sends(self, topic: str, kind: str, filler: bytes, burst: tuple[int, int] = (-1, 0)) -> Sent:
        """A message is about to be sent."""
        self.requests += 1
        number = len(self.sent)
        body = f"{number} ".encode() + filler
        one = self.sent[number] = Sent(number, topic, body, kind, self._now(), burst)
        return one

    def acknowledged(self, sent: Sent, result: TubeSendResult) -> None:
        sent.key = key_of(str(result.partition.key))
        sent.offset = -1 if result.append_offset is None else result.append_offset
        sent.acknowledged = self._now()

    def given(self, group: Group, batch: TubeBatch, member: str = "", start: int = 0) -> list[int]:
        """A member has received messages; returns their numbers. ``start``: the broker's start."""
        self.requests += 1
        behind, by = self._confirmed.get((group.name, batch.partition_key, start), (0, ""))
        if batch.offset < behind and by == member:
            self.wrong(
                f"{member} was given {batch.offset} of {batch.partition_key} again, and had "
                f"confirmed what is before {behind}"
            )
        return [self.given_one(group, message) for message in batch.messages]

    def confirmed(
        self, group: Group, batch: TubeBatch, reached: int, member: str, start: int
    ) -> None:
        """A broker, in this start, has acknowledged the confirmation of everything before an
        offset.
        """
        key = group.name, batch.partition_key, start
        behind, by = self._confirmed.get(key, (0, ""))
        if batch.offset < behind:
            self.wrong(
                f"{member} has confirmed {batch.offset} of {batch.partition_key}, which {by} had: "
                f"all before {behind} was confirmed"
            )
        self._confirmed[key] = max(behind, reached), member

    def given_one(self, group: Group, message: TubeMessage) -> int:
        number = number_of(message.body)
        sent = self.sent.get(number)
        if sent is None or sent.body != message.body:
            self.wrong(f"{group.name} was given what nobody sent: {message.body[:40]!r}")
        elif not group.wants(sent) or message.topic != sent.topic:
            self.wrong(f"{group.name} was given message {number}, which it does not want")
        group.given.add(number)
        return number

    # content of brokers ---------------------------------------------------------------------------

    def may_be_lost(self, broker: int, since: float, until: float) -> None:
        self.cuts.setdefault(broker, []).append((since, until))

    def committed(self, group: Group, key: Key, offset: int, content: list[Stored]) -> None:
        """A broker reports the offset of a group in a partition with this content."""
        for record in content:
            if record.offset >= offset:
                break
            sent = self.sent.get(record.number)
            if sent is None or not group.wants(sent) or record.number in group.asked:
                continue
            state = "given and not confirmed" if record.number in group.given else "not given"
            self.wrong(
                f"{group.name} is at {offset} of {key}, and message {record.number} at "
                f"{record.offset} was {state}"
            )

    # final checks ---------------------------------------------------------------------------------

    def check(self, content: dict[Key, list[Stored]]) -> None:
        """Compare the stored messages with the sent and delivered ones."""
        places: dict[int, tuple[Key, Stored]] = {}
        for key, records in content.items():
            for record in records:
                sent = self.sent.get(record.number)
                if sent is None or sent.topic != key[1]:
                    self.wrong(f"{key} has at {record.offset} what nobody sent there")
                elif record.number in places:
                    self.wrong(f"message {record.number} is stored twice")
                places[record.number] = key, record
            self._check_order(key, records)
        for sent in self.sent.values():
            if sent.acknowledged < inf:
                self._check_kept(sent, places.get(sent.number))
        for group in self.groups.values():
            for number in places:
                wanted = number in self.sent and group.wants(self.sent[number])
                if wanted and number not in group.given:
                    self.wrong(f"{group.name} was never given message {number}")

    def _check_kept(self, sent: Sent, place: tuple[Key, Stored] | None) -> None:
        assert sent.key is not None
        cuts = self.cuts.get(sent.key[0], ())
        if place is None:
            # The time of the send, because the answer may have been in flight at the power cut.
            if not any(since <= sent.acknowledged and sent.at <= until for since, until in cuts):
                self.wrong(
                    f"message {sent.number} was acknowledged at {sent.offset} of {sent.key}, and "
                    "is not there"
                )
        elif place[0] != sent.key or place[1].offset != sent.offset:
            self.wrong(
                f"message {sent.number} was acknowledged at {sent.offset} of {sent.key}, and is at "
                f"{place[1].offset} of {place[0]}"
            )

    def _check_order(self, key: Key, records: list[Stored]) -> None:
        soonest, bursts = inf, dict[int, int]()
        for record in reversed(records):
            sent = self.sent.get(record.number)
            if sent is None:
                continue
            burst, place = sent.burst
            if sent.at > soonest or (burst >= 0 and bursts.get(burst, place) < place):
                self.wrong(f"message {sent.number} is stored before one that was sent before it")
            soonest = min(soonest, sent.acknowledged)
            bursts[burst] = place
