"""State dump: logs the state of a daemon for troubleshooting (SIGUSR1).

It contains only names, addresses and numbers: no bodies, properties, settings or keys.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

from mq.daemons.channel import Channel
from mq.daemons.listener import Listener
from mq.daemons.supervision import Tasks

log = logging.getLogger(__name__)

# Limit of lines about one subject: a broker may have very many connections and queues.
MOST_LINES = 1000
DEEPEST_STACK = 6


def dump(lines: Iterable[str]) -> None:
    """Log lines about the daemon, and then its tasks with the place at which each one waits."""
    log.info("state: begin")
    for line in lines:
        log.info("state: %s", line)
    for place, count in sorted(Counter(map(_place, asyncio.all_tasks())).items()):
        log.info("state: task %s%s", place, f" ({count} times)" if count > 1 else "")
    log.info("state: end")


def limited(lines: list[str], what: str) -> list[str]:
    """The first lines, and the number of remaining ones."""
    if len(lines) <= MOST_LINES:
        return lines
    return [*lines[:MOST_LINES], f"{len(lines) - MOST_LINES} more {what}"]


def connections(name: str, listener: Listener) -> list[str]:
    """A line about a listener, and one for each of its connections."""
    head = (
        f"listener {name} {listener.host}:{listener.port}: {len(listener.channels)} connections, "
        f"{listener.dispatcher.bad_requests} bad requests"
    )
    lines = sorted(_connection(channel, listener) for channel in listener.channels)
    return [head, *limited(lines, "connections")]


def _connection(channel: Channel, listener: Listener) -> str:
    quiet = (listener.ticks - channel.active_at) * listener.TICK
    held = f"{channel.memory} bytes held, {channel.unsent} of them unsent"
    return f"connection {channel.remote}: quiet for {quiet:.0f} s, {held}"


def _place(task: asyncio.Task[Any]) -> str:
    name = task.get_name()
    if name.startswith("Task-"):  # a number that asyncio assigned is not informative
        name = getattr(task.get_coro(), "__qualname__", "task")
    frames = task.get_stack(limit=DEEPEST_STACK)
    if frames and frames[0].f_code is Tasks._supervise.__code__:
        # The work itself is more informative than the supervising frame.
        inner = getattr(getattr(task.get_coro(), "cr_await", None), "cr_frame", None)
        frames = frames if inner is None else [inner]
    where = " < ".join(f"{frame.f_code.co_qualname}:{frame.f_lineno}" for frame in reversed(frames))
    return f"{name}: {where or 'running'}"
