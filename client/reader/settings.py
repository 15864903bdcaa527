"""Settings of a reader."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mq.client.pull.process_queue import FlowLimits
from mq.client.pull.pulling import PullSettings
from mq.client.reader.rebalance import Strategy, allocate_averagely
from mq.protocol.bodies import MessageQueue

#: Receives a topic's assignment: `(topic, all queues, this member's queues)`.
AssignmentListener = Callable[[str, list[MessageQueue], list[MessageQueue]], Any]


@dataclass(frozen=True)
class ReaderSettings:
    """How a member reads. With `broadcasting` it owns all queues and needs no locks."""

    ordered: bool = False
    broadcasting: bool = False
    commits: bool = True  # commit periodically; otherwise only on request
    commit_interval: float | None = None  # seconds
    strategy: Strategy = allocate_averagely
    limits: FlowLimits = field(default_factory=FlowLimits)
    pulls: PullSettings = field(default_factory=PullSettings)
    pushed: bool = False  # messages are pushed, too

    @property
    def locks(self) -> bool:
        """Whether queues are locked at their brokers."""
        return self.ordered and not self.broadcasting
