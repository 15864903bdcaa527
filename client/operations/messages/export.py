"""Reads messages concurrently and writes them as lines; an interrupted export can be resumed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from mq.client.errors import MQError
from mq.client.operations.messages.file_sink import FileSink
from mq.client.operations.messages.long_lines import Lines
from mq.client.operations.messages.rate import Rate
from mq.client.operations.messages.reading import Reader, Span
from mq.client.operations.messages.resumable import all_gaps
from mq.client.operations.messages.sinks import Sink
from mq.client.operations.progress import Progress, unseen
from mq.protocol.message import StoredMessage


class Exporter:
    """Reads spans concurrently, each in order, and writes their messages."""

    def __init__(
        self,
        reader: Reader,
        sink: Sink,
        encode: Callable[[list[StoredMessage]], Lines],
        *,
        rate: Rate,
        limit: int | None = None,
        step: Callable[[int], None] = lambda count: None,
    ) -> None:
        """`step` is called with the number of messages processed. `limit` bounds the messages
        written.
        """
        self._reader = reader
        self._sink = sink
        self._encode = encode
        self._rate = rate
        self._left = limit
        self._step = step
        self.counts: dict[str, int] = {}
        self.failures: list[str] = []

    async def run(self, spans: list[Span]) -> None:
        """Export all spans. Errors of brokers are in `failures` at the end."""
        tasks = [asyncio.ensure_future(self._one(span, spans)) for span in spans]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, span: Span, spans: list[Span]) -> None:
        written = 0
        try:
            async for messages, after in self._reader.batches(span):
                if self._left is not None:
                    if self._left <= 0:
                        return
                    if len(messages) > self._left:
                        messages = messages[: self._left]
                        after = messages[-1].queue_offset + 1
                    self._left -= len(messages)
                await self._rate.wait(len(messages))
                lines = self._encode(messages)
                self._step(after - span.next)
                span.next = after  # no await between this and the sink's acceptance of the lines
                written += len(messages)
                await self._sink.write(lines, len(messages), spans)
                del messages, lines  # before the next ones are decompressed
        except MQError as error:
            self.failures.append(f"{span.name}: {error}")
        finally:
            self.counts[span.name] = written


@dataclass
class Exported:
    """The result of an export: the spans, the messages of each, and the failures."""

    spans: list[Span]
    counts: dict[str, int]
    failures: list[str]


async def export(
    reader: Reader,
    sink: Sink,
    encode: Callable[[list[StoredMessage]], Lines],
    *,
    rate: Rate,
    limit: int | None = None,
    progress: Progress = unseen,
) -> Exported:
    """Export the messages that the reader selects. A FileSink resumes an interrupted export.

    Raises NotFound if no queue is selected, and the error of the last broker if none answers.
    """
    known: list[str] = []
    if isinstance(sink, FileSink):
        known = [name for name, ends in sink.positions.items() if not ends or ends[0] < ends[1]]
    spans, failures = await reader.spans(known)
    if isinstance(sink, FileSink):
        spans = await _go_on(reader, spans, sink.positions, failures)
        sink.begin(spans, reader.unread, lambda: reader.gaps)
        if limit is not None:
            limit = max(0, limit - sink.written)
    with progress(sum(span.end - span.next for span in spans)) as step:
        exporter = Exporter(reader, sink, encode, rate=rate, limit=limit, step=step)
        await exporter.run(spans)
    failures += exporter.failures
    gaps = reader.gaps
    if isinstance(sink, FileSink):
        sink.incomplete = bool(failures)  # resuming can add failed queues, but not expired messages
        gaps = all_gaps(sink.gaps, gaps)
    return Exported(spans, exporter.counts, failures + gaps)


async def _go_on(
    reader: Reader, spans: list[Span], positions: dict[str, list[int]], failures: list[str]
) -> list[Span]:
    """Resume the spans where the interrupted export stopped; returns those that can be resumed."""
    able = []
    for span in spans:
        ends = positions.get(span.name)
        if ends:
            begin, end, *seen = ends
            failure = None
            # a queue that was read completely needs nothing more, whatever it contains now
            if begin < end:
                try:
                    failure = await reader.go_on(span, begin, (seen[0], seen[1]) if seen else None)
                except MQError as error:
                    failure = f"{span.name}: {error}"
            if failure is not None:
                failures.append(failure)
                continue
            span.next, span.end = begin, end
            span.seen = (seen[0], seen[1]) if seen else None
        able.append(span)
    return able
