"""Very many suspended pops do not block all other clients."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.pop import popper, waiters
from mq.daemons.broker.pull import message_finder
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from tests.daemons.broker.harness import send
from tests.daemons.broker.pop.consumers import GROUP, POLL, TOPIC, PopConsumer, fill, run
from tests.daemons.broker.pop.waiting import QUESTION, until_waiting
from tests.daemons.peer import Peer
from tests.waiting import until


@pytest.mark.parametrize("what", ["consumerGroup", "queueId"])
def test_very_many_searching_waiters_are_served_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Otherwise all groups, or those of one group that wait for different queues, would search in
    one turn of the event loop: 0.24 s for a hundred queues. And again with each message: fifty
    groups took 0.08 s of each.
    """
    monkeypatch.setattr(popper, "_MAX_SCANS", 1)
    monkeypatch.setattr(waiters, "STEP_SECONDS", 0.0)
    monkeypatch.setattr(waiters, "_SOON", 0.5)

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 3 * 801, queues=3, tag="other")
        for queue_id in range(3):
            await send(peer, TOPIC, b"mine", queue_id, "TAGS\x01mine")
        pops, held = broker.services.pop._pop._pops, broker.services.pop._pop._waiters
        take = pops.take
        in_turn: list[int] = []

        def counted(*given: object) -> object:
            in_turn[-1] += 1
            return take(*given)  # type: ignore[arg-type]

        def turn() -> None:
            in_turn.append(0)
            asyncio.get_running_loop().call_soon(turn)

        async with Peer(broker.port) as other:
            for number in range(3):
                fields = consumer.header(queueId="0", exp="mine", expType="TAG", **POLL)
                fields[what] = str(number)
                other.writer.write(encode(Command(RequestCode.POP_MESSAGE, fields, opaque=number)))
            await until(lambda: len(held._unfinished) == 3)
            turn()
            monkeypatch.setattr(pops, "take", counted)
            await send(peer, TOPIC, b"not theirs", 0)
            for _ in range(3):
                assert (await other.receive()).code == ResponseCode.SUCCESS
            assert sum(in_turn) == 3
            assert max(in_turn) < 3  # the turns of a timer and of a message may coincide

    run(tmp_path, script)


def test_very_many_waiters_with_long_searches_are_served_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred pops of one group searched for 0.27 s in one turn of the event loop, one after
    another.
    """
    monkeypatch.setattr(message_finder, "MOST_SCANNED", 4)
    monkeypatch.setattr(waiters, "STEP_SECONDS", 0.0)

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 0)
        pops, offsets = broker.services.pop._pop._pops, broker.stores.offsets
        take = pops.take
        in_turn: list[int] = []

        def counted(*given: object) -> object:
            in_turn[-1] += 1
            return take(*given)  # type: ignore[arg-type]

        def turn() -> None:
            in_turn.append(0)
            asyncio.get_running_loop().call_soon(turn)

        for _ in range(3):
            for _ in range(9):
                await send(peer, TOPIC, b"other", 0)
            await send(peer, TOPIC, b"mine", 0, "TAGS\x01mine")
        offsets.commit(GROUP, TOPIC, 0, broker.stores.messages.end_offset(TOPIC, 0))
        async with Peer(broker.port) as other:
            for number in range(3):
                fields = consumer.header(exp="mine", expType="TAG", maxMsgNums="1", **POLL)
                other.writer.write(encode(Command(RequestCode.POP_MESSAGE, fields, opaque=number)))
            await until_waiting(peer, 3)
            offsets.commit(GROUP, TOPIC, 0, 0)
            turn()
            monkeypatch.setattr(pops, "take", counted)
            await send(peer, TOPIC, b"not theirs", 0)
            for _ in range(3):
                assert (await other.receive()).code == ResponseCode.SUCCESS
            assert max(in_turn) < 3  # the turns of a timer and of a message may coincide

    run(tmp_path, script)


def test_ordered_waiters_are_not_all_served_for_each_of_them_when_their_queue_is_unblocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each had all of them served again, and for seconds no other client was."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        in_order = {"order": "true", "queueId": "0", **POLL}
        await fill(peer, 1)
        await consumer.pop(order="true", invisibleTime="1000")
        pops = broker.services.pop._pop._pops
        asked = 0
        async with Peer(broker.port) as other:
            for number in range(100):
                fields = PopConsumer(other, broker).header(**in_order)
                other.writer.write(encode(Command(RequestCode.POP_MESSAGE, fields, opaque=number)))
            await until_waiting(peer, 100, 0)
            take = pops.take

            def counted(*given: object) -> object:
                nonlocal asked
                asked += 1
                return take(*given)  # type: ignore[arg-type]

            monkeypatch.setattr(pops, "take", counted)
            reply = await other.receive()
            assert (reply.opaque, reply.code) == (0, ResponseCode.SUCCESS)
            assert (await peer.ask(RequestCode.POLLING_INFO, QUESTION)).code == ResponseCode.SUCCESS
            assert asked < 300

    run(tmp_path, script)


def test_waiters_of_a_blocked_queue_are_not_all_served_with_each_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a thousand, each message took 0.07 s of the event loop. The attempt with the messages in
    flight is served.
    """

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        in_order = {"order": "true", **POLL}
        await fill(peer, 0)
        pops = broker.services.pop._pop._pops
        take = pops.take
        asked = 0

        def counted(*given: object) -> object:
            nonlocal asked
            asked += 1
            return take(*given)  # type: ignore[arg-type]

        async with Peer(broker.port) as other:

            def ask(code: RequestCode, opaque: int, attempt: str) -> None:
                fields = consumer.header(attemptId=attempt, **in_order)
                other.writer.write(encode(Command(code, fields, opaque=opaque)))

            ask(RequestCode.POP_MESSAGE, 0, "one")
            for number in range(1, 101):
                ask(RequestCode.POP_MESSAGE, number, f"other-{number}")
            ask(RequestCode.POP_MESSAGE, 101, "one")
            ask(RequestCode.NOTIFICATION, 102, "one")
            await until_waiting(peer, 103)
            monkeypatch.setattr(pops, "take", counted)
            await send(peer, TOPIC, b"first", 0)
            replies = [await other.receive() for _ in range(3)]
            assert sorted(reply.opaque for reply in replies) == [0, 101, 102]
            asked = 0
            await send(peer, TOPIC, b"second", 0)
            await until_waiting(peer, 100)
            assert asked == 1

    run(tmp_path, script)
