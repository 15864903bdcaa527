"""Every command ends cleanly at a signal: with its status, and without leftovers. A second signal
ends it at once.
"""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from mq.cli.main import load, run
from mq.cli.runtime.effects import effect_of
from mq.cli.runtime.env import Environment
from mq.client.operations import local_files
from mq.daemons.standalone import Standalone
from mq.protocol.message import Message
from mq.protocol.message_id import encode_offset_id
from tests.cli.bad_input import LINES, OFFSET_ID, inputs_in, words_of
from tests.cli.pairs import make_topic, put
from tests.cli.support import Finished, Mq
from tests.cli.terminal import at_terminal
from tests.waiting import wait_until

INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
STATUS = {INT: 130, TERM: 143, HUP: 129}
WORDS = {INT: "interrupted", TERM: "terminated", HUP: "its terminal was closed"}
ENDLESS = {"tail", "top", "startMonitoring", "clusterRT", "tube tail", "tube consume"}


def in_turn(lines: Iterable[str], with_all: Container[str]) -> list[ParameterSet]:
    """Each line with each signal. Signals differ in the status and the text of one function only,
    so lines get one of them in turn, and the others in `make test-more`. Those `with_all`, which a
    Ctrl-C ends without a failure, get all.
    """
    return [
        pytest.param(
            line,
            number,
            marks=() if line in with_all or turn == index % 3 else pytest.mark.only_more,
        )
        for index, line in enumerate(lines)
        for turn, number in enumerate((INT, TERM, HUP))
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return inputs_in(tmp_path)


@pytest.fixture(autouse=True)
def usual_signals() -> Iterator[None]:
    """Set the signal state of a new process: a test run may ignore Ctrl-C."""
    usual: dict[int, Any] = {
        INT: signal.default_int_handler,
        TERM: signal.SIG_DFL,
        HUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@contextmanager
def silence(act: Callable[[], None]) -> Iterator[str]:
    """The address of a server that receives a request, answers nothing, and calls `act` then."""

    def serve() -> None:
        with suppress_closed():
            link, _ = server.accept()
            with link:
                link.recv(65536)
                act()
                ended.wait(30)

    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            ended.set()
            with suppress_closed():  # where nobody came
                server.shutdown(socket.SHUT_RDWR)
            thread.join(30)


@contextmanager
def suppress_closed() -> Iterator[None]:
    try:
        yield
    except OSError:
        pass


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def test_the_commands_that_go_on_for_ever_are_these() -> None:
    from mq.cli import catalog

    marked = {
        name
        for group, names in catalog.GROUPS.items()
        for name in names
        if effect_of(load(group, name).function).endless
    }
    assert marked == ENDLESS


@pytest.mark.parametrize(("name", "number"), in_turn(LINES, ENDLESS))
def test_a_command_that_waits_for_an_answer_ends(
    name: str, number: signal.Signals, mq: Mq, folder: Path
) -> None:
    before = {path for path in folder.rglob("*") if path.is_file()}
    with silence(lambda: send(number)) as address:
        host, _, port = address.rpartition(":")
        words = [*words_of(name, folder, address), "-n", address, "--timeout", "60"]
        if name.startswith("tube"):
            words += ["--web-port", port]  # which some of them ask
        place = encode_offset_id(host, int(port), 0)  # says which broker is to be asked
        done = mq(*(place if word == OFFSET_ID else word for word in words))
    if name in ENDLESS and number is INT:
        assert (done.status, done.err) == (0, "")
    else:
        first, *hints = done.err.splitlines()
        assert (done.status, done.out) == (STATUS[number], "")
        assert first.startswith(f"mq {name}: {WORDS[number]}")
        assert all(line.startswith("hint: continue with: mq ") for line in hints), hints
    assert {path for path in folder.rglob("*") if path.is_file()} == before


class Hurried(io.StringIO):
    """A stdout whose reader acts at the first output."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self._act: Callable[[], None] | None = act

    def write(self, text: str) -> int:
        written = super().write(text)
        if text:
            act, self._act = self._act, None
            if act is not None:
                act()
        return written


SHOWING = [
    "tail EndsTopic --last 20",
    "top --interval 0.1 -o json",
    "startMonitoring --interval 1",
    "clusterRT -a 2 -i 1",
    "topicList --watch 0.2",
    "clusterList -i 1",
    "haStatus -c DefaultCluster -i 1",
    "printMsg -t EndsTopic",
    "printMsgByQueue -t EndsTopic -a broker-a -i 0 -p true",
    "consumeMessage -t EndsTopic",
    "checkMsgSendRT -t EndsTopic -a 100000",
    "sendMsgStatus -b broker-a -c 100000",
    "message export - -t EndsTopic",
    "topicList",
    "doctor",
]
# Commands that are ended by Ctrl-C, which is not a failure then.
UNTIL_CTRL_C = {*SHOWING[:7]}


@pytest.fixture(scope="module")
def messages(standalone: Standalone) -> None:
    make_topic(standalone, "EndsTopic")
    put(standalone, [Message("EndsTopic", b"body %d" % number) for number in range(20)])


def shown_to(cluster: Mq, line: str, act: Callable[[], None]) -> Finished:
    out, err = Hurried(act), io.StringIO()
    environment = Environment(
        stdin=io.StringIO(), stdout=out, stderr=err, variables=cluster.variables
    )
    return Finished(run(line.split(), environment), out.getvalue(), err.getvalue())


@pytest.mark.usefixtures("messages")
@pytest.mark.parametrize(("line", "number"), in_turn(SHOWING, UNTIL_CTRL_C))
def test_a_command_ends_amid_what_it_shows(line: str, number: signal.Signals, cluster: Mq) -> None:
    done = shown_to(cluster, line, lambda: send(number))
    assert done.out
    if number is INT and line in UNTIL_CTRL_C:
        assert (done.status, done.err) == (0, "")
        return
    assert done.status == STATUS[number]
    name = " ".join(word for word in line.split()[:2] if word.isalpha() and word != "EndsTopic")
    assert done.err in ("", f"mq {name}: {WORDS[number]}\n")


@pytest.mark.usefixtures("messages")
@pytest.mark.parametrize("line", SHOWING)
def test_a_command_ends_whose_reader_has_gone(line: str, cluster: Mq) -> None:
    def gone() -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):  # which ends the process without output
        shown_to(cluster, line, gone)


@pytest.mark.parametrize("number", [INT, TERM])
def test_bench_shows_what_was_measured_until_then(
    number: signal.Signals, cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "EndsBench")
    before = stored_by(cluster)

    def cut() -> None:
        wait_until(lambda: stored_by(cluster) > before)
        send(number)

    thread = threading.Thread(target=cut)
    thread.start()
    line = ("bench", "produce", "-t", "EndsBench", "-r", "200", "-d", "600", "--warm", "0")
    done = cluster(*line, "-p", "2", "-o", "json")
    thread.join()
    assert done.status == STATUS[number]
    assert done.err == (f"mq bench produce: {WORDS[number]}: these are the results so far\n")
    [row] = done.json["data"]
    assert row["messages"] > 0
    assert row["errors"] == 0
    assert 0 < row["seconds"] < 60
    assert stored_by(cluster) - before >= row["messages"]
    assert not workers_left()


def stored_by(cluster: Mq) -> int:
    """How many messages there are."""
    done = cluster("topicStatus", "-t", "EndsBench", "-o", "json")
    return sum(queue["maxOffset"] for queue in json.loads(done.out)["data"])


def workers_left() -> list[str]:
    """Workers that are left of bench."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    commands = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    return [command.decode() for command in commands if b"mq.client.load.worker" in command]


def test_an_export_that_a_signal_finds_at_its_end_says_that_nothing_was_cut_off(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "WholeExport", 1)
    put(standalone, [Message("WholeExport", b"%d" % number) for number in range(5)])
    file = tmp_path / "whole.jsonl"
    sent: list[int] = []

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != local_files.__file__:
            return None
        if file.exists() and not sent:  # between the renaming and the end
            sent.append(INT)
            os.kill(os.getpid(), INT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        ended = cluster("message", "export", "WholeExport", str(file))
    finally:
        sys.settrace(before)
    assert (sent, ended.status) == ([INT], 130)
    assert ended.err == ("mq message export: interrupted; it had finished, nothing was lost\n")
    assert len(file.read_text().splitlines()) == 5
    assert list(tmp_path.glob("*whole*")) == [file]


def test_a_signal_ends_the_commands_of_a_shell_too(mq: Mq) -> None:
    for number in (INT, TERM):
        with silence(lambda number=number: send(number)) as address:  # type: ignore[misc]
            out, err = io.StringIO(), io.StringIO()
            environment = Environment(
                stdin=io.StringIO(f"topicList -n {address}\ncontext list\n"),
                stdout=out,
                stderr=err,
                variables=mq.variables,
            )
            status = run(["shell"], environment)
        assert (status, out.getvalue()) == (STATUS[number], "")
        assert err.getvalue().splitlines() == [
            f"mq topicList: {WORDS[number]}",
            f"mq shell: line 1 ended with status {STATUS[number]}",
        ]


def test_a_reader_that_goes_ends_tail_before_there_is_more_to_show(
    cluster: Mq, messages: None
) -> None:
    command = [sys.executable, "-m", "mq", "tail", "EndsTopic", "--last", "20"]
    with subprocess.Popen(
        command,
        env={**os.environ, **cluster.variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        for _ in range(20):
            process.stdout.readline()
        process.stdout.close()
        assert (process.wait(60), process.stderr.read()) == (0, "")


# A command that takes for ever to clean up.
STUBBORN = """
import asyncio, sys, time
from mq.cli.runtime.call import Call
from mq.cli.runtime.interruption import giving_back
from mq.cli.runtime.env import Environment
from mq.client.operations import local_files
from mq.cli.runtime.runner import concurrently, run_command
from mq.cli.show.output import Format

def say(word):
    print(word, flush=True)

@concurrently
async def stubborn(call):
    with giving_back(lambda: say("given back")):
        try:
            say("begun")
            await asyncio.sleep(600)
        finally:
            say("putting in order")
            time.sleep(600)

environment = Environment(stdin=sys.stdin, stdout=sys.stdout, stderr=sys.stderr, variables={})
run_command(stubborn, Call(environment, "stubborn", [], "", Format.PLAIN, 1.0), {})
"""


@pytest.mark.parametrize("number", [INT, TERM, HUP])
@pytest.mark.parametrize(
    ("line", "question"),
    [
        ("console user-add ann --role viewer", b"Password: "),
        ("deleteTopic -c DefaultCluster -t EndsNowhere", b"? [y/N] "),
    ],
)
def test_a_question_ends_and_leaves_the_terminal_as_it_was(
    line: str, question: bytes, number: signal.Signals, cluster: Mq, tmp_path: Path
) -> None:
    settings: list[object] = []

    def act(process: subprocess.Popen[bytes], terminal: int) -> None:
        process.send_signal(number)
        process.wait(60)
        settings.append(termios.tcgetattr(terminal)[3] & (termios.ECHO | termios.ICANON))

    variables = {**cluster.variables, "MQ_CONFIG_DIR": str(tmp_path)}
    status, shown = at_terminal(line.split(), variables, question, act)
    assert status == STATUS[number]
    assert settings == [termios.ECHO | termios.ICANON]
    asked, told = shown.splitlines()
    assert told.endswith(WORDS[number].encode())
    assert asked.endswith(question)


@pytest.mark.parametrize("second", [INT, TERM])
def test_a_second_signal_ends_a_command_at_once_and_gives_the_terminal_back(second: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(INT, signal.default_int_handler),
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(INT)
        assert process.stdout.readline() == "putting in order\n"
        while process.poll() is None:  # one that comes with the first counts as the same
            process.send_signal(second)
            time.sleep(0.02)
        assert process.returncode == -second
        assert (process.stdout.read(), process.stderr.read()) == ("given back\n", "")


# Ctrl-C while a command imports something.
AMID = """
import os, signal, sys, types
from mq.cli.runtime.call import Call
from mq.cli.runtime.env import Environment
from mq.client.operations import local_files
from mq.cli.runtime.runner import run_command
from mq.cli.show.output import Format
from mq.cli.show.result import Result

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "fragile":
            import importlib.util
            return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        os.kill(os.getpid(), signal.SIGINT)
        print("whole", flush=True)

sys.meta_path.insert(0, Finder())

def importing(call):
    import fragile
    import time
    time.sleep(60)

environment = Environment(stdin=sys.stdin, stdout=sys.stdout, stderr=sys.stderr, variables={})
try:
    run_command(importing, Call(environment, "importing", [], "", Format.PLAIN, 1.0), {})
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_waits_until_an_import_is_through() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AMID],
        capture_output=True,
        text=True,
        timeout=50,
        preexec_fn=lambda: signal.signal(INT, signal.default_int_handler),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "whole\ninterrupted\n", "")


# Ctrl-C while the first of ours is imported.
EARLY = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "mq.cli.main":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
import mq.cli.entry
"""


def test_ctrl_c_before_there_is_a_command_ends_the_process_without_a_word() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EARLY],
        capture_output=True,
        preexec_fn=lambda: signal.signal(INT, signal.default_int_handler),
    )
    assert (done.returncode, done.stdout, done.stderr) == (-INT, b"", b"")
