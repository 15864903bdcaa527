"""`mq tube bench`: measures how fast a TubeMQ topic is written and read."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, of_tube, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.interruption import WORDS, received
from mq.cli.runtime.options import subject
from mq.cli.runtime.runner import in_bulk
from mq.cli.show.result import Result, Row
from mq.cli.tube_clients import Topic, own_masters, own_options, producer_of
from mq.client.operations.columns import number, text
from mq.client.operations.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

COMMANDS = {"tube": ("tube bench",)}

_BENCH = (
    text("role", "Role"),
    number("messages", "Messages"),
    number("perSecond", "Per second"),
    number("megabytesPerSecond", "MB/s"),
    number("medianMillis", "Median (ms)"),
    number("p99Millis", "p99 (ms)"),
    number("maxMillis", "Max (ms)"),
)


@of_tube
@gives(_BENCH)
@writes
@in_bulk
@subject("topic")
async def tube_bench(
    call: Call,
    topic: Topic,
    messages: Annotated[
        int, typer.Option("--messages", metavar="N", help="Number of messages.")
    ] = 100_000,
    size: Annotated[
        int, typer.Option("--size", metavar="BYTES", help="Size of each message.")
    ] = 1024,
    producers: Annotated[
        int,
        typer.Option(
            "--producers",
            metavar="N",
            help="Number of producers, each with a connection to every broker.",
        ),
    ] = 8,
    in_flight: Annotated[
        int, typer.Option("--in-flight", metavar="N", help="Sends in flight per producer.")
    ] = 64,
    read: Annotated[
        bool,
        typer.Option(
            "--read", help="Read the topic at the same time, until all messages are read."
        ),
    ] = False,
) -> Result:
    """Measure how fast a topic of TubeMQ can be written and read.

    All clients run in one process, which may be slower than the cluster. The reader is the only
    member of its group, and reads all partitions.

    Examples:
        mq tube bench Orders --messages 1000         time a thousand sends of 1 KiB
        mq tube bench Orders --messages 1000 --read  and read them at the same time
    """
    options = {
        "--messages": messages,
        "--size": size,
        "--producers": producers,
        "--in-flight": in_flight,
    }
    for name, value in options.items():
        if value < 1:
            raise UsageError(f"{name} {value}: must be positive")
    if call.dry_run:
        call.would("send", topic, f"{counted(messages, 'message')} of {size} bytes")
        return Result(_BENCH)
    from mq.cli.tube_load import measure_sending

    clients = [producer_of(call, topic) for _ in range(producers)]
    sending = measure_sending(clients, topic, messages, size, in_flight)
    if read:
        rows = await _beside(_reading(call, topic, messages, size), sending)
    else:
        rows = [await sending]
    signal = received()
    cut = [] if signal is None else [f"{WORDS[signal]}: these are the results so far"]
    return Result(_BENCH, rows, failures=cut)


def _reading(
    call: Call, topic: str, messages: int, size: int
) -> "Callable[[asyncio.Event], Coroutine[Any, Any, Row]]":
    """Return the function that reads this many new messages; it sets the event when it starts."""
    from mq.cli.tube_load import measure_reading
    from mq.client.tube.balance_consumer import TubeBalanceConsumer
    from mq.client.tube.options import ConsumeFrom, TubeConsumerOptions

    options = TubeConsumerOptions(
        consume_from=ConsumeFrom.LATEST_ALWAYS, confirm_locally=True, **own_options(call)
    )
    group = f"mq_bench_{int(call.environment.clock() * 1000)}"
    consumer = TubeBalanceConsumer(own_masters(call), group, [topic], options)
    return lambda ready: measure_reading(consumer, messages, size, ready)


async def _beside(
    read: "Callable[[asyncio.Event], Coroutine[Any, Any, Row]]",
    sending: "Coroutine[Any, Any, Row]",
) -> list[Row]:
    """Send once the reader has started. Returns both rows when all is read."""
    ready = asyncio.Event()
    reading = asyncio.create_task(read(ready))
    try:
        await ready.wait()
        sent = await sending
        if received() is not None:
            reading.cancel()
        return [sent, await reading]
    finally:
        sending.close()  # only has an effect if it was not started
        reading.cancel()
        await asyncio.wait([reading])
