from mq.daemons.broker.locks import QueueLocks
from mq.protocol.bodies import MessageQueue

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
