"""Push sessions: the channels that get the messages of queues.

A session is a group of a client on one channel, with the queues in its last heartbeat. The next
heartbeat of the group replaces them, also by none (the snode branch keeps the old ones then); a
channel that closes, or a group that leaves, has none.

The names of the queues select one of two dialects of push, so that a client gets what it can
decode:

  head   `messageQueueSet`: queues with their brokers; whole records are pushed
  seed   `queueIdSet`: only numbers, of any broker; only bodies are pushed

Sources: the snode branch's PushSessionManager, SubscriptionManagerImpl (SubscriptionManager of the
seed).
"""

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mq.daemons.channel import Channel
from mq.daemons.snode.push.message import PushHeaders
from mq.protocol.bodies import ConsumerData, ConsumeType, MessageQueue

log = logging.getLogger(__name__)

# The broker of queues that a client of the seed names only by numbers.
ANY_BROKER = ""
# Limit of queues of one group on one channel; messages of others are pulled. A cluster of 64
# brokers with 16 queues each of 64 topics has as many.
MOST_QUEUES = 65_536
# Approximate bytes of a queue in a session: its key, its table entries, its headers.
QUEUE_COST = 1500
_KEPT = "push sessions"  # key in `Channel.kept`


def queues_to_push(consumer: ConsumerData) -> set[MessageQueue]:
    """The queues in a heartbeat of a group that gets pushes; empty for other consumers."""
    if consumer.consume_type is not ConsumeType.CONSUME_PUSH:
        return set()
    queues: set[MessageQueue] = set()
    for subscription in consumer.subscription_data_set:
        topic = subscription.topic
        if subscription.message_queue_set is not None:
            queues |= {one for one in subscription.message_queue_set if one.topic == topic}
        else:
            numbers = subscription.queue_id_set or ()
            queues |= {MessageQueue(topic, ANY_BROKER, number) for number in numbers}
    return queues


class Run(NamedTuple):
    """Messages of a queue that were pushed to a session without a long gap."""

    first: int  # offset
    last: int
    kept_up: bool  # the group was known to be within the threshold meanwhile


class Session:
    """A group on a channel, and its push progress.

    `runs` has the run of each queue; a queue without one is left to pulls so far. `heads` has the
    common start of all pushes of a queue.
    """

    __slots__ = ("channel", "client_id", "group", "heads", "queues", "runs")

    def __init__(self, channel: Channel, client_id: str, group: str) -> None:
        self.channel = channel
        self.client_id = client_id
        self.group = group
        self.queues: frozenset[MessageQueue] = frozenset()
        self.runs: dict[MessageQueue, Run] = {}
        self.heads: dict[MessageQueue, PushHeaders] = {}


class PushSessions:
    """The sessions of a snode."""

    def __init__(self) -> None:
        self._of_channel: dict[Channel, dict[str, Session]] = {}
        self._of_queue: dict[MessageQueue, dict[Session, None]] = {}
        self._seeds = 0  # queues named without their broker
        self._topics: frozenset[str] | None = frozenset()  # None: must be computed again

    def __len__(self) -> int:
        return sum(map(len, self._of_channel.values()))

    @property
    def queues(self) -> int:
        """The number of queues with push sessions."""
        return len(self._of_queue)

    @property
    def topics(self) -> frozenset[str]:
        """The topics of these queues."""
        if self._topics is None:
            self._topics = frozenset(queue.topic for queue in self._of_queue)
        return self._topics

    def replace(
        self, channel: Channel, client_id: str, group: str, queues: Iterable[MessageQueue]
    ) -> None:
        """Set the queues whose messages the group on this channel gets from now on."""
        if channel.closed:
            return
        named = frozenset(queues)
        if len(named) > MOST_QUEUES:
            log.warning("%s requests pushes of %d queues of group %s; using %d",
                        channel.remote, len(named), group, MOST_QUEUES,
                        extra={"peer": channel.remote_address[0]})  # fmt: skip
            named = frozenset(sorted(named)[:MOST_QUEUES])
        groups = self._of_channel.get(channel)
        session = None if groups is None else groups.get(group)
        if session is None:
            if not named:
                return
            if groups is None:
                groups = self._of_channel[channel] = {}
                channel.on_close.append(self.drop)
            session = groups[group] = Session(channel, client_id, group)
        if named != session.queues:
            self._change(session, named)
        if not named:
            self._forget(session)
        self._account(channel)

    def remove(self, channel: Channel, group: str) -> None:
        """Remove a group that has left."""
        session = self._of_channel.get(channel, {}).get(group)
        if session is not None:
            self._change(session, frozenset())
            self._forget(session)
            self._account(channel)

    def drop(self, channel: Channel) -> None:
        """Remove the sessions of a channel that has closed, or that must get no more pushes."""
        for session in self._of_channel.pop(channel, {}).values():
            self._change(session, frozenset())
        self._account(channel)

    def of(self, queue: MessageQueue) -> Iterator[Session]:
        """The sessions that get the messages of a queue."""
        yield from self._of_queue.get(queue, ())
        if self._seeds:
            yield from self._of_queue.get(queue._replace(broker_name=ANY_BROKER), ())

    def wants(self, queue: MessageQueue) -> bool:
        """Whether a queue has push sessions."""
        return queue in self._of_queue or (
            self._seeds > 0 and queue._replace(broker_name=ANY_BROKER) in self._of_queue
        )

    def _change(self, session: Session, queues: frozenset[MessageQueue]) -> None:
        self._topics = None
        for queue in session.queues - queues:
            sessions = self._of_queue[queue]
            del sessions[session]
            if not sessions:
                del self._of_queue[queue]
                self._seeds -= queue.broker_name == ANY_BROKER
        for queue in queues - session.queues:
            if queue not in self._of_queue:
                self._seeds += queue.broker_name == ANY_BROKER
            self._of_queue.setdefault(queue, {})[session] = None
        session.queues = queues
        session.runs = {queue: run for queue, run in session.runs.items() if _has(queues, queue)}
        session.heads = {queue: it for queue, it in session.heads.items() if _has(queues, queue)}

    def _forget(self, session: Session) -> None:
        groups = self._of_channel.get(session.channel)
        if groups is not None:
            groups.pop(session.group, None)
            if not groups:
                del self._of_channel[session.channel]
                if self.drop in session.channel.on_close:
                    session.channel.on_close.remove(self.drop)

    def _account(self, channel: Channel) -> None:
        if channel.closed:
            return
        groups = self._of_channel.get(channel, {})
        channel.keep(_KEPT, QUEUE_COST * sum(len(one.queues) for one in groups.values()))


def _has(queues: frozenset[MessageQueue], queue: MessageQueue) -> bool:
    return queue in queues or queue._replace(broker_name=ANY_BROKER) in queues
