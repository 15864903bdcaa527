"""Load tests of a cluster: messages per second and latencies."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.parameters import Topic
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.interruption import WORDS, received
from mq.cli.runtime.options import subject
from mq.cli.runtime.runner import concurrently
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row
from mq.cli.time_expressions import seconds
from mq.client.operations.columns import number, text
from mq.client.operations.errors import NotFound

if TYPE_CHECKING:
    from mq.cli.load import Latencies
    from mq.client.admin import Admin
    from mq.client.load.plan import LoadResult, Plan
    from mq.protocol.bodies import MessageQueue

COMMANDS = {
    "bench": (
        "bench produce",
        "bench consume",
        "bench end-to-end",
    )
}

Size = Annotated[int, typer.Option("-s", "--size", metavar="BYTES", help="Size of each body.")]
Rate = Annotated[
    float,
    typer.Option("-r", "--rate", metavar="N", help="Messages per second in total; 0: unlimited."),
]
Seconds = Annotated[
    float,
    typer.Option(
        "-d",
        "--seconds",
        metavar="SECONDS",
        parser=seconds,
        help="Measurement time in seconds, or such as 1m.",
    ),
]
Warm = Annotated[
    float,
    typer.Option(
        "--warm",
        metavar="SECONDS",
        parser=seconds,
        help="Warm-up time before it, in seconds, or such as 500ms.",
    ),
]
Connections = Annotated[
    int, typer.Option("-c", "--connections", metavar="N", help="Connections in total.")
]
Window = Annotated[
    int, typer.Option("-w", "--window", metavar="N", help="Sends in flight per connection.")
]
Processes = Annotated[int, typer.Option("-p", "--processes", metavar="N", help="Client processes.")]
Picture = Annotated[
    str | None,
    typer.Option("--svg", metavar="FILE", help="Write a picture of the latencies to this file."),
]

_COLUMNS = (
    text("role", "Role"),
    number("messages", "Messages"),
    number("seconds", "Seconds"),
    number("messagesPerSecond", "Per second"),
    number("megabytesPerSecond", "MB/s"),
    number("errors", "Errors"),
    number("meanMs", "Mean ms"),
    number("p50Ms", "p50"),
    number("p90Ms", "p90"),
    number("p99Ms", "p99"),
    number("p999Ms", "p99.9"),
    number("p9999Ms", "p99.99"),
    number("maxMs", "Max ms"),
)


@gives(_COLUMNS)
@writes
@concurrently
@subject("topic")
async def bench_produce(
    call: Call,
    topic: Topic,
    size: Size = 1024,
    rate: Rate = 0,
    seconds: Seconds = 10,
    warm: Warm = 1,
    connections: Connections = 8,
    window: Window = 128,
    processes: Processes = 2,
    svg: Picture = None,
) -> Result:
    """Send messages as fast as possible, or at a rate, and measure.

    Ctrl-C ends it early and shows the results so far.

    With a rate, the latency of a send counts from the time at which it was due, so a stall is
    charged to every send that waits for it. Without a rate, it counts from the time of sending,
    and does not show what clients see that do not wait. The messages stay in the topic.

    Examples:
        mq bench produce Orders -d 5  send as fast as possible for 5 s
        mq bench produce Orders -r 1000 -d 60 --svg latency.svg
                                      1000 per second, with a picture
    """
    _check(size=size, seconds=seconds, connections=connections, window=window, processes=processes)
    plan = await _plan(call, topic, "produce", {"size": size, "rate": rate, "window": window})
    plans = _shared(plan, processes, connections, seconds, warm)
    return await _measure(call, plans, svg, f"sends of {size} bytes to {topic}")


@gives(_COLUMNS)
@concurrently
@subject("topic")
async def bench_consume(
    call: Call,
    topic: Topic,
    seconds: Seconds = 10,
    warm: Warm = 0,
    connections: Connections = 4,
    window: Annotated[
        int, typer.Option("-w", "--window", metavar="N", help="Messages per pull request.")
    ] = 32,
    processes: Processes = 1,
    svg: Picture = None,
) -> Result:
    """Read a topic from its beginning as fast as possible, and measure.

    It ends at the end of the topic, or after the seconds. It uses no group and commits nothing. A
    latency is that of one pull.

    Examples:
        mq bench consume Orders            read a topic as fast as possible
        mq bench consume Orders -d 5 -c 1  over one connection
    """
    _check(seconds=seconds, connections=connections, window=window, processes=processes)
    plan = await _plan(call, topic, "consume", {"window": window, "to_the_end": True})
    plans = _shared(plan, processes, connections, seconds, warm)
    return await _measure(call, plans, svg, f"pulls of {topic}")


@gives(_COLUMNS)
@writes
@concurrently
@subject("topic")
async def bench_end_to_end(
    call: Call,
    topic: Topic,
    size: Size = 1024,
    rate: Rate = 1000,
    seconds: Seconds = 10,
    warm: Warm = 1,
    connections: Connections = 4,
    window: Window = 1024,
    processes: Processes = 1,
    svg: Picture = None,
) -> Result:
    """Send at a rate, read at the same time, and measure the latency from end to end.

    A latency counts from the time at which a send was due until the message was read. The messages
    stay in the topic; only those of this run are counted.

    Examples:
        mq bench end-to-end Orders -d 5  send and read 1000 per second
        mq bench end-to-end Orders -r 100 -s 4096 -d 5
                                         100 per second, of 4 KiB
    """
    from mq.client.load.plan import STAMP_DIGITS

    _check(size=size, seconds=seconds, connections=connections, window=window, processes=processes)
    if rate <= 0:
        raise UsageError(
            f"-r/--rate: {rate:g}",
            hint="must be over 0; without a rate use: mq bench produce",
        )
    if size < STAMP_DIGITS:
        raise UsageError(
            f"-s/--size: {size} bytes", hint=f"at least {STAMP_DIGITS}: a body holds its due time"
        )
    stamped = {"stamped": True, "size": size}
    reading = await _plan(call, topic, "consume", {"window": 32, **stamped})
    sending = await _plan(call, topic, "produce", {"window": window, "rate": rate, **stamped})
    # Readers run a little longer, for messages that are still in flight.
    plans = _shared(reading, processes, connections, seconds + _READ_ON, warm)
    plans += _shared(sending, processes, connections, seconds, warm)
    return await _measure(call, plans, svg, f"{rate:g} messages of {size} bytes a second")


_READ_ON = 1.0


def _check(**values: float) -> None:
    for name, value in values.items():
        if value <= 0:
            raise UsageError(f"--{name}: {value:g}", hint="must be over 0")


async def _plan(call: Call, topic: str, role: str, more: dict[str, object]) -> "Plan":
    """Return the load of all workers of a role. Raises NotFound for a topic without queues."""
    from mq.client.admin import Admin
    from mq.client.load.plan import PRODUCE, Plan
    from mq.client.routing.routes import broker_address, read_queues, write_queues

    async with call.session() as session:
        route = await session.route(topic)
        queues = (write_queues if role == PRODUCE else read_queues)(topic, route)
        places = []
        for queue in queues:
            address = broker_address(route, queue.broker_name, exact=role == PRODUCE)
            if address is not None:
                first = await _first(Admin(session), role, address, queue, "stamped" in more)
                places.append((address, queue.queue_id, first))
    if not places:
        raise NotFound(f"topic {topic} has no usable queue", hint="see: mq topicRoute")
    key = call.credentials()
    secrets = (key.access_key, key.secret_key, key.security_token) if key else (None, None, None)
    fields = dict(zip(("access_key", "secret_key", "security_token"), secrets, strict=True))
    return Plan(role, topic, places, tls=_tls(call), **fields, **more)  # type: ignore[arg-type]


async def _first(
    admin: "Admin", role: str, address: str, queue: "MessageQueue", at_the_end: bool
) -> int:
    """Return the offset from which to read a queue."""
    if role == "produce":
        return -1
    ask = admin.max_offset if at_the_end else admin.min_offset
    return await ask(address, queue.topic, queue.queue_id)


def _tls(call: Call) -> dict[str, str] | None:
    if call.tls_config is None:
        return None
    from mq.daemons.properties import read_properties

    call.tls()  # reports errors in the file
    return dict(read_properties(Path(call.tls_config).read_text("utf-8")))


def _shared(
    plan: "Plan", processes: int, connections: int, seconds: float, warm: float
) -> list["Plan"]:
    """Divide the load among processes."""
    from dataclasses import replace

    parts = min(processes, len(plan.queues))
    return [
        replace(
            plan,
            queues=plan.queues[number::parts],
            connections=max(1, connections // parts),
            rate=plan.rate / parts,
            seconds=seconds,
            warm=warm,
        )
        for number in range(parts)
    ]


async def _measure(call: Call, plans: list["Plan"], svg: str | None, title: str) -> Result:
    from mq.cli.load import Latencies, run_workers
    from mq.cli.runtime.progress import progress

    if call.dry_run:
        return Result(_COLUMNS)
    with progress(call.environment, "measuring", unit="messages") as step:
        measured = await run_workers(plans, step)
    latencies = {role: Latencies.of(result) for role, result in measured.items()}
    failures = [line for role, result in measured.items() for line in _failures(role, result)]
    if (signal := received()) is not None:
        if not any(result.messages for result in measured.values()):
            raise CommandError(
                f"{WORDS[signal]} before anything was measured", status=Status.INTERRUPTED
            )
        failures.append(f"{WORDS[signal]}: these are the results so far")
    if failures and not any(result.messages for result in measured.values()):
        raise CommandError(failures[0], status=Status.UNAVAILABLE)
    if svg:
        from mq.cli.show.latency_picture import draw
        from mq.client.operations.local_files import replace

        replace(Path(svg), draw(title, latencies).encode())
    rows = [_row(role, result, latencies[role]) for role, result in measured.items()]
    empty = not any(result.messages for result in measured.values())
    notes = ["nothing was measured; the topic is empty, or the time too short"] if empty else []
    return Result(_COLUMNS, rows, failures=failures, notes=notes)


def _failures(role: str, measured: "LoadResult") -> Iterable[str]:
    from mq.protocol.codes import ResponseCode

    for code, count in measured.errors.items():
        known = code in ResponseCode._value2member_map_
        name = ResponseCode(code).name if known else f"code {code}"
        yield f"{role}: {count} x {name if code >= 0 else 'connection lost'}: {measured.remark}"


def _row(role: str, measured: "LoadResult", latencies: "Latencies") -> Row:
    seconds = measured.seconds
    return (
        role,
        measured.messages,
        round(seconds, 3),
        round(measured.messages / seconds),
        round(measured.size / seconds / 1e6, 1),
        sum(measured.errors.values()),
        round(latencies.mean, 3),
        *(round(latencies.at(percent), 3) for percent in (50, 90, 99, 99.9, 99.99)),
        round(latencies.highest, 3),
    )
