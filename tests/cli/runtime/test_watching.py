"""`--watch`: rounds until Ctrl-C."""

import io
import json
import re
import signal
from errno import ENOSPC

import pytest

from mq.cli.main import run
from mq.cli.runtime import watching
from mq.cli.runtime.env import Environment
from tests.cli.support import Finished, Mq
from tests.cli.terminal import at_terminal


class Watched(io.StringIO):
    """A stdout with a Ctrl-C after this number of flushes."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self._left = rounds

    def flush(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt


def watched(mq: Mq, *arguments: str, rounds: int, terminal: bool = False) -> Finished:
    out, err = Watched(rounds), io.StringIO()
    environment = Environment(
        stdin=io.StringIO(),
        stdout=out,
        stderr=err,
        variables=mq.variables,
        terminal=terminal,
        lines=10,
    )
    status = run([*arguments, "--watch", "0.1"], environment)
    return Finished(status, out.getvalue(), err.getvalue())


def test_json_in_a_pipe_is_a_document_a_line_and_ctrl_c_is_no_failure(cluster: Mq) -> None:
    finished = watched(cluster, "clusterList", "-o", "json", rounds=3)
    assert (finished.status, finished.err) == (0, "")
    documents = [json.loads(line) for line in finished.out.splitlines()]
    assert [document["command"] for document in documents] == ["clusterList"] * 3


def test_csv_in_a_pipe_has_one_head(cluster: Mq) -> None:
    finished = watched(cluster, "clusterList", "-o", "csv", "--columns", "brokerName", rounds=3)
    assert finished.out == "brokerName\n" + "broker-a\n" * 3


def test_an_empty_round_is_shown_too(mq: Mq) -> None:
    finished = watched(mq, "context", "list", "-o", "json", rounds=2)
    assert [json.loads(line)["data"] for line in finished.out.splitlines()] == [[], []]


class Impatient(io.StringIO):
    """A stderr with a Ctrl-C at the second failure."""

    failures = 0

    def write(self, text: str) -> int:
        self.failures += "cannot reach" in text
        if self.failures == 2:
            raise KeyboardInterrupt
        return super().write(text)


def test_a_round_that_fails_does_not_end_it_and_is_its_status(mq: Mq) -> None:
    out, err = io.StringIO(), Impatient()
    environment = Environment(stdin=io.StringIO(), stdout=out, stderr=err, variables=mq.variables)
    status = run(["topicList", "-n", "127.0.0.1:1", "--watch", "0.1"], environment)
    assert err.failures == 2
    assert status == 69


class Full(io.StringIO):
    """A stdout on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(ENOSPC, "No space left on device")


def test_an_output_that_cannot_be_written_ends_it(cluster: Mq) -> None:
    err = io.StringIO()
    environment = Environment(
        stdin=io.StringIO(), stdout=Full(), stderr=err, variables=cluster.variables
    )
    status = run(["clusterList", "--watch", "0.1"], environment)
    assert (status, err.getvalue()) == (
        74,
        "mq clusterList: cannot write the output: No space left on device\n",
    )


def test_a_wrong_command_line_ends_it_at_once(cluster: Mq) -> None:
    finished = cluster("topicList", "--columns", "nope", "--watch", "1")
    assert (finished.status, finished.out) == (64, "")


def test_a_terminal_is_drawn_anew_on_a_screen_of_its_own_and_keeps_the_last_round(
    cluster: Mq,
) -> None:
    finished = watched(cluster, "topicList", rounds=4, terminal=True)
    assert finished.status == 0
    enter, leave = "\x1b[?1049h", "\x1b[?1049l"
    assert finished.out.count(enter) == finished.out.count(leave) == 1
    screen, _, after = finished.out.partition(leave)
    assert "every 0.1 s: mq topicList" in screen
    assert "more lines" in screen  # ten lines are not enough
    assert "TBW102" in after


def test_of_a_round_without_end_a_screen_keeps_the_beginning(
    cluster: Mq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MAX_KEPT", 40)
    finished = watched(cluster, "topicList", rounds=4, terminal=True)
    *lines, rest = finished.out.rpartition("\x1b[?1049l")[2].strip().splitlines()
    assert finished.status == 0
    assert "lines more; for all, leave out --watch" in rest
    assert len(lines) < 10


@pytest.mark.parametrize("most", range(1, 12))
def test_what_is_cut_amid_a_style_leaves_none_on(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MAX_KEPT", most)
    kept = watching._Beginning()
    kept.write("a\x1b[1;31mtext\x1b[0m\n")
    text, _, rest = kept.text().partition("\n")
    assert rest.startswith("… 1 line more")
    styles, shown = re.findall(r"\x1b\[[\d;]*m", text), re.sub(r"\x1b\[[\d;]*m", "", text)
    assert shown == "atext"[: max(1, most - 7)]
    assert styles[-1:] == (["\x1b[0m"] if most > 1 else [])


@pytest.mark.parametrize(
    ("pieces", "rest"),
    [
        (["abcdef"], "1 line"),
        (["abcdef", "g"], "1 line"),
        (["abc", "def\n"], "1 line"),
        (["abc\nd"], "1 line"),
        (["abc\n", "d\n", "e"], "2 lines"),
    ],
)
def test_the_rest_of_a_round_has_a_line_also_without_an_end(
    pieces: list[str], rest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MAX_KEPT", 4)
    kept = watching._Beginning()
    for piece in pieces:
        kept.write(piece)
    assert kept.text().endswith(f"\n… {rest} more; for all, leave out --watch\n")


def test_what_changes_something_cannot_be_watched(cluster: Mq) -> None:
    assert cluster("deleteTopic", "-t", "T", "-c", "C", "--watch", "1").status == 64


def test_a_period_must_be_possible(cluster: Mq) -> None:
    for seconds in ("0", "-1", "nan", "1e9"):
        finished = cluster("topicList", "--watch", seconds)
        assert finished.status == 64
        assert "--watch" in finished.err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 0)])
def test_the_terminal_gets_its_screen_back_however_it_ends(
    number: int, status: int, cluster: Mq
) -> None:
    ended, shown = at_terminal(
        ["clusterList", "--watch", "60"],
        cluster.variables,
        b"broker-a",  # the first round is there
        lambda process, _: process.send_signal(number),
    )
    assert ended == status
    assert shown.count(b"\x1b[?1049h") == 1
    assert shown.index(b"\x1b[?1049h") < shown.rindex(b"broker-a", 0, shown.index(b"\x1b[?1049l"))
    assert shown.rindex(b"\x1b[?25l") < shown.rindex(b"\x1b[?25h")
