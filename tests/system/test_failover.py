"""A set under controllers whose master is killed again and again, while others send."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.daemons.broker.membership.controller import ScriptedController
from tests.system.controlled_set import (
    NAME,
    member,
    point_to,
    until_all_show_the_same,
    until_more,
)
from tests.system.daemon import BrokerProcess
from tests.system.ledger import SenderProcess, audit

pytestmark = [pytest.mark.longer, pytest.mark.timeout(2400)]

ROUNDS = 300 if os.environ.get("MQ_TEST_LONG") else 5
# From kill -9 of the master to the next acknowledged send: on a quiet machine half a second.
MOST_SECONDS = 10.0


def test_nothing_that_was_acknowledged_is_lost_when_masters_die(tmp_path: Path) -> None:
    address_file = tmp_path / "address"
    took: list[float] = []

    async def play(brokers: list[BrokerProcess], controller: ScriptedController) -> None:
        await asyncio.gather(*(asyncio.to_thread(one.start) for one in brokers))
        there = controller.sets[NAME]
        await controller.until(lambda: len(there.members) == 3)
        sender = SenderProcess(tmp_path, 0, address_file)

        def at() -> str:
            return there.ids[there.master][0]

        address_file.write_text(at())
        await asyncio.to_thread(sender.start)
        try:
            for _ in range(ROUNDS):
                await controller.until(lambda: len(there.members) >= 2)
                await until_more(sender, 300)
                killed = next(one for one in brokers if one.address == at())
                before, epoch = at(), there.epoch
                killed.kill()
                began = time.monotonic()
                await controller.until(lambda: there.epoch > epoch and bool(there.master))  # noqa: B023
                assert at() != before
                point_to(address_file, at())
                await until_more(sender, 1)
                took.append(time.monotonic() - began)
                await asyncio.to_thread(killed.start)
        finally:
            await asyncio.to_thread(sender.stop)
        await controller.until(lambda: len(there.members) == 3)

    async def run() -> None:
        async with ScriptedController() as controller:
            brokers = [
                member(tmp_path, number, controller.address, minInSyncReplicas="2")
                for number in range(3)
            ]
            try:
                await play(brokers, controller)
                await asyncio.to_thread(until_all_show_the_same, brokers)
                for one in brokers:
                    (await asyncio.to_thread(audit, tmp_path, one.address)).check()
            finally:
                for one in brokers:
                    await asyncio.to_thread(one.kill)

    asyncio.run(run())
    assert max(took) < MOST_SECONDS, took
