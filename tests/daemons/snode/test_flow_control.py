"""Flow control: which requests are refused, and the effects of a change of the file."""

import asyncio
import logging
from pathlib import Path

import pytest

from mq.daemons.channel import Channel
from mq.daemons.config import ConfigError
from mq.daemons.dispatch import Dispatcher, Overloaded
from mq.daemons.listener import Listener
from mq.daemons.snode import flow_control
from mq.daemons.snode.flow_control import FlowControl, FlowControlError, parse_limits
from mq.daemons.snode.interceptors import InterceptorGroup, intercepted
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.daemons.own_records import own_records
from tests.daemons.peer import Peer

SEND = RequestCode.SEND_MESSAGE_V2
PULL = RequestCode.PULL_MESSAGE
SAMPLE = """\
snode:
  countLimit:
    - flowControlResourceName: 310
      flowControlGrade: 1
      flowControlBehavior: 1
      flowControlResourceCount: 3
    - flowControlResourceName: overall
      flowControlGrade: 1
      flowControlResourceCount: 5
  sizeLimit:
    - flowControlResourceName: 310
      flowControlGrade: 1
      flowControlResourceCount: 8
"""


class Time:
    """A clock that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "flow_control.yml"
    found.write_text(SAMPLE)
    return found


def refusal(control: FlowControl, code: int, size: int = 0) -> str:
    try:
        control.check(code, size)
    except Overloaded as error:
        assert error.code == ResponseCode.SYSTEM_BUSY
        return error.remark
    return ""


def test_requests_of_a_code_over_its_count_are_refused_with_the_name_of_the_limit(
    path: Path, time: Time
) -> None:
    control = FlowControl(path, clock=time)
    assert [refusal(control, SEND) for _ in range(4)] == [
        *("", "", ""),
        "[REJECT]exceed system flow control config QPS (countLimit@310)",
    ]


def test_overall_counts_requests_of_all_codes(path: Path, time: Time) -> None:
    control = FlowControl(path, clock=time)
    for code in (SEND, SEND, PULL, PULL, PULL):
        assert refusal(control, code) == ""
    expected = "[REJECT]exceed system flow control config QPS (countLimit@overall)"
    assert refusal(control, SEND) == refusal(control, PULL) == expected


def test_refused_requests_are_not_counted(path: Path, time: Time) -> None:
    control = FlowControl(path, clock=time)
    for _ in range(10):
        refusal(control, SEND)  # seven of them exceed 310
    assert [refusal(control, PULL) for _ in range(2)] == ["", ""]  # of the five overall
    assert refusal(control, PULL)


def test_sizes_are_in_whole_kib_and_less_is_free(path: Path, time: Time) -> None:
    path.write_text(SAMPLE.replace("Count: 3", "Count: 100").replace("Count: 5", "Count: 100"))
    control = FlowControl(path, clock=time)
    assert refusal(control, SEND, 8 * 1024 + 1023) == ""
    assert refusal(control, SEND, 1023) == ""
    remark = "[REJECT]exceed system flow control config request size (sizeLimit@310)"
    assert refusal(control, SEND, 1024) == remark
    assert refusal(control, PULL, 1 << 20) == ""  # its size is not limited


@pytest.mark.parametrize("later", [1.0, 60.0])
def test_after_a_second_there_is_room_again(path: Path, time: Time, later: float) -> None:
    control = FlowControl(path, clock=time)
    for _ in range(3):
        control.check(SEND, 0)
    time.now += 0.5
    assert refusal(control, SEND)
    time.now += later
    assert [refusal(control, SEND) for _ in range(3)] == ["", "", ""]


def test_heartbeats_are_exempt(path: Path, time: Time) -> None:
    path.write_text("snode: {countLimit: [{flowControlResourceName: overall, "
                    "flowControlResourceCount: 0}]}")  # fmt: skip
    control = FlowControl(path, clock=time)
    assert refusal(control, RequestCode.HEART_BEAT) == ""
    assert refusal(control, SEND)


def test_without_a_file_there_are_no_limits(tmp_path: Path) -> None:
    for control in (FlowControl(None), FlowControl(tmp_path / "missing.yml")):
        assert not any(refusal(control, SEND, 1 << 20) for _ in range(1000))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("snode: [", "not YAML in line 1"),
        ("other: 1", "expected a mapping `snode`"),
        ("snode: {countLimits: []}", "snode.countLimits: expected countLimit or sizeLimit"),
        ("snode: {countLimit: 5}", "countLimit: expected a list"),
        ("snode: {countLimit: [5]}", "countLimit, item 1: expected a mapping"),
        ("snode: {sizeLimit: [{flowControlResourceName: send}]}", "is 'send', not a request code"),
        ("snode: {sizeLimit: [{flowControlResourceName: 310}]}", "is None, not a number"),
        (
            "snode: {sizeLimit: [{flowControlResourceName: 310, flowControlResourceCount: -1}]}",
            "sizeLimit, item 1: flowControlResourceCount is -1",
        ),
        (
            "snode: {countLimit: [{flowControlResourceName: 310, flowControlGrade: 0}]}",
            "flowControlGrade must be 1",
        ),
        (SAMPLE.replace("overall", "310"), "item 2: 310 has a limit already"),
    ],
)
def test_an_invalid_file_is_refused_with_the_position(text: str, why: str) -> None:
    with pytest.raises(FlowControlError) as raised:
        parse_limits(text.encode())
    assert why in str(raised.value) and "\n" not in str(raised.value)


def test_a_snode_does_not_start_with_a_broken_file(path: Path) -> None:
    path.write_text("snode: [")
    with pytest.raises(ConfigError, match=r"flow_control.yml: not YAML in line 1"):
        FlowControl(path)


def test_a_file_that_changes_is_read_and_a_broken_one_changes_nothing(
    path: Path, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def changed(told: asyncio.Event, text: str | None) -> None:
        told.clear()
        if text is None:
            path.unlink()
        else:
            other = path.with_suffix(".new")
            other.write_text(text)
            other.replace(path)
        await told.wait()

    async def main() -> None:
        control = FlowControl(path, clock=time)
        told = asyncio.Event()

        def note(record: logging.LogRecord) -> bool:
            told.set()
            return True

        flow_control.log.addFilter(note)
        watching = asyncio.create_task(control.watch())
        async with asyncio.timeout(30):
            await changed(told, SAMPLE.replace("Count: 3", "Count: 1"))
            assert [bool(refusal(control, SEND)) for _ in range(2)] == [False, True]
            await changed(told, "snode: [")
            assert refusal(control, SEND)  # the limit of one applies
            last = own_records(caplog, flow_control.log.name)[-1]
            assert last.levelno == logging.ERROR
            assert last.getMessage().startswith(
                f"keeping the old flow control limits: {path}: not YAML"
            )
            await changed(told, None)
            assert not any(refusal(control, SEND) for _ in range(100))
        watching.cancel()

    try:
        asyncio.run(main())
    finally:
        flow_control.log.filters.clear()
    assert len(own_records(caplog, flow_control.log.name, logging.ERROR)) == 1


def test_a_client_over_the_limit_is_answered_with_busy(path: Path) -> None:
    async def main() -> None:
        def serve(command: Command, channel: Channel) -> Command:
            return command.reply()

        control = FlowControl(path)
        group = InterceptorGroup("server", [control])
        async with (
            Listener(Dispatcher({SEND: intercepted(serve, group)}), "127.0.0.1", 0) as listener,
            Peer(listener.port) as peer,
        ):
            replies = [await peer.ask(SEND, {}, bytes(9 * 1024)) for _ in range(2)]
        for reply in replies:
            assert reply.code == ResponseCode.SYSTEM_BUSY
            assert reply.remark is not None and reply.remark.endswith("(sizeLimit@310)")

    asyncio.run(main())
