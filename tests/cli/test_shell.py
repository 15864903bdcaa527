"""`mq shell`: commands from a pipe, and what a terminal adds."""

import io
import os
import stat
from pathlib import Path

import pytest

from mq.cli import shell
from mq.cli.main import run
from mq.cli.runtime.env import Environment
from tests.cli.support import Finished, Mq
from tests.cli.terminal import at_terminal


def piped(mq: Mq, script: str, *options: str) -> Finished:
    out, err = io.StringIO(), io.StringIO()
    environment = Environment(
        stdin=io.StringIO(script), stdout=out, stderr=err, variables=mq.variables
    )
    status = run(["shell", *options], environment)
    return Finished(status, out.getvalue(), err.getvalue())


def test_each_line_is_a_command_with_the_quotes_of_sh(cluster: Mq) -> None:
    script = (
        "# what follows makes a topic\n"
        "\n"
        "updateTopic -c DefaultCluster -t 'Shelled' -o true --output csv --no-header\n"
        'mq topic-route -t "Shelled" --columns brokerName --no-header\n'
    )
    finished = piped(cluster, script)
    assert (finished.status, finished.err) == (0, "")
    assert finished.out.splitlines()[1:] == ["broker-a"]


def test_all_lines_are_run_and_each_failure_is_told(cluster: Mq) -> None:
    finished = piped(cluster, 'topicRoute -t Nope\nnonesuch\n"open\ncontext list -o csv\n')
    assert finished.status == 1
    assert finished.out.startswith("current,name")
    told = [line for line in finished.err.splitlines() if line.startswith("mq shell: line")]
    assert told == [
        "mq shell: line 1 ended with status 66",
        "mq shell: line 2 ended with status 64",
        "mq shell: line 3 ended with status 64",
    ]


def test_the_first_failure_ends_it_on_request(cluster: Mq) -> None:
    finished = piped(cluster, "topicRoute -t Nope\ntopicList\n", "--stop")
    assert (finished.status, finished.out) == (66, "")


def test_exit_ends_it(cluster: Mq) -> None:
    assert piped(cluster, "exit\ntopicRoute -t Nope\n") == Finished(0, "", "")


def test_options_before_the_shell_stand_before_its_commands(cluster: Mq) -> None:
    address = cluster.variables["NAMESRV_ADDR"]
    elsewhere = cluster.having({"NAMESRV_ADDR": "127.0.0.1:1"})
    lines = "topicList\n-o csv topicList\n"
    stdin, out, err = io.StringIO(lines), io.StringIO(), io.StringIO()
    environment = Environment(stdin=stdin, stdout=out, stderr=err, variables=elsewhere.variables)
    assert run(["-n", address, "-o", "json", "shell"], environment) == 0, err.getvalue()
    assert out.getvalue().startswith('{\n  "version": 1,\n  "command": "topicList"')
    assert "\ntopic\n" in out.getvalue()


def test_commands_go_without_an_option_of_the_shell_that_they_do_not_take(cluster: Mq) -> None:
    out, err = io.StringIO(), io.StringIO()
    lines = io.StringIO("context list -o csv --no-header\ndeleteTopic -t T -c NoCluster\n")
    environment = Environment(stdin=lines, stdout=out, stderr=err, variables=cluster.variables)
    run(["--yes", "shell"], environment)
    assert "the command has no option --yes" not in err.getvalue()
    dry = Environment(
        stdin=io.StringIO("topicList\n"),
        stdout=out,
        stderr=err,
        variables=cluster.variables,
    )
    assert run(["--dry-run", "shell"], dry) != 0
    assert "the command has no option --dry-run" in err.getvalue()


def test_a_shell_in_the_shell_and_a_daemon_are_refused(mq: Mq) -> None:
    finished = piped(mq, "shell\nbroker\nnamesrv -p\n-n a:1 broker\n")
    assert (finished.status, finished.out) == (1, "")
    assert finished.err.count("cannot run inside mq shell") == 4


def test_commands_cannot_eat_the_lines_that_follow(cluster: Mq) -> None:
    environment = Environment(
        stdin=io.StringIO("x"), stdout=io.StringIO(), stderr=io.StringIO(), variables={}
    )
    assert environment.with_input(io.StringIO()).stdin.read() == ""
    assert environment.stdin.read() == "x"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topicRo", {"topicRoute"}),
        ("TOPICRO", {"topicRoute"}),
        ("mq help topicRo", {"topicRoute"}),
        ("context ex", {"export"}),
        ("topicRoute --li", {"--list"}),
        ("clusterList -o j", {"json"}),
        ("topicRoute -t TBW", {"TBW102"}),
        ("updateTopic -c Def", {"DefaultCluster"}),
        ("topic rou", {"route"}),
        ("topicRoute TBW", {"TBW102"}),
        ("group seek billing TBW", {"TBW102"}),
        ("group seek -t T -s 1h TOOLS", {"TOOLS_CONSUMER"}),
        ("topicRoute -t TBW102 TBW", set()),
        ("--utc topicRo", {"topicRoute"}),
        ("-o j", {"json"}),
        ("-o json topicRoute TBW", {"TBW102"}),
        ("nonesuch x", set()),
    ],
)
def test_words_are_completed(text: str, expected: set[str], cluster: Mq, tmp_path: Path) -> None:
    stream = io.StringIO()
    variables = {**cluster.variables, "MQ_CACHE_DIR": str(tmp_path / "cache")}
    environment = Environment(stdin=stream, stdout=stream, stderr=stream, variables=variables)
    assert {word for word, _ in shell.candidates(text, environment)} == expected


@pytest.mark.parametrize(
    "line",
    [
        "updateAclConfig -a someone -s hush",
        "mq createUser -u x -p hush",
        "-o json createUser -u x -p hush",
        "mq -n a:1 user create x hush",
        "account set -a someone -s hush",
        "topicList --secretKey hush",
        "sendMessage -t T -p 'my password'",
        "sendMessage -p 'open secret",
    ],
)
def test_a_line_that_may_hold_a_secret_is_not_kept(line: str) -> None:
    assert shell.may_hold_secret(line)


def test_other_lines_are_kept() -> None:
    assert not shell.may_hold_secret("topicRoute -t Orders")


def typed(variables: dict[str, str], keys: bytes) -> tuple[int, str]:
    """Type into `mq shell` at a terminal of its own; returns its status and what it showed."""

    def write(_: object, terminal: int) -> None:
        os.write(terminal, keys)

    status, shown = at_terminal(["shell"], variables, b"mq>", write)
    return status, shown.decode(errors="replace")


@pytest.fixture
def terminal(cluster: Mq, tmp_path: Path) -> dict[str, str]:
    return {
        **cluster.variables,
        "MQ_CACHE_DIR": str(tmp_path / "cache"),
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }


def test_at_a_terminal_lines_are_run_and_kept_but_for_secrets(
    terminal: dict[str, str], tmp_path: Path
) -> None:
    keys = b"topicRoute -t Nope\rcreateUser -p hush --nonsense\rexit\r"
    status, shown = typed(terminal, keys)
    assert status == 64  # that of the last command
    assert "topic Nope: no name server knows it" in shown
    assert "mq [66]>" in shown
    history = tmp_path / "cache" / "history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "topicRoute -t Nope" in history.read_text()
    assert "hush" not in history.read_text()


def test_without_a_place_for_its_history_it_runs_all_the_same(terminal: dict[str, str]) -> None:
    status, _ = typed({**terminal, "MQ_CACHE_DIR": "/dev/null/x"}, b"topicList\r\x04")
    assert status == 0
