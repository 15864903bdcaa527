"""One worker: `python -m mq.client.load.worker`, with its plan in a line on standard input.

It writes the number of messages so far, a line twice a second, and finally its results in JSON. It
runs until its time is over or standard input is closed, because its parent has stopped it or died.
"""

import asyncio
import sys
from collections.abc import Callable

from mq.client.load.connection import LoadConnection
from mq.client.load.measuring import LoadCounter, clock
from mq.client.load.plan import PRODUCE, Plan
from mq.client.transport.caller import parse_address
from mq.client.transport.tls import client_context

_REPORT_SECONDS = 0.5


async def work(plan: Plan, measuring: LoadCounter, say: Callable[[str], None]) -> None:
    """Carry out the plan. Raises OSError if a broker is unreachable."""
    from mq.client.load.pulling import consume
    from mq.client.load.sending import produce

    loop = asyncio.get_running_loop()
    tls = None if plan.tls is None else client_context(plan.tls)

    connections: list[LoadConnection] = []

    async def connect(address: str, connection: LoadConnection) -> None:
        endpoint = parse_address(address)
        await loop.create_connection(lambda: connection, *endpoint, ssl=tls)
        connections.append(connection)

    async def report() -> None:
        while True:
            await asyncio.sleep(_REPORT_SECONDS)
            say(str(measuring.total))

    closed = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), closed.set)  # only its end follows the plan
    reporting = asyncio.ensure_future(report())
    working = asyncio.ensure_future(
        (produce if plan.role == PRODUCE else consume)(plan, measuring, connect)
    )
    closing = asyncio.ensure_future(closed.wait())
    try:
        await asyncio.wait({working, closing}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        else:
            measuring.cut()
    finally:
        loop.remove_reader(sys.stdin.fileno())
        for task in (reporting, closing, working):
            task.cancel()
        await asyncio.wait({reporting, closing, working})
        for connection in connections:
            await connection.close()


def main() -> None:
    plan = Plan.decode(sys.stdin.buffer.readline())
    measuring = LoadCounter(plan, clock())
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    with runner:
        try:
            runner.run(work(plan, measuring, _say))
        except OSError as error:
            measuring.failed(-1, str(error))
    sys.stdout.buffer.write(measuring.finish().encode() + b"\n")


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
