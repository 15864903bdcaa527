"""Pops: a popped message is either acknowledged or redelivered, never both.

A pop hides a message for a time by the broker's clock. A client that acknowledges it in that time,
and gets a success, has it for good.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass
class Pop:
    """A popped message, by its number."""

    number: int
    broker: str
    at: float  # when its request was sent
    hidden_until: float  # ms since 1970, by the broker's clock
    is_unanswered: bool = False  # an acknowledgement may have been accepted


@dataclass
class Popped:
    """The history of a message."""

    pops: list[Pop] = field(default_factory=list)
    acknowledged_at: float = 0.0
    broker: str = ""


class Pops:
    """The pops of a group in a topic."""

    def __init__(self, group: str, topic: str, wrong: Callable[[str], None]) -> None:
        self.group = group
        self.topic = topic
        self.members: list[str] = []  # the names of the clients that pop
        self.messages: dict[int, Popped] = {}
        self._wrong = wrong

    def popped(
        self,
        pop: Pop,
        may_have_lost: Callable[[str, float, float], bool],
        later: Callable[[Callable[[], None]], None] = lambda check: check(),
    ) -> None:
        """A message has arrived. ``may_have_lost`` says whether a broker may have lost an answered
        request.

        ``later`` asks that once the broker of the message is known.
        """
        known = self.messages.setdefault(pop.number, Popped())
        known.broker = pop.broker
        if known.acknowledged_at and pop.at > known.acknowledged_at:
            asked, answered = known.pops[0].at, known.acknowledged_at

            def check() -> None:
                if not may_have_lost(pop.broker, asked, answered):
                    self._wrong(
                        f"{self.group}: message {pop.number} was acknowledged at {answered:.6f} "
                        f"and came again at {pop.at:.6f}"
                    )

            later(check)
        known.pops.append(pop)

    def acknowledged(self, number: int, now: float) -> None:
        self.messages[number].acknowledged_at = now

    def check_all_done(self, stored: Iterable[int], excused: Callable[[int], bool]) -> None:
        """Each stored message was acknowledged, if only by a request without an answer."""
        for number in stored:
            known = self.messages.get(number)
            if known is None:
                self._wrong(f"{self.group}: message {number} is stored and was never popped")
            elif not known.acknowledged_at and not any(p.is_unanswered for p in known.pops):
                if not excused(number):
                    self._wrong(
                        f"{self.group}: message {number} was popped at "
                        f"{[round(pop.at, 3) for pop in known.pops]} and did not come again"
                    )
