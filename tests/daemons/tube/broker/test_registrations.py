"""Registration, heartbeats, commits and removal of consumers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mq.daemons.tube.broker import consumers, offsets
from mq.daemons.tube.broker.app import Broker
from mq.daemons.tube.broker.consumers import Consumer
from mq.protocol.tube.messages import EnableBrokerFunInfo
from tests.daemons.tube.broker.harness import CLIENT, Client, bodies, run

PARTITION = "1:127.0.0.1:8123#demo:{}"


async def fill(client: Client, count: int = 3) -> None:
    for number in range(count):
        await client.send(b"m%d" % number)


@pytest.mark.parametrize(("status", "offset"), [(0, 0), (1, 84), (2, 84)])
def test_a_new_group_begins_as_its_read_status_says(
    tmp_path: Path, status: int, offset: int
) -> None:
    async def check(_: Broker, client: Client) -> None:
        await fill(client)
        answer = await client.register(readStatus=status)
        assert (answer.success, answer.currOffset, answer.maxOffset) == (True, offset, 84)

    run(tmp_path, check)


@pytest.mark.parametrize(("status", "offset"), [(0, 28), (1, 28), (2, 84)])
def test_a_group_that_was_there_goes_on_unless_it_wants_the_end_always(
    tmp_path: Path, status: int, offset: int
) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await fill(client)
        await broker.serving.offsets.replace([("group", ("demo", 0), 28)])
        assert (await client.register(readStatus=status)).currOffset == offset

    run(tmp_path, check)


@pytest.mark.parametrize(("wanted", "offset"), [(0, 0), (56, 56), (57, 56), (9999, 84), (-1, 84)])
def test_an_offset_that_is_asked_for_is_taken_within_bounds(
    tmp_path: Path, wanted: int, offset: int
) -> None:
    async def check(_: Broker, client: Client) -> None:
        await fill(client)
        assert (await client.register(readStatus=1, currOffset=wanted)).currOffset == offset

    run(tmp_path, check)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"opType": 33}, 400),
        ({"clientId": ""}, 400),
        ({"topicName": "other"}, 403),
        ({"groupName": ""}, 400),
        ({"partitionId": 9}, 403),
        ({"filterCondStr": ["no,item"]}, 400),
        ({"filterCondStr": [f"i{n}" for n in range(501)]}, 400),
    ],
)
def test_what_is_no_registration_is_refused(
    tmp_path: Path, changes: dict[str, Any], code: int
) -> None:
    async def check(broker: Broker, client: Client) -> None:
        answer = await client.register(**changes)
        assert (answer.success, answer.errCode, answer.currOffset) == (False, code, -1)
        assert len(broker.serving.consumers) == 0

    run(tmp_path, check)


def test_a_partition_has_one_consumer_of_a_group(tmp_path: Path) -> None:
    async def check(_: Broker, client: Client) -> None:
        await client.register()
        other = await client.register(clientId="other")
        assert (other.errCode, CLIENT in other.errMsg) == (410, True)
        assert (await client.register()).success  # its own again
        assert (await client.register(clientId="other", groupName="another")).success

    run(tmp_path, check)


def test_who_is_not_heard_of_goes_with_what_was_pending(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await fill(client)
        await client.register()
        await client.get()
        (consumer,) = broker.serving.consumers
        consumer.expires = 0.0
        assert (await client.get()).errCode == 411
        refused = await client.register(clientId="other")
        assert (refused.errCode, "Remove Invalid" in refused.errMsg) == (410, True)
        answer = await client.register(clientId="other")
        assert (answer.success, answer.currOffset) == (True, 0)

    run(tmp_path, check)


def test_time_takes_registrations_away(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await fill(client)
        over = asyncio.Event()
        registered, told = broker.serving.consumers, broker.serving.consumers._timed_out

        def timed_out(consumer: Consumer) -> None:
            told(consumer)
            over.set()

        registered._timed_out = timed_out
        await client.register()
        await client.get()
        await over.wait()
        assert broker.serving.offsets.of_group("group")["demo", 0].pending == 0
        assert (await client.get()).errCode == 411

    run(tmp_path, check, consumerRegTimeoutMs=100)


@pytest.mark.parametrize(("status", "offset"), [(0, 84), (1, 0)])
def test_leaving_commits_what_was_consumed_only(tmp_path: Path, status: int, offset: int) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await fill(client)
        await client.register()
        await client.get()
        assert (await client.unregister(readStatus=status)).success
        assert broker.serving.offsets.committed("group", ("demo", 0)) == offset
        assert (await client.unregister()).errCode == 411

    run(tmp_path, check)


def test_nobody_takes_away_what_another_has(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await client.register()
        assert (await client.unregister(clientId="other")).errCode == 412
        assert len(broker.serving.consumers) == 1

    run(tmp_path, check)


def test_a_heartbeat_renews_and_says_what_is_not_its_own(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await client.register(partitionId=0)
        await client.register(partitionId=1, clientId="other")
        (first, _) = broker.serving.consumers
        first.expires -= 10
        before = first.expires
        answer = await client.heartbeat(
            PARTITION.format(0), PARTITION.format(1), PARTITION.format(2), "no partition",
            qryPriorityId=301,
        )  # fmt: skip
        assert (answer.success, answer.hasPartFailure) == (True, True)
        assert list(answer.failureInfo) == [
            "412:" + PARTITION.format(1), "411:" + PARTITION.format(2)
        ]  # fmt: skip
        assert first.expires > before
        assert first.priority == 301

    run(tmp_path, check)


def test_a_commit_adds_what_is_pending_or_drops_it(tmp_path: Path) -> None:
    async def check(_: Broker, client: Client) -> None:
        await fill(client)
        await client.register()
        await client.get()
        dropped = await client.commit(lastPackConsumed=False)
        assert (dropped.success, dropped.currOffset, dropped.maxOffset) == (True, 0, 84)
        assert len((await client.get()).messages) == 3
        assert (await client.commit()).currOffset == 84
        assert (await client.commit()).currOffset == 84  # no pending part remains

    run(tmp_path, check)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topicName": "other"}, 403),
        ({"partitionId": 7}, 403),
        ({"partitionId": 2}, 401),
        ({"clientId": "other"}, 401),
        ({"groupName": "other"}, 401),
        ({"groupName": ""}, 400),
    ],
)
def test_who_may_not_commit_is_refused(tmp_path: Path, changes: dict[str, Any], code: int) -> None:
    async def check(_: Broker, client: Client) -> None:
        await client.register()
        answer = await client.commit(**changes)
        assert (answer.success, answer.errCode, answer.currOffset) == (False, code, -1)

    run(tmp_path, check)


def test_offsets_are_there_behind_a_restart(tmp_path: Path) -> None:
    async def first(_: Broker, client: Client) -> None:
        await fill(client)
        await client.register()
        await client.get()
        await client.commit()

    async def second(_: Broker, client: Client) -> None:
        assert (await client.register()).currOffset == 84
        await client.send(b"new")
        assert bodies(await client.get()) == [b"new"]

    run(tmp_path, first)
    run(tmp_path, second)


def test_more_registrations_than_may_be_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "MAX_REGISTRATIONS", 1)

    async def check(_: Broker, client: Client) -> None:
        await client.register()
        assert (await client.register(partitionId=1)).errCode == 503
        assert (await client.register()).success

    run(tmp_path, check)


def test_filters_of_all_consumers_have_a_budget_and_who_is_refused_moves_no_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "MAX_TEXT", 10_000)
    many = ["i" * 200 + str(number) for number in range(20)]

    async def check(broker: Broker, client: Client) -> None:
        await fill(client)
        for _ in range(3):  # replaces itself
            assert (await client.register(filterCondStr=many)).success
        other = await client.register(groupName="other", filterCondStr=many, readStatus=2)
        assert other.errCode == 503
        assert broker.serving.offsets.committed("other", ("demo", 0)) == 0
        assert "other" not in broker.serving.offsets
        assert (await client.unregister()).success
        assert (await client.register(groupName="other", filterCondStr=many)).success

    run(tmp_path, check)


def test_more_offsets_than_may_be_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "MAX_ENTRIES", 1)

    async def check(broker: Broker, client: Client) -> None:
        await client.register()
        assert (await client.register(groupName="another")).errCode == 503
        assert len(broker.serving.offsets) == len(broker.serving.consumers) == 1

    run(tmp_path, check)


def test_visit_tokens_are_checked_when_the_master_wants_it(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        access = broker.serving.access
        access.configure(
            EnableBrokerFunInfo(
                enableConsumeAuthenticate=False, enableConsumeAuthorize=False,
                enableProduceAuthenticate=False, enableProduceAuthorize=False,
                enableVisitTokenCheck=True,
            )
        )  # fmt: skip
        access.is_kept = lambda: True
        access.add_tokens("17,18")
        assert (await client.send(b"x")).errCode == 415
        assert (await client.register()).errCode == 415
        token = {"authInfo": {"visitAuthorizedToken": 17}}
        assert (await client.send(b"x", **token)).success
        access.add_tokens(",".join(map(str, range(20, 26))))
        assert (await client.send(b"x", **token)).errCode == 415  # six are remembered
        access.is_kept = lambda: False  # no token is renewed
        assert (await client.send(b"x")).success

    run(tmp_path, check)


def test_who_has_to_say_who_he_is_does(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        broker.serving.access.configure(
            EnableBrokerFunInfo(
                enableConsumeAuthenticate=False, enableConsumeAuthorize=False,
                enableProduceAuthenticate=True, enableProduceAuthorize=False,
            )
        )  # fmt: skip
        assert (await client.send(b"x")).errCode == 415
        assert (await client.register()).success
        signed = {"visitAuthorizedToken": -2, "authAuthorizedToken": "user 1 2 signature"}
        assert (await client.send(b"x", authInfo=signed)).success

    run(tmp_path, check)
