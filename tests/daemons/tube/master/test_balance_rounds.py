"""Rounds: forbidden topics, and the missing data of a new active master."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mq.daemons.tube.master import app
from mq.daemons.tube.master.app import Master
from mq.daemons.tube.master.core import Core
from tests.daemons.tube.loops import in_loop
from tests.daemons.tube.master.masters import running, settings


@in_loop
async def test_partitions_that_a_group_may_not_have_do_not_keep_the_others_from_being_evened_out(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic("demo", partitions=4)
        await cluster.with_topic("closed", partitions=4)
        await cluster.changed(
            "admin_add_black_consumergroup_info", topicName="closed", groupName="group"
        )
        topics: dict[str, Any] = {"topicList": ["demo", "closed"]}
        await cluster.peer.consume("c1", **topics)
        assert len((await cluster.settle("c1"))["c1"]) == 4
        await cluster.peer.consume("c2", **topics)
        held = await cluster.settle("c1", "c2")
        assert sorted(map(len, held.values())) == [2, 2]


@in_loop
async def test_what_members_hold_at_a_broker_that_has_not_registered_again_stays_with_them(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, brokerHeartbeatTimeoutMs=3600_000) as cluster:
        await cluster.with_topic(brokers=2)
        await cluster.peer.consume("c1")
        held = (await cluster.settle("c1"))["c1"]
        report = [f"c1@group#{one}" for one in sorted(held)]
        cluster.core.forget()  # as after another master was active
        assert (await cluster.peer.consume("c1", subscribeInfo=report)).success
        made = cluster.core.events_made
        await cluster.serve(1)
        assert await cluster.settle("c1") == {"c1": held}
        await cluster.serve(2)
        assert await cluster.settle("c1") == {"c1": held}
        assert cluster.core.events_made == made


@in_loop
async def test_a_broker_that_has_registered_again_and_goes_is_not_waited_for(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, brokerHeartbeatTimeoutMs=3600_000) as cluster:
        await cluster.with_topic(brokers=2)
        await cluster.peer.consume("c1")
        await cluster.settle("c1")
        cluster.core.brokers.remove(2)
        assert len((await cluster.settle("c1"))["c1"]) == 4


@in_loop
async def test_a_broker_that_never_registers_again_is_given_up(tmp_path: Path) -> None:
    async with running(tmp_path, brokerHeartbeatTimeoutMs=100) as cluster:
        await cluster.with_topic()
        await cluster.peer.consume("c1")
        held = (await cluster.settle("c1"))["c1"]
        report = [f"c1@group#{one}" for one in sorted(held)]
        cluster.core.forget()
        cluster.core.since -= 1
        assert (await cluster.peer.consume("c1", subscribeInfo=report)).success
        assert await cluster.settle("c1") == {"c1": set()}


@in_loop
async def test_no_round_comes_in_the_first_moments_of_an_active_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    period = 0.2
    after: list[float] = []
    done = asyncio.Event()

    def round_of(core: Core) -> None:
        after.append(core.now() - core.since)
        # Another master is active for a moment, half way to the next round.
        asyncio.get_running_loop().call_later(period / 2, core.forget)
        if len(after) == 3:
            done.set()

    monkeypatch.setattr(app, "balance_all", round_of)
    async with Master(settings(tmp_path, consumerBalancePeriodMs=int(period * 1000))):
        async with asyncio.timeout(60):
            await done.wait()
    assert min(after) >= period
