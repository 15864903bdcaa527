"""Copies messages from topic to topic, all queues concurrently, each in order."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mq.client.errors import MQError
from mq.client.operations import local_files
from mq.client.operations.messages import resumable
from mq.client.operations.messages.choice import Choice
from mq.client.operations.messages.lines import message_again
from mq.client.operations.messages.rate import Rate
from mq.client.operations.messages.reading import Reader, Span
from mq.client.operations.messages.sending import Target, Targets, check_same, why_refused
from mq.client.operations.progress import Progress, unseen

if TYPE_CHECKING:
    from mq.client.operations.messages.tube_copying import TubeTarget, TubeTargets
    from mq.client.transport.caller import Caller


class Copier:
    """Sends the messages of the spans of a topic to their targets, all spans concurrently."""

    def __init__(
        self,
        source: "Caller",
        choice: Choice,
        targets: "Targets | TubeTargets",
        topic: str,
        *,
        new_ids: bool,
        rate: Rate,
        progress: Progress = unseen,
    ) -> None:
        """`source` is the session to read from; `topic` is the target topic."""
        self._source = source
        self._choice = choice
        self._reader = Reader(source, choice)
        self._targets = targets
        self._topic = topic
        self._new_ids = new_ids
        self._rate = rate
        self._progress = progress
        self._spans: list[Span] = []
        self._done: dict[str, dict[str, Any]] = {}  # the state of the interrupted copy
        self._passed: list[str] = []  # the gaps that it reported

    async def run(self) -> list[str]:
        """Copy everything; returns a line for each queue that could not be copied completely."""
        found, failures = await self._reader.spans(self._done)
        for span in found:
            failure = await self._go_on(span)
            if failure is None:
                self._spans.append(span)
            else:
                failures.append(failure)
        with self._progress(sum(max(0, span.end - span.next) for span in self._spans)) as step:
            ended = await asyncio.gather(*(self._one(span, step) for span in self._spans))
        return failures + [failure for failure in ended if failure is not None]

    async def _go_on(self, span: Span) -> str | None:
        """Resume a span where the interrupted copy stopped; returns the reason if that is not
        possible. Raises Unavailable.
        """
        done = self._done.get(span.name, {})
        check_same(self._target(span), done.get("to"), span.name)
        begin = done.get("next")
        if begin is None:
            return None
        try:
            return await self._reader.go_on(span, begin, done.get("seen"))
        except MQError as error:
            return f"{span.name}: {error}"

    def _target(self, span: Span) -> "Target | TubeTarget":
        return self._targets.of(span.queue.broker_name, span.queue.queue_id)

    @property
    def gaps(self) -> list[str]:
        """Lines for messages that expired before they could be copied, and for bodies that cannot
        be decompressed, which are not copied. Includes those of the interrupted copy.
        """
        return resumable.all_gaps(self._passed, self._reader.gaps)

    async def _one(self, span: Span, step: Callable[[int], None]) -> str | None:
        target = self._target(span)
        try:
            async for messages, after in self._reader.batches(span):
                await self._rate.wait(len(messages))
                await target.send(
                    [
                        message_again(
                            self._topic,
                            message.body,
                            message.flag,
                            message.properties,
                            new_id=self._new_ids,
                        )
                        for message in messages
                        if not message.body_error  # the copy would not be marked as compressed
                    ]
                )
                step(after - span.next)
                span.next = after
        except MQError as error:
            return f"{span.name}: {why_refused(error, target.queue)}"
        return None

    async def run_from(self, path: Path, asked: dict[str, Any]) -> list[str]:
        """Call `run`, save the progress in a file, and resume from it."""

        def save() -> None:
            queues: dict[str, dict[str, Any]] = {name: {} for name in self._reader.unread}
            queues |= self._done
            for span in self._spans:
                to = self._target(span).name
                queues[span.name] = {"next": span.next, "to": to, "seen": span.seen}
            resumable.save(path, asked, queues, self.gaps)

        with local_files.locked(path):
            state = resumable.load(path, asked, "a copy")
            self._done, self._passed = _positions(path, state.queues), state.gaps
            self._reader = Reader(self._source, self._choice.at_times_of(asked))
            return await resumable.keep(path, save, self.run)


def _positions(path: Path, queues: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Check the state of a copy. Raises BadData."""
    for name, values in queues.items():
        seen = values.get("seen") or (0, 0)
        if (
            type(values.get("next", 0)) is not int
            or type(values.get("to", "")) is not str
            or [type(item) for item in seen] != [int, int]
        ):
            raise resumable.unreadable(f"{path} is not the state of a copy: {name} has {values}")
    return queues
