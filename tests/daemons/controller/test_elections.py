"""The worker that holds elections: which sets it examines and when, and what stays due."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from mq.daemons.controller import elections as elections_module
from mq.daemons.controller import liveness
from mq.daemons.controller.app import Controller
from mq.daemons.controller.elections import Elections
from mq.daemons.controller.etcd import Etcd, EtcdError, Txn
from tests.daemons.controller.brokers import ScriptedBroker, controller
from tests.daemons.controller.etcd_server import EtcdServer
from tests.waiting import until

_LONG = 3_600_000  # ms


@asynccontextmanager
async def idle(etcd: EtcdServer, group: str) -> AsyncIterator[tuple[Controller, Elections]]:
    """A leading controller and its elections. No worker runs, so elections only become due."""
    own = {"controllerDLegerGroup": group, "scanInactiveMasterInterval": str(_LONG)}
    async with controller(etcd.url, **own) as one:
        await until(lambda: one.leadership.leads)
        parts = one.elections
        one.elections = Elections(one.settings, one.registry, one.liveness, parts._session)
        yield one, one.elections


@asynccontextmanager
async def set_without_master(one: Controller, name: str) -> AsyncIterator[ScriptedBroker]:
    """A set whose master is dead; its live members are in sync."""
    async with ScriptedBroker(one.port, 2, name) as left:
        async with ScriptedBroker(one.port, 1, name) as master:
            await master.join()
            await master.elect()
            await left.apply()
            await left.beat(timeout=_LONG)
            await left.register()
            await master.alter({1, 2}, 1, 1)
        await until(lambda: not one.liveness.is_alive(name, 1))
        yield left


def test_sets_that_wait_for_a_heartbeat_do_not_delay_the_election_of_another(
    etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "_LATE", 0.0)
    monkeypatch.setattr(elections_module, "_RETRY_SECONDS", 3600.0)  # no second round

    async def main() -> None:
        async with (
            idle(etcd, "rounds") as (one, elections),
            set_without_master(one, "late-1") as first,
            set_without_master(one, "late-2") as second,
            set_without_master(one, "prompt") as prompt,
        ):
            await first.beat(timeout=_LONG)
            await second.beat(timeout=_LONG)
            assert list(elections._due) == ["late-1", "late-2", "prompt"]
            work = asyncio.create_task(elections.work())
            await until(lambda: elections.held == 1)
            assert (await prompt.info()).fields["masterBrokerId"] == "2"
            assert list(elections._due) == ["late-1", "late-2"]
            work.cancel()

    asyncio.run(main())


def test_a_refusal_of_etcd_for_one_set_does_not_retry_all_before_the_pause(
    etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt reads all sets again: without a pause, a thousand sets a thousand times."""
    monkeypatch.setattr(elections_module, "_RETRY_SECONDS", 0.01)
    put_if = Etcd.put_if
    written: list[str] = []

    async def full(self: Etcd, key: str, *more: Any) -> Txn:
        written.append(key.rpartition("/")[2])
        raise EtcdError("etcdserver: mvcc: database space exceeded")

    async def main() -> None:
        async with (
            idle(etcd, "full") as (one, elections),
            set_without_master(one, "first"),
            set_without_master(one, "second"),
        ):
            monkeypatch.setattr(Etcd, "put_if", full)
            assert not await elections._hold_due()
            assert (written, list(elections._due)) == (["first"], ["second", "first"])
            assert not await elections._hold_due()
            assert (written, list(elections._due)) == (["first", "second"], ["first", "second"])
            monkeypatch.setattr(Etcd, "put_if", put_if)
            work = asyncio.create_task(elections.work())
            await until(lambda: elections.held == 2, 10)
            work.cancel()

    asyncio.run(main())


@pytest.mark.parametrize("end", ["error", "cancelled"])
def test_an_unfinished_election_stays_due(
    etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    put_if = Etcd.put_if
    begun = asyncio.Event()

    async def not_to_the_end(self: Etcd, key: str, *more: Any) -> Txn:
        if not key.endswith("/broker-a"):
            return await put_if(self, key, *more)
        begun.set()
        if end == "error":
            raise RuntimeError("a bug")
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> None:
        async with idle(etcd, end) as (one, elections), set_without_master(one, "broker-a") as left:
            with monkeypatch.context() as patched:
                patched.setattr(Etcd, "put_if", not_to_the_end)
                work = asyncio.create_task(elections.work())
                await begun.wait()
                if end == "cancelled":
                    work.cancel()
                with suppress(RuntimeError, asyncio.CancelledError):
                    await work
            work = asyncio.create_task(elections.work())  # as the supervisor does
            await until(lambda: elections.held == 1)
            assert (await left.info()).fields["masterBrokerId"] == "2"
            work.cancel()

    asyncio.run(main())
