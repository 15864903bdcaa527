"""Workers against a real broker."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from mq.client.credentials import AccessKey
from mq.client.load.measuring import clock
from mq.client.load.plan import STAMP_DIGITS, LoadResult, Plan
from mq.client.load.sending import Template
from mq.protocol import signature
from mq.protocol.frame import decode
from mq.testing import RunningBroker

TOPIC = "Load"
QUEUES = 4


def plan_for(broker: RunningBroker, role: str, **more: object) -> Plan:
    queues = [(broker.address, queue_id, 0) for queue_id in range(QUEUES)]
    plan = Plan(role, TOPIC, queues, connections=2, window=16, size=100, seconds=0.5, warm=0.1)
    return replace(plan, **more)  # type: ignore[arg-type]


def run(plan: Plan, cut: Callable[[int], bool] = lambda _: False) -> tuple[LoadResult, list[int]]:
    """Return the measurements of a worker, and its output.

    Its standard input is closed when `cut` returns True, which is called with the number of
    messages so far.
    """
    progress: list[int] = []
    last = b""
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "mq.client.load.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr
        process.stdin.write(plan.encode() + b"\n")
        process.stdin.flush()
        for last in process.stdout:
            if last.strip().isdigit():
                progress.append(int(last))
                if cut(progress[-1]):
                    process.stdin.close()
        assert (process.wait(60), process.stderr.read()) == (0, b"")
    return LoadResult.decode(last), progress


@pytest.fixture
def broker(mq_broker: RunningBroker) -> RunningBroker:
    mq_broker.create_topic(TOPIC, queues=QUEUES)
    return mq_broker


def test_counted_messages_are_stored_and_read_back(broker: RunningBroker) -> None:
    sent, _ = run(plan_for(broker, "produce", properties={"TAGS": "load"}))
    assert sent.messages > 0
    assert (sent.errors, sent.size) == ({}, 100 * sent.messages)
    assert sum(sent.latencies.values()) == sent.messages
    stored = broker.messages(TOPIC)
    assert len(stored) >= sent.messages  # including the messages of the warm-up
    assert {(len(message.body), message.tags) for message in stored} == {(100, "load")}
    assert {message.queue_id for message in stored} == set(range(QUEUES))

    read, _ = run(plan_for(broker, "consume", to_the_end=True, warm=0, seconds=30))
    assert (read.messages, read.errors) == (len(stored), {})
    assert read.seconds < 30


def test_a_rate_is_kept_and_progress_is_reported(broker: RunningBroker) -> None:
    plan = plan_for(broker, "produce", rate=200.0, warm=0.0, seconds=600.0, stamped=True)
    measured, progress = run(plan, cut=lambda messages: messages >= 200)
    # None is sent before it is due; a late one is sent all the same, and none is left out.
    # Of the last ones some were on their way when it was cut.
    assert 200 <= measured.messages <= 200 * measured.seconds + 1
    due = sorted(int(message.body[:STAMP_DIGITS]) for message in broker.messages(TOPIC))
    assert {later - sooner for sooner, later in pairwise(due[:150])} == {5_000_000}  # nanoseconds
    assert progress == sorted(progress)


def test_a_worker_reports_its_measurements_when_its_input_is_closed(broker: RunningBroker) -> None:
    begun = time.monotonic()
    plan = plan_for(broker, "produce", rate=200.0, warm=0.0, seconds=600.0)
    measured, progress = run(plan, cut=lambda messages: messages > 0)
    assert time.monotonic() - begun < 60
    assert (measured.messages >= progress[0] > 0, measured.errors) == (True, {})
    assert 0 < measured.seconds < 60


def test_readers_measure_from_when_a_send_was_due(broker: RunningBroker) -> None:
    template = Template(plan_for(broker, "produce", stamped=True), 0, time.time())
    body = bytes(decode(template.frame(100_000_000, clock() - 5_000_000_000)[4:]).body)
    broker.send(TOPIC, body)
    plan = plan_for(broker, "consume", stamped=True, to_the_end=True, seconds=30.0, warm=0.0)
    measured, _ = run(plan)
    assert measured.messages == 1
    [latency] = measured.latencies
    assert 5_000_000 <= latency < 35_000_000  # microseconds


def test_refusals_are_counted_by_their_code(broker: RunningBroker) -> None:
    queues = [(broker.address, QUEUES + 5, 0)]
    measured, _ = run(plan_for(broker, "consume", queues=queues, seconds=5.0))
    assert (measured.messages, measured.errors) == (0, {1: 1})
    assert "is illegal" in measured.remark


def test_a_broker_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    plan = Plan("produce", TOPIC, [("127.0.0.1:1", 0, -1)])
    measured, _ = run(plan)
    assert (measured.messages, measured.errors) == (0, {-1: 1})


@pytest.mark.parametrize("stamped", [False, True])
def test_frames_are_signed(stamped: bool) -> None:
    plan = Plan(
        "produce", TOPIC, [], size=30, stamped=stamped, access_key="me", secret_key="secret"
    )
    template = Template(plan, 3, 1.0)
    for opaque in (100_000_000, 999_999_999):
        command = decode(template.frame(opaque, 7)[4:])
        assert (command.opaque, command.fields["e"], len(command.body)) == (opaque, "3", 30)
        assert bytes(command.body).startswith(b"%019d" % 7) is stamped
        given = command.fields["Signature"]
        AccessKey("me", "secret").sign(command)
        assert command.fields["Signature"] == given
    assert signature.SIGNATURE == "Signature"
