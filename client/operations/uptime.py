"""The uptime of brokers: one that has just started does not know all clients yet."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from mq.client.options import DEFAULT_INTERVALS

if TYPE_CHECKING:
    from mq.client.admin import Admin

# Seconds between two heartbeats of a client, Java's or ours. Java's sends none after a reconnect: a
# broker learns of a member when the next one is due.
REPORTS = DEFAULT_INTERVALS.heartbeats

_RUNTIME = re.compile(
    r"\[ (\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds \]"
)  # the format of Java and of ours


def seconds_up(runtime: Mapping[str, str]) -> int | None:
    """Return a broker's uptime from its runtime info; None if it is missing."""
    found = _RUNTIME.search(runtime.get("runtime", ""))
    if found is None:
        return None
    days, hours, minutes, seconds = map(int, found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


async def too_early(admin: "Admin", addresses: Iterable[str]) -> list[str]:
    """Return a line for each of these brokers without members that is too young to know all
    members. Brokers without a known uptime have no line.
    """
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
