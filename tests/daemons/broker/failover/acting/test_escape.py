"""Messages in flight to other brokers: undeliverable ones wait, and delivered ones arrive once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mq.daemons.broker.failover.acting import escape
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.broker.failover.acting.sets import (
    LONG,
    acts,
    bodies,
    cluster,
    have,
    is_copied,
    send,
    stored,
)
from tests.daemons.peer import Peer
from tests.waiting import until

SHORT = {"messageDelayLevel": "1s 2s 3s"}
COUNT = 100  # more than are in flight at once


def test_a_message_waits_until_another_broker_accepts_it(tmp_path: Path) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.slave(1, **SHORT) as slave:
            async with brokers.master(**LONG) as master:
                await send(master, b"delayed", DELAY="1")
                await is_copied(slave, master)
            await acts(slave)
            async with brokers.other() as other:
                await send(other, b"topic")
                assert await have(other, 2) == [b"delayed", b"topic"]
                await until(lambda: slave.delivery.delayed.offsets == {1: 1})
                assert slave.acting.bridge is not None
                assert slave.acting.bridge.escaped == 1

    asyncio.run(script())


@pytest.mark.parametrize("is_body", [True, False])
def test_waiting_messages_are_limited_by_memory(
    is_body: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of bodies and of properties."""
    most, large = 2000, 700
    monkeypatch.setattr(escape, "MAX_WAITING_BYTES", most)
    sizes: list[int] = []

    def spy(bridge: escape.EscapeBridge, *parcel: Any) -> None:
        send_now(bridge, *parcel)
        waiting = [one.message for one in bridge._waiting]
        sizes.append(sum(len(one.body) + len(one.properties.get("own", "")) for one in waiting))

    send_now = escape.EscapeBridge.send
    monkeypatch.setattr(escape.EscapeBridge, "send", spy)

    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.other() as other:
            await send(other, b"topic")
            async with brokers.slave(1, **SHORT) as slave:
                async with brokers.master(**LONG) as master:
                    for number in range(9):
                        own = "" if is_body else "x" * large
                        body = b"%d" % number * (large if is_body else 1)
                        await send(master, body, DELAY="1", own=own)
                    await send(master, b"x" * 3 * most, DELAY="1")
                    await is_copied(slave, master)
                await acts(slave)
                found = await have(other, 11)
                expected = [5, *[large if is_body else 1] * 9, 3 * most]
                assert sorted(map(len, found)) == sorted(expected)
        assert max(size for size in sizes if size < 3 * most) <= most

    asyncio.run(script())


def test_many_messages_due_at_once_are_delivered_once_each(tmp_path: Path) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.other() as other:
            await send(other, b"topic")
            async with brokers.slave(1, **SHORT) as slave:
                async with brokers.master(**LONG) as master:
                    for number in range(COUNT):
                        await send(master, b"%d" % number, DELAY="2")
                    await is_copied(slave, master)
                await acts(slave)
                await until(lambda: len(bodies(other)) > COUNT // 4)
                # In the middle of it the master returns, and delivers the rest.
                async with brokers.master(**SHORT) as master:
                    await until(lambda: len(bodies(other)) + len(bodies(master)) > COUNT)
                    found = [one for one in bodies(other) + bodies(master) if one != b"topic"]
                    assert sorted(found, key=int) == [b"%d" % number for number in range(COUNT)]

    asyncio.run(script())


def test_a_forwarded_retry_does_not_become_a_dead_letter(tmp_path: Path) -> None:
    """The consumer, which sent the message back to the master, decides how often its group
    retries."""
    times = {"b": "%RETRY%G", "j": "40", "l": "100", "i": "DELAY\x011"}

    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.other() as other:
            await send(other, b"topic")
            async with brokers.slave(1, **SHORT) as slave:
                async with brokers.master(**LONG) as master:
                    async with Peer(master.port) as peer:
                        fields = {
                            **{"a": "G", "c": "TBW102", "d": "4", "e": "0", "f": "0"},
                            **{"g": "1700000000000", "h": "0", "k": "false", "m": "false"},
                        }
                        reply = await peer.ask(
                            RequestCode.SEND_MESSAGE_V2, {**fields, **times}, b"again"
                        )
                        assert reply.code == ResponseCode.SUCCESS, reply
                    await is_copied(slave, master)
                await acts(slave)
                assert slave.acting.bridge is not None
                await until(lambda: slave.acting.bridge.escaped == 1)  # type: ignore[union-attr]
                assert bodies(other, "%DLQ%G") == []
                found = stored(other, "%RETRY%G")
                assert [(one.body, one.reconsume_times) for one in found] == [(b"again", 40)]

    asyncio.run(script())
