"""`mq top`: live rates and lag."""

from collections.abc import AsyncIterator, Coroutine
from typing import Annotated, Any

import typer

from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import endless, gives
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.runner import concurrently
from mq.cli.show.output import Format
from mq.cli.show.result import Result
from mq.cli.show.view import View
from mq.cli.time_expressions import seconds
from mq.cli.top.subjects import (
    BROKER_DATA,
    BROKERS,
    COLUMNS,
    GROUPS,
    SNODES,
    SORTS,
    TOPICS,
    TOTALS,
    Subject,
    TopOptions,
)

COMMANDS = {"cluster": ("top",)}


@concurrently
@endless
@gives(BROKERS, TOPICS, GROUPS, SNODES, totals=TOTALS, data=BROKER_DATA)
def top(
    call: Call,
    show: Annotated[Subject, typer.Option("--show", help="View to start with.")] = Subject.BROKERS,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            metavar="SECONDS",
            parser=seconds,
            help="Time between two updates in seconds, or such as 500ms.",
        ),
    ] = 2.0,
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", help="Stop after N updates.")
    ] = None,
    pattern: Annotated[
        str, typer.Option("--filter", metavar="TEXT", help="Only names that contain this text.")
    ] = "",
    system: Annotated[
        bool, typer.Option("--system", help="Include the system's own topics and groups.")
    ] = False,
) -> Coroutine[Any, Any, Result] | AsyncIterator[Result]:
    """Show live rates and lag of brokers, topics, consumer groups and snodes.

    Rates are the growth of counters between two updates, so the first ones appear after one
    interval; rates of groups are measured over ten seconds, because consumers commit offsets only
    every few seconds. Topics show the bytes of a broker's last minute. Put p99 is the 99th
    percentile of put times, at Java's brokers.

    At a terminal it fills the screen. Keys: b, t, g and n show brokers, topics, groups and snodes,
    s sorts by the next column, r reverses the order, / filters names, space pauses, ? or h shows
    all keys, q quits. Elsewhere it prints one result per interval; in JSON one document per line. A
    broker that stops answering stays in the view with its state, and the exit status is then 1.

    Examples:
        mq top                              brokers; t, g and n show the others
        mq top --show groups --filter bill  start with groups whose name contains bill
        mq top --show topics --interval 1 --count 1 -o json
                                            one update, for a program
    """
    if not 0.1 <= interval <= 86_400:
        raise UsageError(f"--interval {interval:g}: must be 0.1 to 86400 seconds")
    if count is not None and count < 1:
        raise UsageError(f"--count {count}: must be positive")
    call.view.check([COLUMNS[show]])
    # A hanging broker must not delay an update for longer.
    timeout = min(call.timeout, max(interval, 1.0))
    wish = TopOptions(show, interval, timeout, count, pattern, system)
    if call.environment.terminal and call.output is Format.TABLE:
        return _on_screen(call, wish)
    return _one_by_one(call, wish)


async def _on_screen(call: Call, wish: TopOptions) -> Result:
    from mq.cli.top.sampling import Watcher
    from mq.cli.top.screen import Screen

    async with call.session() as session:
        watcher = Watcher(session, wish.timeout, system=wish.system)
        return await Screen(call, watcher, wish).run()


async def _one_by_one(call: Call, wish: TopOptions) -> AsyncIterator[Result]:
    import asyncio

    from mq.cli.top.sampling import Watcher
    from mq.cli.top.views import History

    history = History()
    left = wish.count
    loop = asyncio.get_running_loop()
    order = View(sort=call.view.sort or (SORTS[wish.subject],))
    async with call.session() as session:
        watcher = Watcher(session, wish.timeout, system=wish.system)
        due = loop.time()
        while left is None or left > 0:
            history.add(await watcher.sample(wish.subject, wish.takes))
            if len(history) > 1:
                yield order.apply(history.result(wish.subject, wish.takes))
                left = None if left is None else left - 1
            due = max(due + wish.interval, loop.time())
            if left != 0:
                await asyncio.sleep(due - loop.time())
