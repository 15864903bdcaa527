import asyncio
import json
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.clients import locks as queue_locks
from mq.daemons.broker.clients.lock_handlers import MOST_BYTES, MOST_QUEUES
from mq.daemons.broker.clients.locks import QueueLocks
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.config import ConfigError
from mq.protocol.bodies import LockBatchResponseBody, MessageQueue
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.broker.harness import Harness, serve
from tests.daemons.peer import Peer

A, B = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_one_member_of_a_group_holds_a_queue() -> None:
    locks = QueueLocks()
    assert locks.lock("g", "one", [A]) == {A}
    assert locks.lock("g", "two", [A, B]) == {B}
    assert locks.lock("other", "two", [A]) == {A}
    assert locks.holder("g", A) == "one"


def test_only_the_holder_unlocks() -> None:
    locks = QueueLocks()
    locks.lock("g", "one", [A])
    locks.unlock("g", "two", [A, B])
    assert locks.holder("g", A) == "one"
    locks.unlock("g", "one", [A])
    assert locks.lock("g", "two", [A]) == {A}


def test_a_lock_lasts_sixty_seconds_from_its_last_renewal() -> None:
    clock = Clock()
    locks = QueueLocks(clock)
    locks.lock("g", "one", [A])
    clock.now += 50
    locks.lock("g", "one", [A])
    clock.now += 60
    assert locks.lock("g", "two", [A]) == set()
    clock.now += 0.1
    assert locks.holder("g", A) is None
    assert locks.lock("g", "two", [A]) == {A}
    assert locks.lock("g", "one", [A]) == set()


def test_expired_locks_leave_nothing_behind() -> None:
    clock = Clock()
    locks = QueueLocks(clock)
    locks.lock("g", "one", [A])
    clock.now += 61
    locks.lock("h", "one", [A])
    locks.expire()
    assert list(locks._groups) == ["h"]


def test_the_number_of_locks_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_locks, "MOST_LOCKS", 3)
    clock = Clock()
    locks = QueueLocks(clock)
    many = [MessageQueue("t", "broker-a", number) for number in range(10)]
    assert len(locks.lock("g", "one", many)) == 3
    assert locks.lock("h", "one", [A]) == set()
    assert len(locks.lock("g", "one", many)) == 3  # they are renewed
    locks.unlock("g", "one", many)
    assert locks.lock("h", "one", [A, B]) == {A, B}
    clock.now += 61
    locks.expire()
    assert len(locks.lock("g", "two", many)) == 3


def _body(count: int) -> bytes:
    queues = [{"topic": "t", "brokerName": "b", "queueId": number} for number in range(count)]
    return json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": queues}).encode()


def test_a_request_for_too_many_locks_is_refused(tmp_path: Path) -> None:
    async def script(harness: Harness, peer: Peer) -> None:
        for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
            for body in (_body(MOST_QUEUES + 1), bytes(MOST_BYTES + 1)):
                reply = await peer.ask(code, None, body)
                assert reply.code == ResponseCode.SYSTEM_BUSY
                assert "over" in (reply.remark or "")
        assert not harness.clients.locks._groups
        reply = await peer.ask(RequestCode.LOCK_BATCH_MQ, None, _body(MOST_QUEUES))
        assert len(LockBatchResponseBody.decode(reply.body).lock_ok_mq_set) == MOST_QUEUES
        await peer.ask(RequestCode.UNLOCK_BATCH_MQ, None, _body(MOST_QUEUES))
        assert not harness.clients.locks._groups

    serve(tmp_path, script)


@pytest.mark.parametrize(
    ("name", "longest"),
    [("consumerGroup", 255), ("clientId", 1024), ("topic", 255), ("brokerName", 1024)],
)
def test_a_lock_with_an_invalid_name_is_refused(tmp_path: Path, name: str, longest: int) -> None:
    """Each of 200,000 locks could take megabytes of memory, and be logged."""

    async def script(harness: Harness, peer: Peer) -> None:
        for length, held in ((longest, 1), (longest + 1, 0)):
            given = {name: "n" * length}
            queue = {"topic": "t", "brokerName": "b", "queueId": 0}
            queue |= given if name in queue else {}
            body = {"consumerGroup": f"g{held}", "clientId": "c", "mqSet": [queue]}
            body |= given if name in body else {}
            reply = await peer.ask(RequestCode.LOCK_BATCH_MQ, None, json.dumps(body).encode())
            assert (reply.code == ResponseCode.SUCCESS) == bool(held)
            if not held:
                assert "too long" in (reply.remark or "")
        assert len(harness.clients.locks._groups) == 1

    serve(tmp_path, script)


def test_a_setting_limits_how_long_a_lock_lasts(tmp_path: Path) -> None:
    """The property that Java's broker reads (RebalanceLockManager)."""
    name = "rocketmq.broker.rebalance.lockMaxLiveTime"
    given = {"listenPort": "0", "brokerIP1": "127.0.0.1", "storePathRootDir": str(tmp_path)}

    async def holders() -> list[str | None]:
        async with Broker(BrokerSettings.load(None, {**given, name: "20"})) as broker:
            locks = broker.clients.locks
            locks._clock = own = Clock()
            locks.lock("g", "one", [A])
            own.now += 0.019
            before = locks.holder("g", A)
            own.now += 0.002
            locks.lock("g", "two", [A])
            return [before, locks.holder("g", A)]

    assert asyncio.run(holders()) == ["one", "two"]
    with pytest.raises(ConfigError, match="lockMaxLiveTime=0: must be at least 1"):
        BrokerSettings.load(None, {name: "0"})
