"""The push service: what a broker has acknowledged goes to who consumes its queue.

Each message is one-way to each session of its queue, or it is left to a pull, for one of these
reasons, which are counted:

    unwritable   the channel has not taken what it got: nothing more is held for it
    behind       the group is more than slowConsumerThreshold behind, and was not kept up with
    slow         it fell so far behind while it was pushed to
    broken       the broker's link has ended a moment ago: its queues may have lost their ends
    elsewhere    the broker has not put it into that queue now: delayed, half a transaction, a retry
    unknown      the broker's answer does not say where it is
    disabled     the group may not consume (consumeEnable)
    signed       its broker asks who sends, so it may ask who reads, and the snode does not

A consumer that falls behind is warned about and its channel closed, as the seed of the snode branch
does it, or with slowConsumerPolicy SKIP the message skipped, as its last state does. Both compare
with what the group has acknowledged, so a consumer that begins with a backlog is slow from its
first message on, and closing it each time would keep it from ever catching up: only one that was
within the threshold, and has been pushed to since without a gap as long, is closed. Where nothing
is known of a group's offset, as behind a start of the snode (the snode branch takes -1, or fails),
as many are pushed as the threshold allows, and the others left to pulls until it is known.

What is held for a channel is bounded: pushes stop when its transport has more than 1 MiB (see
`Channel.stalled`), or one turn of the loop has made as much as BURST_BYTES for it.

Sources: the snode branch's PushServiceImpl, SlowConsumerServiceImpl.
"""

import asyncio
import logging
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Protocol

from mq.client.machine import clock
from mq.daemons.channel import Channel
from mq.daemons.snode.push.message import AcknowledgedSend, PushHeaders, StoredPush, is_pushed
from mq.daemons.snode.push.sessions import PushSessions, Run, Session
from mq.protocol.bodies import MessageQueue
from mq.protocol.headers.send import Letter

log = logging.getLogger(__name__)

# What one turn of the loop writes for a channel at most, beyond what was written before.
BURST_BYTES = 1024 * 1024
# So long nothing of a broker is pushed whose link has ended: a consumer that is not pushed to pulls
# (client: PUSH_PATIENCE_SECONDS), and sees whether its queue has lost its end.
BROKEN_SECONDS = 3.0


class SlowConsumerPolicy(StrEnum):
    """What becomes of a consumer that falls behind what it is pushed."""

    CLOSE = "CLOSE"  # its channel is closed: it connects anew, and pulls
    SKIP = "SKIP"  # it is left to pulls until it has caught up


class AckedOffsets(Protocol):
    """What groups have acknowledged, as far as the snode knows without asking."""

    def acked(self, enode: str, topic: str, group: str, queue_id: int) -> int | None:
        """The offset that the group has committed; None if nothing is known of it."""


class PushService:
    """Pushes to sessions. `counts` has what became of messages, by reason; `pushed` is one."""

    def __init__(
        self,
        sessions: PushSessions,
        offsets: AckedOffsets,
        *,
        threshold: Callable[[], int] = lambda: 1024,
        policy: Callable[[], SlowConsumerPolicy] = lambda: SlowConsumerPolicy.CLOSE,
        may_consume: Callable[[str], bool] = lambda group: True,
        clock: Callable[[], float] = clock.monotonic,
    ) -> None:
        self.sessions = sessions
        self.counts: Counter[str] = Counter()
        self._offsets = offsets
        self._threshold = threshold
        self._policy = policy
        self._may_consume = may_consume
        self._clock = clock
        self._broken: dict[str, float] = {}  # by broker, until when nothing of it is pushed
        self._written: dict[Channel, int] = {}  # in this turn of the loop, in bytes

    def acknowledged(
        self,
        enode: str,
        fields: Mapping[str, str],
        body: bytes | memoryview,
        answer: Mapping[str, str],
        born_host: bytes,
    ) -> None:
        """A broker has answered a send (310, 320) with SUCCESS; to be told in its order.

        `fields` and `body` are those of the request, `answer` the fields of the answer, `born_host`
        the `Channel.born_host` of who sent it. Never raises: the producer has its answer.
        """
        sessions = self.sessions
        if not sessions.queues:
            return
        try:
            queue = MessageQueue(fields[Letter.TOPIC], enode, int(answer["queueId"]))
            if not sessions.wants(queue):
                return
            if self._is_broken(enode):
                self.counts["broken"] += 1
            elif not is_pushed(fields):
                self.counts["elsewhere"] += 1
            else:
                sent = AcknowledgedSend(enode, fields, body, answer, born_host)
                for message in sent.messages():
                    self._push(sent, message)
        except (ValueError, KeyError, struct.error) as error:
            self.counts["unknown"] += 1
            log.debug("a message of %s is not pushed: %s", enode, error)
        except Exception:
            log.exception("a message of %s is not pushed", enode,
                          extra={"failure": "push"})  # fmt: skip

    def left_out(self, reason: str) -> None:
        """A message is not to be pushed, whoever wants it."""
        if self.sessions.queues:
            self.counts[reason] += 1

    def link_ended(self, enode: str) -> None:
        """The link to a broker has ended: it may come back without what it has stored last."""
        now = self._clock()
        self._broken = {name: until for name, until in self._broken.items() if until > now}
        self._broken[enode] = now + BROKEN_SECONDS

    def _is_broken(self, enode: str) -> bool:
        return bool(self._broken) and self._broken.get(enode, 0.0) > self._clock()

    def _push(self, sent: AcknowledgedSend, message: StoredPush) -> None:
        record = b""
        for session in list(self.sessions.of(message.queue)):
            channel = session.channel
            if channel.closed or channel.stalled or self._written.get(channel, 0) >= BURST_BYTES:
                self.counts["unwritable"] += 1
            elif not self._may_consume(session.group):
                self.counts["disabled"] += 1
            elif (run := self._go_on(session, message)) is not None:
                queue = message.queue
                heads = session.heads.get(queue)
                if heads is None:
                    heads = session.heads[queue] = PushHeaders(queue, session.group)
                if queue in session.queues:
                    record = record or sent.record(message)
                    frame = heads.full(message, record)
                else:
                    frame = heads.alone(message)
                self._write(channel, frame)
                session.runs[queue] = run
                self.counts["pushed"] += 1

    def _go_on(self, session: Session, message: StoredPush) -> Run | None:
        """The run of the queue with this message, if it is to be pushed; None if not."""
        queue, offset = message.queue, message.offset
        run = session.runs.get(queue)
        if run is not None and offset - run.last > self._threshold():
            # Much has gone another way meanwhile, through another snode for instance: what this one
            # knows of the group's offset may be as old.
            run = None
            del session.runs[queue]
        acked = self._offsets.acked(queue.broker_name, queue.topic, session.group, queue.queue_id)
        first = offset if run is None else run.first
        kept_up = run is not None and run.kept_up
        if offset - (first if acked is None else acked) <= self._threshold():
            return Run(first, offset, kept_up or acked is not None)
        if acked is None or not kept_up:
            self.counts["behind"] += 1
            return None
        self.counts["slow"] += 1
        log.warning(
            "group %s, client %s at %s is slow: it has acknowledged %d of %s, and %d was stored",
            *(session.group, session.client_id, session.channel.remote),
            *(acked, queue, offset),
            extra={"peer": session.channel.remote_address[0]},
        )
        del session.runs[queue]  # from here on it is one that has to catch up
        if self._policy() is SlowConsumerPolicy.CLOSE:
            channel = session.channel
            self.sessions.drop(channel)
            channel.close()
        return None

    def _write(self, channel: Channel, frame: bytes) -> None:
        if not self._written:
            asyncio.get_running_loop().call_soon(self._flush)
        self._written[channel] = self._written.get(channel, 0) + len(frame)
        channel.queue_frame(frame)

    def _flush(self) -> None:
        written, self._written = self._written, {}
        for channel in written:
            channel.flush()
