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
from mq.client.errors import ConnectError, MQError, RequestTimeout, RouteNotFound
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

#: Told of each request that was stored: where, and the fields of the reply.
OnStored = Callable[[Outgoing, MessageQueue, dict[str, object]], None]


class _Sent(NamedTuple):
    outgoing: Outgoing
    queue: MessageQueue
    tries: int
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
        self._send(outgoing, 0, None)

    def finish(self) -> None:
        """Wait until all is stored. Raises WriteFailed."""
        for outcome in self._window.drain():
            self._accept(outcome)

    def _send(self, outgoing: Outgoing, tries: int, avoid: str | None) -> None:
        while True:
            try:
                queue = outgoing.queue or self._queues.next(outgoing.topic, avoid)
                address = self._queues.target(outgoing.topic).addresses.get(queue.broker_name)
                if address is None:
                    raise RouteNotFound(queue.topic, f"no master {queue.broker_name} in its route")
            except (RouteNotFound, ConnectError, RequestTimeout) as error:
                tries = self._again(outgoing, tries, error, time.monotonic())
                continue
            command = outgoing.command(queue, self._window.next_opaque())
            self._window.send(address, command, _Sent(outgoing, queue, tries, time.monotonic()))
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
            tries = self._again(sent.outgoing, sent.tries, outcome.error, sent.at)
            self._send(sent.outgoing, tries, sent.queue.broker_name)
            return
        if sent.outgoing.queue is not None:
            self._busy.discard(sent.queue)
        if self._on_stored is not None:
            self._on_stored(sent.outgoing, sent.queue, outcome.fields)

    def _again(self, outgoing: Outgoing, tries: int, error: MQError, sent_at: float) -> int:
        """Wait before a further try, and count it. Raises WriteFailed if there is none."""
        if not error.retriable and not isinstance(error, RouteNotFound):
            raise WriteFailed(f"{outgoing.rows} rows for topic {outgoing.topic}: {error}") from None
        tries += 1
        if tries > self._options.retries:
            raise WriteFailed(
                f"{outgoing.rows} rows for topic {outgoing.topic}: {tries} tries failed: {error}. "
                "Start the broker, or try longer: numRetries, retryIntervalMs, sendTimeoutMs"
            ) from None
        if sent_at < self._resumed:  # it failed with others, for which there was a pause already
            return tries
        pause = self._options.retry_pause * 2 ** (tries - 1)
        log.warning("rows for topic %s: again in %g s: %s", outgoing.topic, pause, error)
        self._queues.outdate(outgoing.topic)
        time.sleep(pause)
        self._resumed = time.monotonic()
        return tries
