"""Runs a command that sends lines, and reports the outcome."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from mq.cli.messages.input import Input
from mq.cli.messages.missing_topic import make_sure
from mq.cli.messages.send_summary import sent_result
from mq.cli.runtime.call import Call
from mq.cli.runtime.errors import UsageError, legal
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result
from mq.client.operations import local_files
from mq.client.operations.errors import NextStep, NotFound
from mq.client.operations.messages import line_forms
from mq.client.operations.messages.delays import DelayLimits, taken_by
from mq.client.operations.messages.line_forms import Common, Feed
from mq.client.operations.messages.line_source import LineSource, Read, is_file, reader_of
from mq.client.operations.messages.producing import Counting, Producing
from mq.client.operations.messages.rate import Rate

if TYPE_CHECKING:
    from mq.client.producer.producer import Producer, SendResult
    from mq.protocol.bodies import MessageQueue
    from mq.protocol.message import Message

from mq.client.operations.messages.producing import ranges

_MAX_REPORTED = 20  # refused lines that are reported one by one; further ones are counted


@dataclass(frozen=True)
class UnsentInput:
    """The outcome of an input: `left` are lines, in order, that were read and not sent; lines from
    `following` on were not read. Messages in flight when a broker failed may be stored, and be
    listed, too."""

    sent: int
    left: list[int]
    following: int

    def lines(self, file: str, again: str) -> list[str]:
        """Return sentences; the last one has the command that continues, if there is one."""
        parts, begin = self._parts()
        where = "".join(
            f"{first}, " if first == last else f"{first} to {last}, " for first, last in parts
        )
        found = [
            f"{self.sent:,} messages were sent; not sent: lines {where}{begin} and those after"
        ]
        if again:
            found.append(f"continue with: {self._command(file, parts, begin)} | {again}")
        return found

    def _parts(self) -> tuple[list[tuple[int, int]], int]:
        """Return ranges of lines, and the line from which on all are left."""
        parts = ranges(self.left)
        if parts and parts[-1][1] == self.following - 1:
            return parts[:-1], parts[-1][0]
        return parts, self.following

    def _command(self, file: str, parts: list[tuple[int, int]], begin: int) -> str:
        named = "" if file == "-" else f" {quote(file)}"
        if not parts:
            return f"tail -n +{begin}{named}"
        script = ";".join([*(f"{first},{last}p" for first, last in parts), f"{begin},$p"])
        return f"sed -n '{script}'{named}"


@dataclass
class Run:
    """One run of a command that sends lines.

    ``create`` is None if brokers may create the topic, as with mqadmin.
    """

    call: Call
    group: str
    input: Input
    common: dict[str, Any]
    broker: str | None = None
    queue_id: int | None = None
    trace: bool = False
    rate: float | None = None
    create: bool | None = False
    _reported: int = field(default=0, init=False)
    _broken: OSError | None = field(default=None, init=False)  # the error that ended reading

    @property
    def topic(self) -> str:
        return str(self.common["topic"])

    @property
    def _file(self) -> str:
        return self.input.file or "-"

    @property
    def _is_file(self) -> bool:
        return is_file(None if self._file == "-" else Path(self._file))

    @property
    def _is_typed(self) -> bool:
        """Whether a user types the lines."""
        return self._file == "-" and self.call.environment.input_terminal

    async def send(self) -> Result:
        """Send the whole input. Raises CommandError if nothing could be sent."""
        from mq.protocol.names import check_topic

        legal(check_topic, self.topic)
        check_queue(self.broker, self.queue_id)
        self.input.check()
        rate = Rate(self.rate)
        timeout = max(self.call.timeout, 10.0)  # a busy broker may need long for a batch
        options = {"trace": self.trace, "timeout": timeout}
        with opened(self.call, self._file) as read:
            async with self.call.producer(self.group, **options) as producer:
                session = producer.session
                if self.create is not None and not await make_sure(
                    self.call, session, self.topic, create=self.create
                ):
                    return Result()
                queues = await targets(producer, self.topic, self.broker, self.queue_id)
                taken = await _taken(producer, queues)
                common = Common(**self.common, taken=taken)
                self._try(common)
                if self.call.dry_run:
                    return await self._count(read, common)
                return await self._run(read, producer, queues, common, rate)

    def _try(self, common: Common) -> None:
        """Raise InvalidRequest for an impossible delay: once, not for each line."""
        if common.delay is not None:
            common.message(b"-")

    async def _run(
        self,
        read: Read,
        producer: "Producer",
        queues: "Sequence[MessageQueue]",
        common: Common,
        rate: Rate,
    ) -> Result:
        max_body = common.taken.max_body
        longest = line_forms.longest(max_body, json=self.input.json_lines)
        with LineSource(read, longest=longest, is_file=self._is_file) as source:
            producing = Producing(
                producer,
                queues,
                bound=self.broker is not None,
                max_body=max_body,
                refuse=self._refused,
                failed=source.end,
                acknowledged=self._acknowledged if self._is_typed else None,
            )
            feed = Feed(producing, self.input.form(common), longest, max_body, rate)
            self._prompt_for_lines()
            interrupted = False
            try:
                await self._feed(feed, source)
            except asyncio.CancelledError:  # Ctrl-C: send nothing more, finish what is in flight
                task = asyncio.current_task()
                if task is not None:
                    task.uncancel()
                interrupted = True
            await producing.land()
        return self._result(producing, feed, interrupted=interrupted)

    async def _count(self, read: Read, common: Common) -> Result:
        """Perform a dry run: read everything and report what would be sent."""
        max_body = common.taken.max_body
        longest = line_forms.longest(max_body, json=self.input.json_lines)
        counting = Counting(self._refused)
        feed = Feed(counting, self.input.form(common), longest, max_body, Rate(None))
        with LineSource(read, longest=longest, is_file=self._is_file) as source:
            await self._feed(feed, source)
        if self._broken is not None:
            raise self._broken
        what = f"{counting.messages:,} messages, {counting.bytes:,} bytes"
        self.call.would("send", self.topic, what)
        return Result(failures=[*self._refusals(counting.refused, feed)])

    async def _feed(self, feed: Feed, source: LineSource) -> None:
        if self.input.whole:
            await feed.whole(await whole(source, feed.longest))
            return
        try:
            await feed.run(source)
        except OSError as error:  # lines read before the error are sent
            self._broken = error
            await feed.producing.flush()

    def _prompt_for_lines(self) -> None:
        if self._is_typed:
            lines = "Each line is sent as a message when you press Enter; Ctrl-D ends."
            self._say("Everything until Ctrl-D is one message." if self.input.whole else lines)

    def _say(self, text: str) -> None:
        self.call.environment.report(text)

    def _acknowledged(self, result: "SendResult") -> None:
        queue = result.queue
        self._say(f"{queue.broker_name}:{queue.queue_id}@{result.queue_offset} {result.message_id}")

    def _refused(self, number: int, why: str) -> None:
        self._reported += 1
        if self._reported <= _MAX_REPORTED:
            self._say(f"mq {self.call.name}: {self._named}, line {number}: {why}")

    @property
    def _named(self) -> str:
        return "standard input" if self._file == "-" else self._file

    def _result(self, producing: Producing, feed: Feed, *, interrupted: bool) -> Result:
        failures = [*self._refusals(producing.refused, feed)]
        for status, count in sorted(producing.unsafe.items()):
            failures.append(f"{count:,} messages were stored, but: {status}")
        if producing.stopped is not None:
            if not producing.sent:
                raise producing.stopped
            failures.append(str(producing.stopped))
        if self._broken is not None:
            if not producing.sent:
                raise self._broken
            failures.append(f"cannot read {self._named} further: {self._broken.strerror}")
        if interrupted or producing.stopped is not None or self._broken is not None:
            again = f"mq {self.call.name} {quote(self.topic)} …"
            rest = UnsentInput(producing.sent, producing.left(), feed.taken + 1)
            failures += rest.lines(self._file, "" if self._is_typed else again)
        result = sent_result(self.call, producing.by_queue(), failures)
        if interrupted:
            result.status = Status.INTERRUPTED
        elif failures and not producing.sent:
            result.status = Status.BAD_DATA
        return result

    def _refusals(self, refused: int, feed: Feed) -> Iterator[str]:
        if feed.empty:
            lines = "line was" if feed.empty == 1 else "lines were"
            self._say(f"{feed.empty:,} empty {lines} skipped: brokers accept no empty messages")
        if refused:
            more = f"; the first {_MAX_REPORTED} are above" if refused > _MAX_REPORTED else ""
            yield f"{refused:,} of {feed.taken:,} lines could not be sent{more}"


async def _taken(producer: "Producer", queues: "Sequence[MessageQueue]") -> DelayLimits:
    from mq.client.admin import Admin

    brokers = {queue.broker_name: queue for queue in queues}
    addresses = [await producer.address_of(queue) for queue in brokers.values()]
    return await taken_by(Admin(producer.session), addresses)


async def ready(producer: "Producer", common: dict[str, Any], body: str) -> "Message":
    """Return a single message; brokers are asked for their limits only if it is delayed."""
    taken = DelayLimits()
    if common["delay"] is not None:
        taken = await _taken(producer, await producer.prepare(common["topic"]))
    return Common(**common, taken=taken).message(body.encode())


async def whole(source: LineSource, longest: int) -> bytes:
    """Return the whole input, byte for byte; more than `longest` bytes are cut."""
    found: list[bytes] = []
    size = 0
    async for lines in source:
        for line in lines:
            found.append(line)
            size += len(line) + 1
            if size > longest + 1:
                return b"\n".join(found)
    if found and source.closed:
        found.append(b"")
    return b"\n".join(found)


@contextmanager
def opened(call: Call, file: str) -> Iterator[Read]:
    """Yield the reader of a file, or of standard input for `-`."""
    if file == "-":
        yield reader_of(call.environment.stdin)
        return
    with local_files.opened(Path(file)) as there:
        yield reader_of(there)


def check_queue(broker: str | None, queue_id: int | None) -> None:
    """Raise UsageError for a queue without a broker, or a negative one."""
    if queue_id is not None and broker is None:
        raise UsageError(
            "-i/--qid needs -b/--broker", hint="name the broker of the queue: mq topicRoute"
        )
    if queue_id is not None and queue_id < 0:
        raise UsageError(f"-i/--qid {queue_id}: must not be negative")


async def targets(
    producer: "Producer", topic: str, broker: str | None, queue_id: int | None
) -> "list[MessageQueue]":
    """Return the queues of the options. Raises NotFound for a broker that has none."""
    queues = list(await producer.prepare(topic))
    if broker is not None:
        queues = [queue for queue in queues if queue.broker_name == broker]
        if queue_id is not None and queues:
            # As with mqadmin, the broker refuses a queue that the route does not have.
            queues = [queues[0]._replace(queue_id=queue_id)]
    if not queues:
        whose = f"broker {broker}" if broker is not None else "no broker"
        has = "has no queue" if broker is not None else "has a queue"
        raise NotFound(
            f"{whose} {has} of topic {topic} that is writable",
            hint=NextStep.LOOK_AT_ROUTE,
            subject=topic,
        )
    return queues
