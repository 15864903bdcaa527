"""How long brokers run: one that has just started does not know yet who is there."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from mq.client.intervals import DEFAULT_INTERVALS

if TYPE_CHECKING:
    from mq.client.admin import Admin

# Seconds between two heartbeats of a client, Java's or ours. Java's sends none when it has lost a
# connection and has it again: a broker hears of a member when the next one is due.
REPORTS = DEFAULT_INTERVALS.heartbeats

_RUNTIME = re.compile(
    r"\[ (\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds \]"
)  # how Java and we say how long a broker runs


def seconds_up(runtime: Mapping[str, str]) -> int | None:
    """How long a broker runs, of what it says of itself; None where it does not say it."""
    found = _RUNTIME.search(runtime.get("runtime", ""))
    if found is None:
        return None
    days, hours, minutes, seconds = map(int, found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


async def too_early(admin: "Admin", addresses: Iterable[str]) -> list[str]:
    """A line for each of these brokers, which know no member of a group, that has not run as long
    as it takes until all members have reported. Who does not say how long it runs has no line."""
    from mq.client.operations import cluster

    async def ask(each: "Admin", address: str) -> int | None:
        return seconds_up(await each.broker_runtime_info(address))

    done, _ = await cluster.outcomes(admin, addresses, ask)
    return [
        f"{address}: it started {seconds} s ago, and consumers report each {REPORTS:g} s: "
        "it may not know all of them yet"
        for address, seconds in done.items()
        if seconds is not None and seconds <= REPORTS
    ]
