"""Sends of a task's rows: several requests in flight, further tries where one fails.

Rows that say their queue keep their order there: of such a queue one request is in flight at a
time, as brokers work on several at once. A request that failed is sent again, to the same queue if
its rows have said so, else to one of another broker. It may have been stored before it failed: then
its messages are there twice, with the same unique ids. Where a broker takes no batch of prepared
messages, they go by themselves from then on.
"""

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from mq.client.blocking import BlockingSession
from mq.client.errors import (
    ConnectError,
    FlowControl,
    MQError,
    RequestTimeout,
    RouteNotFound,
    SystemBusy,
)
from mq.pipeline.encoding import Outgoing
from mq.pipeline.errors import WriteFailed
from mq.pipeline.sink_queues import QueueChoice
from mq.pipeline.window import Completion, RequestWindow
from mq.pipeline.write_options import WriteOptions
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

WINDOW = 8  # batches in flight, of 256 KB: enough that no broker waits for the next
WINDOW_OF_SINGLES = 64
_NO_BATCH = ResponseCode.MESSAGE_ILLEGAL

# A broker that refuses what has waited too long for its turn is ready for more some milliseconds
# later. So the first pauses for it are short, each twice as long as the one before and all of them
# together as long as the option says; only what fails behind them counts as a further try.
_SHORT_PAUSES = 6

#: Told of each request that was stored: where, and the fields of the reply.
OnStored = Callable[[Outgoing, MessageQueue, dict[str, object]], None]


class _Failures(NamedTuple):
    """How often a request has failed."""

    busy: int = 0  # times that a broker had too much to do, up to those with short pauses
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

        Raises WriteFailed for this or an earlier one that failed for good.
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
        """Wait until all is stored. Raises WriteFailed."""
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
                failures = self._again(outgoing, failures, error, time.monotonic())
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
                self._busy.discard(sent.queue)  # whoever waits for it does so until these are sent
            self.send(sent.outgoing)
            return
        if outcome.error is not None:
            failures = self._again(sent.outgoing, sent.failures, outcome.error, sent.at)
            self._send(sent.outgoing, failures, sent.queue.broker_name)
            return
        if sent.outgoing.queue is not None:
            self._busy.discard(sent.queue)
        if self._on_stored is not None:
            self._on_stored(sent.outgoing, sent.queue, outcome.fields)

    def _again(
        self, outgoing: Outgoing, failures: _Failures, error: MQError, sent_at: float
    ) -> _Failures:
        """Wait before a further try, and count it. Raises WriteFailed if there is none."""
        busy, others = failures
        if isinstance(error, SystemBusy | FlowControl) and busy < _SHORT_PAUSES:
            busy += 1
            pause = self._options.retry_pause / 2 ** (_SHORT_PAUSES + 1 - busy)
        else:
            others += 1
            self._check(outgoing, others, error)
            pause = self._options.retry_pause * 2 ** (others - 1)
        if sent_at >= self._resumed:  # else it failed with others, for which there was a pause
            log.warning("rows for topic %s: again in %g s: %s", outgoing.topic, pause, error)
            if others > failures.others:
                self._queues.outdate(outgoing.topic)
            time.sleep(pause)
            self._resumed = time.monotonic()
        return _Failures(busy, others)

    def _check(self, outgoing: Outgoing, failed: int, error: MQError) -> None:
        """Raises WriteFailed for an error, of so many, that is not to be followed by a try."""
        what = f"{outgoing.rows} rows for topic {outgoing.topic}"
        if not error.retriable and not isinstance(error, RouteNotFound):
            raise WriteFailed(f"{what}: {error}") from None
        if failed > self._options.retries:
            raise WriteFailed(
                f"{what}: {failed} tries failed: {error}. "
                "Start the broker, or try longer: numRetries, retryIntervalMs, sendTimeoutMs"
            ) from None
