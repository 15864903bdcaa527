"""The push service: pushes acknowledged messages to the consumers of their queue.

Each message is sent one-way to each session of its queue, or it is left to a pull for one of these
reasons, which are counted:

  unwritable   the channel has not sent its data yet: nothing more is queued for it
  behind       the lag of the group exceeds slowConsumerThreshold, and it had not kept up before
  slow         its lag exceeded the threshold while it got pushes
  broken       the broker's link ended a moment ago: its queues may have lost their ends
  elsewhere    the broker has stored it elsewhere: delayed, a half message, a retry
  unknown      the broker's reply lacks its location
  disabled     the group may not consume (consumeEnable)
  signed       its broker checks senders, so it may check readers, which the snode does not

A consumer whose lag exceeds the threshold is logged and its channel closed, as in the seed of the
snode branch, or with slowConsumerPolicy SKIP the message is skipped, as in its last state. Both
compare with the group's acknowledged offset, so a consumer that starts with a backlog is slow from
its first message on, and closing it each time would keep it from ever catching up: only a consumer
that was within the threshold, and has got pushes since without such a gap, is closed. If the
group's offset is unknown, as after a start of the snode (the snode branch uses -1, or fails), as
many messages are pushed as the threshold allows, and the others are left to pulls until it is
known.

The data queued for a channel is bounded: pushes stop when its transport has more than 1 MiB (see
`Channel.stalled`), or when one turn of the event loop has written BURST_BYTES for it.

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

# Limit of bytes that one turn of the event loop writes for a channel, in addition to earlier data.
BURST_BYTES = 1024 * 1024
# Seconds without pushes of a broker whose link has ended: a consumer without pushes pulls (client:
# PUSH_PATIENCE_SECONDS), and notices whether its queue has lost its end.
BROKEN_SECONDS = 3.0


class SlowConsumerPolicy(StrEnum):
    """The action for a consumer whose lag exceeds the threshold."""

    CLOSE = "CLOSE"  # its channel is closed: it reconnects, and pulls
    SKIP = "SKIP"  # it pulls until it has caught up


class AckedOffsets(Protocol):
    """The groups' committed offsets, as far as the snode knows them without a query."""

    def acked(self, enode: str, topic: str, group: str, queue_id: int) -> int | None:
        """The committed offset of the group; None if it is unknown."""


class PushService:
    """Pushes to sessions. `counts` has the outcomes of messages by reason, or `pushed`."""

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
        self._broken: dict[str, float] = {}  # by broker, until when its messages are not pushed
        self._written: dict[Channel, int] = {}  # bytes in this turn of the event loop

    def acknowledged(
        self,
        enode: str,
        fields: Mapping[str, str],
        body: bytes | memoryview,
        answer: Mapping[str, str],
        born_host: bytes,
    ) -> None:
        """Push the messages of a send (310, 320) that a broker has answered with SUCCESS. Called in
        the order of the replies.

        `fields` and `body` are those of the request, `answer` has the fields of the reply,
        `born_host` is the `Channel.born_host` of the sender. Never raises: the producer has its
        reply.
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
            log.debug("cannot push a message of %s: %s", enode, error)
        except Exception:
            log.exception("cannot push a message of %s", enode,
                          extra={"failure": "push"})  # fmt: skip

    def left_out(self, reason: str) -> None:
        """Count a message that is not pushed to any session."""
        if self.sessions.queues:
            self.counts[reason] += 1

    def link_ended(self, enode: str) -> None:
        """Stop pushes of a broker whose link has ended: it may return without its last messages."""
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
            elif (run := self._extend_run(session, message)) is not None:
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

    def _extend_run(self, session: Session, message: StoredPush) -> Run | None:
        """Extend the run of the queue by this message if it is to be pushed; otherwise None."""
        queue, offset = message.queue, message.offset
        run = session.runs.get(queue)
        if run is not None and offset - run.last > self._threshold():
            # Many messages were not pushed, for instance because they were sent through another
            # snode: the known offset of the group may be as old.
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
            "group %s, client %s at %s is slow: it has acknowledged offset %d of %s, and %d was "
            "stored",
            *(session.group, session.client_id, session.channel.remote),
            *(acked, queue, offset),
            extra={"peer": session.channel.remote_address[0]},
        )
        del session.runs[queue]  # from now on it must catch up
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
