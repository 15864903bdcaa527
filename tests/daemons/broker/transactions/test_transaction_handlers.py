"""Transactions end once, as their producers request, and uncommitted messages are invisible."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests import answered
from tests.daemons.broker.running import now
from tests.daemons.broker.transactions.producers import (
    COMMIT,
    GIVEN_UP,
    HALF,
    ROLLBACK,
    TOPIC,
    Half,
    TransactionPeer,
    kept,
    operations,
    run,
)
from tests.daemons.set_clock import DAY, set_clock

OLD = 3_600_000  # ms: an hour is longer than any timeout


@answered.by_broker(RequestCode.END_TRANSACTION)
def test_a_half_is_invisible_before_its_commit(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        reply = await peer.send(b"paid", TAGS="t", KEYS="k", own="x", WAIT="true")
        assert reply.fields["transactionId"] == "paid"
        half = Half(reply)
        assert await peer.consumed() == []
        (stored,) = kept(broker, HALF)
        assert (stored.body, stored.flag, stored.sys_flag) == (b"paid", 5, 0)
        assert (stored.physical_offset, stored.queue_offset) == (half.physical, half.offset)
        assert stored.properties == {
            **{"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "paid", "TAGS": "t", "KEYS": "k"},
            **{"own": "x", "WAIT": "true", "CLUSTER": "DefaultCluster"},
            **{"REAL_TOPIC": TOPIC, "REAL_QID": "2"},
        }
        assert (await peer.end(half, COMMIT)).code == ResponseCode.SUCCESS
        (final,) = await peer.read(TOPIC, 2)
        assert (final.body, final.flag, final.sys_flag) == (b"paid", 5, 8)
        assert final.prepared_transaction_offset == half.physical
        seen = {**stored.properties, "__transactionId__": "paid"}
        del seen["REAL_TOPIC"], seen["REAL_QID"]
        assert final.properties == seen
        assert final.born_timestamp == stored.born_timestamp
        (operation,) = operations(broker)
        assert (operation.body, operation.queue_id) == (b"0", 0)
        assert operation.properties == {"TAGS": "d", "WAIT": "true"}
        entry = broker.stores.messages.entries.at(TOPIC, 2, 0)
        assert entry is not None and entry[2] == ord("t")

    run(tmp_path, script)


def test_a_rolled_back_message_is_never_visible(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        half = await peer.prepare(b"x")
        assert (await peer.end(half, ROLLBACK)).code == ResponseCode.SUCCESS
        assert (await peer.end(half, COMMIT)).code == ResponseCode.SYSTEM_ERROR
        assert await peer.consumed() == []
        assert [m.body for m in operations(broker)] == [b"0"]

    run(tmp_path, script)


def test_a_transaction_that_is_ended_twice_ends_once(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        half = await peer.prepare(b"x")
        replies = await asyncio.gather(peer.end(half, COMMIT), peer.end(half, COMMIT))
        assert [reply.code for reply in replies] == [0, ResponseCode.SYSTEM_ERROR]
        later = await peer.end(half, COMMIT)
        assert later.code == ResponseCode.SYSTEM_ERROR
        assert "not open" in (later.remark or "")
        assert await peer.consumed() == [b"x"]

    run(tmp_path, script)


def test_an_unknown_end_is_not_answered_and_changes_nothing(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        half = await peer.prepare(b"x")
        header = {"producerGroup": "P", "tranStateTableOffset": "0", "commitOrRollback": "0"}
        header |= {"commitLogOffset": str(half.physical), "msgId": "id"}
        ask = Command(RequestCode.END_TRANSACTION, header)
        unknown = peer.session.request(peer.address, ask, 60)
        assert (await peer.end(half, COMMIT)).code == 0  # the same connection: in order
        assert not unknown.done()
        unknown.cancel()

    run(tmp_path, script)


def test_an_end_without_a_message_id_commits(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        half = await peer.prepare(b"x")
        header = {"producerGroup": "P", "tranStateTableOffset": "0", "commitOrRollback": "8"}
        header |= {"commitLogOffset": str(half.physical)}
        command = Command(RequestCode.END_TRANSACTION, header)
        assert (await peer.session.invoke(peer.address, command)).code == ResponseCode.SUCCESS
        assert await peer.consumed() == [b"x"]

    run(tmp_path, script)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"commitOrRollback": "5"}, "commitOrRollback 5 is unknown"),
        ({"commitLogOffset": "7"}, "Find prepared transaction message failed"),
        ({"commitLogOffset": "-1"}, "Find prepared transaction message failed"),
        ({"commitLogOffset": "99999999"}, "Find prepared transaction message failed"),
        ({"producerGroup": "other"}, "The producer group wrong"),
        ({"tranStateTableOffset": "1"}, "The transaction state table offset wrong"),
        ({"commitLogOffset": "soon"}, "commitLogOffset"),
    ],
)
def test_an_end_of_a_message_without_an_open_transaction_is_refused(
    tmp_path: Path, fields: dict[str, str], text: str
) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        half = await peer.prepare(b"x")
        reply = await peer.end(half, COMMIT, **fields)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert text in (reply.remark or "")
        assert await peer.consumed() == []
        assert operations(broker) == []

    run(tmp_path, script)


def test_bytes_in_a_body_that_look_like_a_half_end_nothing(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        half = await peer.prepare(b"x")
        record = broker.stores.messages.record_at(half.physical)
        assert record is not None
        reply = await peer.send(record, 0, 0, TRAN_MSG="", UNIQ_KEY="U")
        outer = Half(reply)
        inside = broker.stores.messages.record_at(outer.physical)
        assert inside is not None
        half.physical = outer.physical + inside.index(record)
        answer = await peer.end(half, COMMIT)
        assert answer.remark == "Find prepared transaction message failed"
        assert [m.body for m in operations(broker)] == []

    run(tmp_path, script)


def test_a_message_with_contradictory_flags_is_refused(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        for flags, properties in ((4, {"TRAN_MSG": ""}), (4, {"TRAN_MSG": "no"}), (12, {})):
            reply = await peer.send(b"x", 0, flags, **properties)
            assert reply.code == ResponseCode.MESSAGE_ILLEGAL
        assert await peer.consumed() == []

    run(tmp_path, script)


def test_transactions_can_be_disabled(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        reply = await peer.send(b"x")
        assert reply.code == ResponseCode.NO_PERMISSION
        assert reply.remark == "the broker[127.0.0.1] sending transaction message is forbidden"
        update = Command(
            RequestCode.UPDATE_BROKER_CONFIG, None, b"rejectTransactionMessage=false\n"
        )
        assert (await peer.session.invoke(peer.address, update)).code == 0
        await peer.prepare(b"x")

    run(tmp_path, script, rejectTransactionMessage="true")


def test_a_delayed_message_waits_after_its_commit(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        half = await peer.prepare(b"x", DELAY="1")
        assert (await peer.end(half, COMMIT)).code == 0
        assert await peer.consumed() == []
        (waiting,) = kept(broker, "SCHEDULE_TOPIC_XXXX")
        assert waiting.properties["REAL_TOPIC"] == TOPIC
        assert [m.body for m in operations(broker)] == [b"0"]

    run(tmp_path, script)


# checks ------------------------------------------------------------------------------------------


def test_the_producer_of_an_open_transaction_is_checked(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        old = await peer.prepare(b"old", now() - OLD)
        await peer.prepare(b"young")
        await asyncio.sleep(0.002)  # so that the first is not of the millisecond of the round
        await broker.delivery.checks.round()
        header, message = await asyncio.wait_for(peer.checks.get(), 30)
        assert peer.checks.empty()
        assert (header.msg_id, header.transaction_id, header.topic) == ("old", "old", TOPIC)
        assert (message.topic, message.queue_id, message.body) == (TOPIC, 2, b"old")
        assert message.flag == 5
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
        # By its new position, at the end of the half topic.
        assert (header.tran_state_table_offset, message.queue_offset) == (2, 2)
        assert header.commit_log_offset == message.physical_offset > old.physical
        old.offset, old.physical = header.tran_state_table_offset, header.commit_log_offset
        assert (await peer.end(old, COMMIT, fromTransactionCheck="true")).code == 0
        assert await peer.consumed() == [b"old"]
        assert [m.body for m in operations(broker)] == [b"2"]
        offsets = broker.delivery.transactions
        offsets.save_progress()
        assert offsets.ledger.offsets() == [1]

    run(tmp_path, script)


def test_a_half_from_a_clock_that_was_ahead_does_not_block_checks(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        with set_clock() as given:
            given.ahead = DAY
            await peer.prepare(b"ahead", now() - OLD)
            given.ahead = 0
            await peer.prepare(b"right", now() - OLD)
            await asyncio.sleep(0.002)
            await broker.delivery.checks.round()
            asked = {(await asyncio.wait_for(peer.checks.get(), 30))[1].body for _ in range(2)}
            assert asked == {b"ahead", b"right"}

    run(tmp_path, script)


def test_an_end_by_the_old_offset_ends_a_half_that_a_check_has_put_again(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        half = await peer.prepare(b"x", now() - OLD)
        await asyncio.sleep(0.002)
        await broker.delivery.checks.round()
        header, _ = await asyncio.wait_for(peer.checks.get(), 30)
        assert (await peer.end(half, COMMIT)).code == 0
        half.offset, half.physical = header.tran_state_table_offset, header.commit_log_offset
        assert (await peer.end(half, COMMIT)).code == ResponseCode.SYSTEM_ERROR
        assert await peer.consumed() == [b"x"]
        assert [m.body for m in operations(broker)] == [b"1"]
        await broker.delivery.checks.round()
        assert len(kept(broker, HALF)) == 2

    run(tmp_path, script)


@answered.by_broker(RequestCode.RESUME_CHECK_HALF_MESSAGE)
def test_after_so_many_checks_a_transaction_is_given_up_and_can_be_resumed(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        await peer.prepare(b"x", now() - OLD)
        for _ in range(4):
            await asyncio.sleep(0.002)
            await broker.delivery.checks.round()
        assert len(kept(broker, HALF)) == 3
        (given_up,) = await peer.read(GIVEN_UP)
        assert given_up.properties["TRANSACTION_CHECK_TIMES"] == "2"
        assert given_up.properties["REAL_TOPIC"] == TOPIC
        assert broker.delivery.transactions.ledger.offsets() == []
        resume = Command(
            RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": given_up.offset_id.lower()}
        )
        assert (await peer.session.invoke(peer.address, resume)).code == 0
        assert broker.delivery.transactions.ledger.offsets() == [3]
        assert kept(broker, HALF)[3].properties["TRANSACTION_CHECK_TIMES"] == "0"

    run(tmp_path, script, transactionCheckMax="2")


def test_a_producer_can_still_end_a_transaction_that_was_given_up(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        half = await peer.prepare(b"x", now() - OLD)
        await asyncio.sleep(0.002)
        await broker.delivery.checks.round()
        assert len(await peer.read(GIVEN_UP)) == 1
        assert (await peer.end(half, COMMIT)).code == 0
        assert (await peer.end(half, COMMIT)).code == ResponseCode.SYSTEM_ERROR
        assert await peer.consumed() == [b"x"]

    run(tmp_path, script, transactionCheckMax="0")


@pytest.mark.parametrize("message_id", ["", "zz", "7F00000100002A9F0000000000999999"])
def test_only_transactions_that_were_given_up_can_be_resumed(
    tmp_path: Path, message_id: str
) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        resume = Command(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id})
        reply = await peer.session.invoke(peer.address, resume)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        plain = Half(await peer.send(b"x", 0, 0, TRAN_MSG=""))
        resume = Command(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": plain.offset_id})
        reply = await peer.session.invoke(peer.address, resume)
        assert "not of a transaction" in (reply.remark or "")
        assert kept(broker, HALF) == []

    run(tmp_path, script)


def test_a_transaction_that_has_ended_is_not_opened_again(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        half = await peer.prepare(b"x")
        assert (await peer.end(half, COMMIT)).code == 0
        resume = Command(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": half.offset_id})
        reply = await peer.session.invoke(peer.address, resume)
        assert (reply.code, "has ended" in (reply.remark or "")) == (1, True)
        assert len(kept(broker, HALF)) == 1
        assert await peer.consumed() == [b"x"]

    run(tmp_path, script)


def test_a_message_can_be_immune_to_checks_for_longer(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        half = await peer.prepare(
            b"x", now() - OLD, CHECK_IMMUNITY_TIME_IN_SECONDS=str(2 * OLD // 1000)
        )
        await peer.prepare(b"y", now() - OLD, CHECK_IMMUNITY_TIME_IN_SECONDS="1")
        for _ in range(3):
            await asyncio.sleep(0.002)
            await broker.delivery.checks.round()
        assert (await asyncio.wait_for(peer.checks.get(), 30))[1].body == b"y"
        bodies = [peer.checks.get_nowait()[1].body for _ in range(peer.checks.qsize())]
        assert set(bodies) <= {b"y"}
        immune = [m for m in kept(broker, HALF) if m.body == b"x"][-1]
        assert immune.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
        assert "TRANSACTION_CHECK_TIMES" not in immune.properties
        assert (await peer.end(half, COMMIT)).code == 0
        assert await peer.consumed() == [b"x"]

    run(tmp_path, script)


def test_checks_run_periodically(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        await peer.prepare(b"x")
        header, message = await asyncio.wait_for(peer.checks.get(), 30)
        again, _ = await asyncio.wait_for(peer.checks.get(), 30)
        assert again.tran_state_table_offset > header.tran_state_table_offset
        assert now() - message.born_timestamp >= 300

    run(tmp_path, script, transactionCheckInterval="50", transactionTimeOut="300")


def test_a_shorter_interval_applies_at_once(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        await peer.prepare(b"x", now() - OLD)
        update = Command(RequestCode.UPDATE_BROKER_CONFIG, None, b"transactionCheckInterval=10\n")
        assert (await peer.session.invoke(peer.address, update)).code == 0
        await asyncio.wait_for(peer.checks.get(), 30)

    run(tmp_path, script)


def test_without_a_producer_checks_still_count(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        await peer.prepare(b"x", now() - OLD, PGROUP="nobody")
        await asyncio.sleep(0.002)
        await broker.delivery.checks.round()
        assert peer.checks.empty()
        assert kept(broker, HALF)[1].properties["TRANSACTION_CHECK_TIMES"] == "1"

    run(tmp_path, script)


def test_large_halves_are_put_again_a_few_at_a_time(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        bodies = [bytes([number]) * 1_500_000 for number in range(7)]
        for number, body in enumerate(bodies):
            await peer.prepare(body, now() - OLD, UNIQ_KEY=f"U{number}")
        await asyncio.sleep(0.002)
        await broker.delivery.checks.round()
        asked = [(await asyncio.wait_for(peer.checks.get(), 30))[1].body for _ in bodies]
        assert asked == bodies

    run(tmp_path, script)


# starts ------------------------------------------------------------------------------------------


def test_open_and_ended_transactions_keep_their_state_after_a_start(tmp_path: Path) -> None:
    halves: list[Half] = []

    async def before(broker: Broker, peer: TransactionPeer) -> None:
        for number in range(4):
            halves.append(await peer.prepare(b"%d" % number, now() - OLD))
        await peer.end(halves[0], COMMIT)
        await peer.end(halves[1], ROLLBACK)

    async def after(broker: Broker, peer: TransactionPeer) -> None:
        assert broker.delivery.transactions.ledger.offsets() == [2, 3]
        for half in halves[:2]:
            assert (await peer.end(half, COMMIT)).code == ResponseCode.SYSTEM_ERROR
        assert (await peer.end(halves[2], COMMIT)).code == 0
        assert await peer.consumed() == [b"0", b"2"]
        await broker.delivery.checks.round()
        assert [m.body for m in kept(broker, HALF)][4:] == [b"3"]

    run(tmp_path, before)
    assert b"CID_RMQ_SYS_TRANS" in (tmp_path / "config" / "consumerOffset.json").read_bytes()
    run(tmp_path, after)


def test_ends_are_known_after_a_start_without_saved_offsets(tmp_path: Path) -> None:
    """As after a crash: the first half was put again by a check, and then ended."""

    async def before(broker: Broker, peer: TransactionPeer) -> None:
        await peer.prepare(b"x", now() - OLD)
        await asyncio.sleep(0.002)
        await broker.delivery.checks.round()
        header, _ = await asyncio.wait_for(peer.checks.get(), 30)
        half = await peer.prepare(b"y", now() - OLD)
        half.offset, half.physical = header.tran_state_table_offset, header.commit_log_offset
        assert (await peer.end(half, COMMIT)).code == 0

    async def after(broker: Broker, peer: TransactionPeer) -> None:
        assert broker.delivery.transactions.ledger.offsets() == [2]
        await broker.delivery.checks.round()
        _, message = await asyncio.wait_for(peer.checks.get(), 30)
        assert message.body == b"y"
        assert await peer.consumed() == [b"x"]

    run(tmp_path, before)
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (tmp_path / "config" / name).unlink(missing_ok=True)
    run(tmp_path, after)
