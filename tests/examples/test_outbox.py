"""The outbox of examples/: its database and the topic agree wherever it is killed."""

import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.testing import RunningBroker
from tests.examples.programs import running, wait_for

# Brokers check transactions after 6 s, and every 30 s: here sooner.
SOON = {"transactionTimeOut": "200", "transactionCheckInterval": "200"}

# The program with an exit before or after a method.
KILLED = """
import asyncio, os, outbox
real = outbox.Orders.add
def killed(self, *order):
    if {written}:
        try:
            real(self, *order)
        except outbox.sqlite3.IntegrityError:
            pass
    os._exit(9)
outbox.Orders.add = killed
asyncio.run(outbox.main())
"""
# The program without a pause before checks, which prints its answer to the broker.
IMPATIENT = """
import asyncio, outbox
real = outbox.Outbox.check
async def checked(self, question):
    state = await real(self, question)
    print("asked:", state.name, flush=True)
    return state
outbox.Outbox.check = checked
outbox.LONGEST_WRITE = 0
asyncio.run(outbox.main())
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path / "store", SOON) as running_broker:
        running_broker.create_topic("Orders", 1)
        yield running_broker


def place(broker: RunningBroker, folder: Path, lines: str, program: list[str]) -> tuple[int, str]:
    with running(program, broker.name_server, folder) as outbox:
        said, _ = outbox.communicate(lines, timeout=60)
        return outbox.returncode, said


def written(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "orders.db") as database:
        found = [name for (name,) in database.execute("SELECT id FROM orders ORDER BY id")]
    database.close()
    return found


def sent(broker: RunningBroker) -> list[str]:
    return sorted(message.keys[0] for message in broker.messages("Orders"))


def test_orders_are_placed_once_and_a_wrong_line_harms_no_other(
    broker: RunningBroker, tmp_path: Path
) -> None:
    status, said = place(
        broker, tmp_path, "order-1 40\norder-1 12\nnonsense\norder-2 75\n", ["outbox.py"]
    )
    assert status == 1
    assert [line.split(":")[0] for line in said.splitlines()] == [
        "order-1 placed", "order-1 was there before", "nonsense", "order-2 placed",
    ]  # fmt: skip
    assert written(tmp_path) == ["order-1", "order-2"] == sent(broker)


def test_killed_behind_the_write_the_next_run_lets_the_message_go(
    broker: RunningBroker, tmp_path: Path
) -> None:
    status, _ = place(broker, tmp_path, "order-1 40\n", ["-c", KILLED.format(written=True)])
    assert status == 9 and written(tmp_path) == ["order-1"] and sent(broker) == []
    with running(["outbox.py"], broker.name_server, tmp_path):
        broker.wait_for_messages("Orders", 1, timeout=60)
    assert sent(broker) == ["order-1"]


@pytest.mark.parametrize("earlier", ["", "order-1 40\n"], ids=["before the write", "of a double"])
def test_killed_without_a_write_the_message_is_never_seen(
    broker: RunningBroker, tmp_path: Path, earlier: str
) -> None:
    place(broker, tmp_path, earlier, ["outbox.py"])
    # The database refuses a duplicate: the existing order belongs to another message.
    killed = KILLED.format(written=bool(earlier))
    status, _ = place(broker, tmp_path, "order-1 12\n", ["-c", killed])
    assert status == 9
    with running(["-c", IMPATIENT], broker.name_server, tmp_path) as outbox:
        assert outbox.stdin is not None
        assert wait_for(outbox, "asked:") == "asked: ROLLBACK\n"
        outbox.stdin.write("order-9 1\n")
        outbox.stdin.flush()
        wait_for(outbox, "order-9 placed")
    expected = [*earlier.split()[:1], "order-9"]
    assert sent(broker) == expected == written(tmp_path)


def test_ctrl_c_ends_it_while_it_waits_for_a_line(broker: RunningBroker, tmp_path: Path) -> None:
    with running(["outbox.py"], broker.name_server, tmp_path) as outbox:
        assert outbox.stdin is not None
        outbox.stdin.write("order-1 40\n")
        outbox.stdin.flush()
        wait_for(outbox, "order-1 placed")
        outbox.send_signal(signal.SIGINT)
        assert outbox.wait(30) == -signal.SIGINT
        assert outbox.stdout is not None and outbox.stdout.read() == ""
