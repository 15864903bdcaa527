"""The worker of examples/, with duplicate orders and malformed messages."""

import json
import signal
from pathlib import Path

from mq.testing import RunningBroker
from tests.examples.programs import running, wait_for


def test_an_order_that_comes_twice_is_billed_once(mq_broker: RunningBroker, tmp_path: Path) -> None:
    for name in ("order-1", "order-1", "order-2"):
        body = json.dumps({"id": name, "euro": 40}).encode()
        mq_broker.send("Orders", body, keys=(name,))
        mq_broker.create_topic("Bills", 1)
        with running(["worker.py"], mq_broker.name_server, tmp_path) as worker:
            wait_for(worker, f"{name}: billed")
            worker.send_signal(signal.SIGTERM)
            assert "stopped" in wait_for(worker, "stopped")
            assert worker.wait(30) == 0
    bills = mq_broker.messages("Bills")
    assert [message.keys for message in bills] == [("order-1",), ("order-2",)]
    assert mq_broker.lag("billing", "Orders") == 0


def test_orders_of_one_name_that_come_together_are_billed_once(
    mq_broker: RunningBroker, tmp_path: Path
) -> None:
    mq_broker.create_topic("Orders", 4)
    mq_broker.create_topic("Bills", 1)
    for _ in range(8):
        mq_broker.send("Orders", b'{"id": "order-1", "euro": 40}', keys=("order-1",))
    with running(["worker.py"], mq_broker.name_server, tmp_path) as worker:
        for _ in range(7):
            wait_for(worker, "order-1: billed before")
    assert [message.keys for message in mq_broker.messages("Bills")] == [("order-1",)]


def test_what_is_no_order_becomes_a_dead_letter_and_keeps_nobody_waiting(
    mq_broker: RunningBroker, tmp_path: Path
) -> None:
    mq_broker.create_topic("Orders", 1)
    mq_broker.create_topic("Bills", 1)
    bodies = (b"\xff", b"[1]", b'{"id": "order-1"}', b'{"id": "order-2", "euro": 75}')
    for body in bodies:
        mq_broker.send("Orders", body)
    with running(["worker.py"], mq_broker.name_server, tmp_path) as worker:
        wait_for(worker, "order-2: billed 75 euro")
        letters = mq_broker.wait_for_messages("%DLQ%billing", 3)
        assert {message.body for message in letters} == set(bodies[:3])
        worker.send_signal(signal.SIGINT)
        assert worker.wait(30) == 0
