"""Defects planted in the product, which have to be found and shrink: checks for the tests."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from mq.daemons.broker.name_servers.name_server_link import NameServerLink
from mq.daemons.broker.store.log.batch import Batch
from mq.daemons.broker.store.log.flush import Flusher
from mq.daemons.tube.broker.consumers import Consumer
from mq.daemons.tube.broker.registrations import Registrations
from mq.daemons.tube.broker.store.errors import FlushMode
from mq.daemons.tube.broker.store.topic_store import TopicStore
from tests.simulation import scenario, shrinking
from tests.simulation.campaign import run_alone
from tests.simulation.checks import check
from tests.simulation.faults import Fault
from tests.simulation.scenario import Result, Variant
from tests.simulation.tube import has_tube
from tests.simulation.world import START

_SEEDS = 300
_SHRINK_SECONDS = 2.0


@contextmanager
def planted(owner: Any, name: str, defect: Any) -> Iterator[None]:
    """Have an attribute be the defect for a while."""
    right = getattr(owner, name)
    setattr(owner, name, defect)
    try:
        yield
    finally:
        setattr(owner, name, right)


def _found(
    owner: Any,
    name: str,
    defect: Callable[..., Any],
    shows: str,
    is_tried: Callable[[int], bool] = lambda _: True,
    first: int = 1,
) -> dict[str, Any]:
    """What the first seed shrinks to that fails as the defect shows, by a text in a problem.

    ``is_tried``: whether a seed has what the defect needs. A higher ``first`` saves seconds.
    """
    with planted(owner, name, defect):
        for seed in filter(is_tried, range(first, first + _SEEDS)):
            failed = run_alone(seed)
            problems = [problem for problem in failed.problems if shows in problem]
            if problems:
                failed = replace(failed, problems=problems)
                return _told(failed, shrinking.shrink(failed, _SHRINK_SECONDS, run_alone))
    return {}


def _told(failed: Result, small: Result) -> dict[str, Any]:
    from tests.simulation import report

    again = run_alone(small.seed, small.variant)
    return {
        "faults": [len(failed.plan), len(small.plan)],
        "kinds": [fault.kind for fault in small.plan],
        "seconds": [failed.seconds, small.seconds],
        "problems": small.problems,
        "report": report.failure(small, shrunk_from=failed),
        "same again": set(small.problems) <= set(again.problems),
    }


@check
def acknowledged_before_it_is_synced() -> dict[str, Any]:
    """A broker that answers senders, and flushes half a second later."""

    def await_flush(self: Flusher, batch: Batch) -> None:
        self._appender.publisher.publish(batch)
        asyncio.get_running_loop().call_later(0.5, self.start)

    def is_tried(seed: int) -> bool:
        flush, plan = scenario.drawn(seed)
        cuts = [one for one in plan if "power cut" in one.kind and "broker" in one.target]
        return flush == "SYNC_FLUSH" and bool(cuts)

    return _found(Flusher, "await_flush", await_flush, "was acknowledged at", is_tried, 70)


@check
def name_servers_never_told_again() -> dict[str, Any]:
    """A broker that does not notice that a name server has forgotten it."""

    async def woken(self: NameServerLink) -> bool:
        await self._wake.wait()
        return True

    return _found(NameServerLink, "_woken", woken, "is not in its routes")


@check
def given_is_taken_for_confirmed() -> dict[str, Any]:
    """A broker of TubeMQ that confirms what was given to a consumer that is heard of no more."""

    def timed_out(self: Registrations, consumer: Consumer) -> None:
        key = consumer.topic, consumer.partition
        self._serving.offsets.commit(consumer.group, key, consumed=True)

    return _found(Registrations, "timed_out", timed_out, ", and message ", has_tube, 94)


@check
def tube_answers_before_it_syncs() -> dict[str, Any]:
    """A broker of TubeMQ that promises `sync`, and does as with `os`."""

    def write_now(self: TopicStore) -> None:
        self.mode = FlushMode.os
        write(self)

    def is_tried(seed: int) -> bool:
        return has_tube(seed) and scenario.drawn(seed)[0] == "sync"

    write = TopicStore._write_now
    return _found(TopicStore, "_write_now", write_now, "and is not there", is_tried)


@check
def what_is_needed_stays() -> dict[str, Any]:
    """A made-up failure that needs the faults 3 and 7, one client, and ten seconds."""
    plan = [Fault(START + number, 0.5, "kill", "broker-a", number) for number in range(1, 11)]

    def run(seed: int, variant: Variant) -> Result:
        stay = range(1, 11) if variant.faults is None else sorted(variant.faults)
        clients = sorted({"a", "b", "c"} if variant.clients is None else variant.clients)
        fails = {3, 7} <= set(stay) and "b" in clients and variant.work_seconds >= 10.0
        left = [fault for fault in plan if fault.number in stay]
        problems = [f"message {len(stay)} is lost"] if fails else ["another problem"]
        return Result(seed, variant, problems, 0, {}, {}, 0, left, clients)

    small = shrinking.shrink(run(1, Variant()), 10.0, run)
    return {
        "faults": [fault.number for fault in small.plan],
        "clients": small.clients,
        "seconds": small.variant.work_seconds,
    }
