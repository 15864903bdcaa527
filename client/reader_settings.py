"""Settings of a reader: how a member of a group reads."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mq.client.process_queue import FlowLimits
from mq.client.pulling import PullSettings
from mq.client.rebalance import Strategy, allocate_averagely
from mq.protocol.bodies import MessageQueue

#: Hears which queues of a topic are this member's: `(topic, all of them, mine)`.
AssignmentListener = Callable[[str, list[MessageQueue], list[MessageQueue]], Any]


@dataclass(frozen=True)
class ReaderSettings:
    """How a member reads. With `broadcasting` it has all queues and needs no locks."""

    ordered: bool = False
    broadcasting: bool = False
    commits: bool = True  # again and again; else only when it is asked to
    commit_interval: float | None = None  # seconds
    strategy: Strategy = allocate_averagely
    limits: FlowLimits = field(default_factory=FlowLimits)
    pulls: PullSettings = field(default_factory=PullSettings)
    pushed: bool = False  # messages are pushed, too

    @property
    def locks(self) -> bool:
        """Whether queues are locked at their brokers."""
        return self.ordered and not self.broadcasting
