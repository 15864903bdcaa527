"""Sends of a task's rows: several requests in flight, with retries.

Rows with a queue keep their order in it: for such a queue one request is in flight at a time,
because brokers process several at once. A failed request is sent again, to the same queue if its
rows name it, otherwise to a queue of another broker. It may have been stored before it failed: then
its messages are stored twice, with the same unique ids. If a broker does not accept batches of
prepared messages, they are sent one by one from then on.
"""

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from mq.client.errors import (
    ConnectError,
    FlowControl,
    MQError,
    RequestTimeout,
    RouteNotFound,
    SystemBusy,
)
from mq.client.transport.blocking import BlockingSession
from mq.pipeline.encoding import Outgoing
from mq.pipeline.errors import WriteFailed
from mq.pipeline.sink_queues import QueueChoice
from mq.pipeline.window import Completion, RequestWindow
from mq.pipeline.write_options import WriteOptions
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

WINDOW = 8  # batches in flight, of 256 KB: enough to keep every broker busy
WINDOW_OF_SINGLES = 64
_NO_BATCH = ResponseCode.MESSAGE_ILLEGAL

# A broker that refuses a request because it waited too long in the queue can accept more some
# milliseconds later. So the first pauses for it are short: each is twice as long as the previous
# one, and all of them together are as long as the option says. Only later failures count as
# retries.
_SHORT_PAUSES = 6

#: Called for each stored request, with its queue and the fields of the reply.
OnStored = Callable[[Outgoing, MessageQueue, dict[str, object]], None]


class _Failures(NamedTuple):
    """How often a request has failed."""

    busy: int = 0  # times that a broker was too busy, up to the number of short pauses
    others: int = 0


class _Sent(NamedTuple):
    outgoing: Outgoing
    queue: MessageQueue
    failures: _Failures
    at: float  # of the monotonic clock


class Sender:
    """Sends requests; a context manager."""

    def __init__(
        self,
        session: BlockingSession,
        options: WriteOptions,
        queues: QueueChoice,
        on_stored: OnStored | None = None,
    ) -> None:
        self._options = options
        self._queues = queues
        self._on_stored = on_stored
        self._window: RequestWindow[_Sent] = RequestWindow(session, options.timeout)
        self._busy: set[MessageQueue] = set()
        self._resumed = 0.0  # when the last pause ended
        self._singly = False  # a broker has refused a batch of prepared messages

    def __enter__(self) -> "Sender":
        return self

    def __exit__(self, *exc: object) -> None:
        self._window.close()

    def send(self, outgoing: Outgoing) -> None:
        """Send a request as soon as there is room for it.

        Raises WriteFailed for this or an earlier request that failed permanently.
        """
        if self._singly and outgoing.ids:
            for single in outgoing.singles():
                self.send(single)
            return
        most = WINDOW_OF_SINGLES if outgoing.unique_id else WINDOW
        while len(self._window) >= most or outgoing.queue in self._busy:
            self._accept(self._window.next_completion())
        if outgoing.queue is not None:
            self._busy.add(outgoing.queue)
        self._send(outgoing, _Failures(), None)

    def finish(self) -> None:
        """Wait until all requests are stored. Raises WriteFailed."""
        for outcome in self._window.drain():
            self._accept(outcome)

    def _send(self, outgoing: Outgoing, failures: _Failures, avoid: str | None) -> None:
        while True:
            try:
                queue = outgoing.queue or self._queues.next(outgoing.topic, avoid)
                address = self._queues.target(outgoing.topic).addresses.get(queue.broker_name)
                if address is None:
                    raise RouteNotFound(queue.topic, f"no master {queue.broker_name} in its route")
            except (RouteNotFound, ConnectError, RequestTimeout) as error:
                failures = self._pause_for_retry(outgoing, failures, error, time.monotonic())
                continue
            command = outgoing.command(queue, self._window.next_opaque())
            sent = _Sent(outgoing, queue, failures, time.monotonic())
            self._window.send(address, command, sent)
            return

    def _accept(self, outcome: Completion[_Sent]) -> None:
        sent = outcome.token
        if sent.outgoing.ids and getattr(outcome.error, "code", None) == _NO_BATCH:
            self._singly = True
            if sent.outgoing.queue is not None:
                self._busy.discard(sent.queue)  # other requests wait until these are sent
            self.send(sent.outgoing)
            return
        if outcome.error is not None:
            failures = self._pause_for_retry(sent.outgoing, sent.failures, outcome.error, sent.at)
            self._send(sent.outgoing, failures, sent.queue.broker_name)
            return
        if sent.outgoing.queue is not None:
            self._busy.discard(sent.queue)
        if self._on_stored is not None:
            self._on_stored(sent.outgoing, sent.queue, outcome.fields)

    def _pause_for_retry(
        self, outgoing: Outgoing, failures: _Failures, error: MQError, sent_at: float
    ) -> _Failures:
        """Pause before a retry, and count it. Raises WriteFailed if no retry is left."""
        busy, others = failures
        if isinstance(error, SystemBusy | FlowControl) and busy < _SHORT_PAUSES:
            busy += 1
            pause = self._options.retry_pause / 2 ** (_SHORT_PAUSES + 1 - busy)
        else:
            others += 1
            self._check(outgoing, others, error)
            pause = self._options.retry_pause * 2 ** (others - 1)
        if sent_at >= self._resumed:  # otherwise it failed with others, for which there was a pause
            log.warning("rows for topic %s: retrying in %g s: %s", outgoing.topic, pause, error)
            if others > failures.others:
                self._queues.outdate(outgoing.topic)
            time.sleep(pause)
            self._resumed = time.monotonic()
        return _Failures(busy, others)

    def _check(self, outgoing: Outgoing, failed: int, error: MQError) -> None:
        """Raises WriteFailed for an error, after `failed` of them, that must not be retried."""
        what = f"{outgoing.rows} rows for topic {outgoing.topic}"
        if not error.retriable and not isinstance(error, RouteNotFound):
            raise WriteFailed(f"{what}: {error}") from None
        if failed > self._options.retries:
            raise WriteFailed(
                f"{what}: {failed} attempts failed: {error}. "
                "Start the broker, or retry longer: numRetries, retryIntervalMs, sendTimeoutMs"
            ) from None
