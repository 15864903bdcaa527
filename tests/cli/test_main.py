import os
import socket
import subprocess
import sys
import typing
from pathlib import Path

import orjson
import pytest

from mq import __version__
from mq.cli import catalog
from mq.cli.main import load
from mq.daemons.standalone import Standalone
from mq.protocol.message import Message
from mq.protocol.native import absent
from tests.cli.pairs import make_topic, put
from tests.cli.support import Mq

ALL_COMMANDS = [(group, name) for group, names in catalog.GROUPS.items() for name in names]


def test_version_is_printed(mq: Mq) -> None:
    for spelling in ("--version", "-V", "version"):
        first, second = mq(spelling).out.splitlines()
        assert first == f"mq {__version__}"
        assert second == f"native path: {f'not in use: {absent}' if absent else 'in use'}"


def test_version_says_that_the_native_path_is_turned_off() -> None:
    command = [sys.executable, "-m", "mq", "--version"]
    variables = {**os.environ, "MQ_NATIVE": "0"}
    finished = subprocess.run(command, capture_output=True, text=True, env=variables, check=True)
    assert finished.stdout.splitlines()[1] == "native path: not in use: MQ_NATIVE=0 turns it off"


@pytest.mark.parametrize(
    "variables", [{"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "iso-8859-9"}]
)
def test_characters_that_the_locale_lacks_are_escaped(
    variables: dict[str, str], tmp_path: Path
) -> None:
    config = {**os.environ, **variables, "MQ_CONFIG_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "mq", "context"]
    subprocess.run([*command, "add", "\U0001f600", "-n", "127.0.0.1:1"], env=config, check=True)
    listed = subprocess.run([*command, "list", "-o", "json"], env=config, capture_output=True)
    assert (listed.returncode, listed.stderr) == (0, b"")
    assert b'"\\ud83d\\ude00"' in listed.stdout
    assert orjson.loads(listed.stdout)["data"][0]["name"] == "\U0001f600"


def test_help_lists_every_command_with_its_summary(mq: Mq) -> None:
    finished = mq("help", "all")
    assert finished.status == 0
    assert mq("--help", "--all").out == mq("help", "--all").out == finished.out
    text = " ".join(finished.out.split())
    for names in catalog.GROUPS.values():
        for name, summary in names.items():
            assert f"\n  {name:<22} " in finished.out
            assert f" {name} {summary} " in text


def test_help_is_what_mq_alone_and_mq_help_print(mq: Mq) -> None:
    assert mq().out == mq("help").out == mq("--help").out


@pytest.mark.parametrize(("group", "name"), ALL_COMMANDS)
def test_catalog_says_what_the_docstring_says(group: str, name: str) -> None:
    declared = load(group, name)
    first = (declared.function.__doc__ or "").strip().splitlines()[0]
    assert first == catalog.GROUPS[group][name]


@pytest.mark.parametrize(("group", "name"), ALL_COMMANDS)
def test_every_command_has_help_with_both_spellings(group: str, name: str, mq: Mq) -> None:
    long = mq(*name.split(), "--help")
    short = mq("help", *name.split())
    assert long.status == 0
    assert long.out == short.out
    assert long.out.startswith(f"Usage: mq {name} ")
    assert catalog.GROUPS[group][name].rstrip(".") in " ".join(long.out.split())


@pytest.mark.parametrize("spelling", ["topicList", "topic-list", "TOPICLIST", "topic_list"])
def test_names_are_found_in_any_case_and_in_kebab_case(spelling: str, mq: Mq) -> None:
    assert mq(spelling, "--help").out.startswith("Usage: mq topicList ")


def test_an_unknown_command_names_near_misses(mq: Mq) -> None:
    finished = mq("topicLst")
    assert finished.status == 64
    assert finished.out == ""
    message, hint = finished.err.splitlines()
    assert message == "mq: no command 'topicLst'"
    assert hint.startswith("hint: did you mean mq topicList")


def test_a_command_like_no_other_points_to_help(mq: Mq) -> None:
    assert mq("qqqqqq").err == "mq: no command 'qqqqqq'\nhint: see: mq --help\n"


def test_an_option_of_a_command_before_it_is_refused(mq: Mq) -> None:
    finished = mq("-q", "1", "topicList")
    assert finished.status == 64
    assert "no option -q before a command" in finished.err
    assert finished.err.splitlines()[1] == "hint: did you mean mq topicList -q 1?"


def test_half_a_command_lists_its_other_halves(mq: Mq) -> None:
    finished = mq("context")
    assert finished.status == 64
    assert "context add" in finished.out
    assert "topicList" not in finished.out
    assert mq("context", "--help").status == 0


def test_an_unknown_half_suggests_a_near_one(mq: Mq) -> None:
    finished = mq("context", "ls")
    assert finished.status == 64
    assert finished.err.splitlines()[1] == "hint: did you mean mq context list?"


IMPORTS = """
import io, sys
from mq.cli.runtime.env import Environment
from mq.cli.main import run
out = io.StringIO()
run({arguments}, Environment(stdin=io.StringIO(), stdout=out, stderr=out, variables={{}}))
print(*sorted(sys.modules))
"""


def imported_by(*arguments: str) -> set[str]:
    program = IMPORTS.format(arguments=list(arguments))
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return set(finished.stdout.decode().split())


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("nonesuch",)])
def test_what_needs_no_command_imports_no_library(arguments: tuple[str, ...]) -> None:
    modules = imported_by(*arguments)
    assert not modules & {"typer", "rich", "asyncio", "orjson", "pydantic", "dataclasses"}


def test_a_simple_command_imports_only_its_module_and_no_event_loop() -> None:
    # Nothing listens on port 1, so this goes through everything but the answer.
    modules = imported_by("topicList", "-n", "127.0.0.1:1")
    assert not modules & {"rich", "asyncio", "pydantic", "tabulate", "yaml"}
    mine = {name for name in modules if name.startswith("mq.cli.commands.")}
    assert mine == {"mq.cli.commands.topic"}


def test_a_send_that_is_not_traced_loads_nothing_that_traces() -> None:
    modules = imported_by("sendMessage", "-n", "127.0.0.1:1", "-t", "T", "-p", "x")
    assert "mq.client.producer.producer" in modules
    assert not {name for name in modules if name.startswith("mq.client.trace")}


# Each of these costs a command at least a tenth of its time. The bodies are loaded by subject, when
# an answer is read: never all of them.
HEAVY = {
    "asyncio",
    "concurrent.futures",
    "csv",
    "email",
    "http",
    "importlib.metadata",
    "multiprocessing",
    "pydantic",
    "rich",
    "ssl",
    "tabulate",
    "unittest",
    "yaml",
    "zstandard",
}
READS = (
    "topicList",
    "topicRoute -t T",
    "topicStatus -t ImportedTopic",
    "topicClusterList -t ImportedTopic",
    "brokerStatus -b ADDRESS",
    "brokerStatus -b ADDRESS -o json",
    "brokerConsumeStats -b ADDRESS",
    "getBrokerConfig -b ADDRESS",
    "getNamesrvConfig",
    "clusterList",
    "consumerProgress",
    "consumerProgress -g G",
    "consumerConnection -g G",
    "getConsumerConfig -g G",
    "producer -b ADDRESS",
    "producerConnection -g P -t ImportedTopic",
    "queryCq -t ImportedTopic -q 0 -i 0 -b ADDRESS",
    "queryMsgByOffset -t ImportedTopic -b broker-a -i 0 -o 0",
    "queryMsgByKey -t ImportedTopic -k key",
    "queryMsgByUniqueKey -t ImportedTopic -i 7F000001000018B4AAC2000000000000",
    "printMsgByQueue -t ImportedTopic -a broker-a -i 0 -p true",
    "statsAll -t ImportedTopic",
    "haStatus -b ADDRESS",
    "getAclConfig -b ADDRESS",
    "context list",
    "DecodeMessageId -i 7F000001000018B4AAC2000000000000",
)


@pytest.mark.parametrize("words", READS)
def test_a_read_imports_nothing_heavy(words: str, standalone: Standalone) -> None:
    make_topic(standalone, "ImportedTopic")
    arguments = words.replace("ADDRESS", standalone.broker.address).split()
    if words not in ("context list", "DecodeMessageId -i 7F000001000018B4AAC2000000000000"):
        arguments += ["-n", standalone.name_server_address]
    assert not imported_by(*arguments) & HEAVY


HELP_OF_ALL = """
import io, sys
from mq.cli import catalog
from mq.cli.runtime.env import Environment
from mq.cli.main import run
for names in catalog.GROUPS.values():
    for name in names:
        out = io.StringIO()
        before = set(sys.modules)
        environment = Environment(stdin=io.StringIO(), stdout=out, stderr=out, variables={})
        assert run([*name.split(), "--help"], environment) == 0, name
        print(name, *sorted(set(sys.modules) - before), sep="\\t")
"""


def test_no_help_imports_what_would_do_the_work() -> None:
    ended = subprocess.run([sys.executable, "-c", HELP_OF_ALL], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    loaded = {line.split("\t")[0]: set(line.split("\t")[1:]) for line in ended.stdout.splitlines()}
    assert len(loaded) == len(ALL_COMMANDS)
    work = {"rich", "pydantic", "tabulate", "yaml"}
    work |= {"mq.client.transport.session", "mq.client.transport.blocking"}
    assert {name: found & work for name, found in loaded.items() if found & work} == {}


def test_the_commands_of_a_group_are_shown_by_its_name(mq: Mq) -> None:
    finished = mq("help", "topic")
    assert finished.status == 0
    assert "topicRoute" in finished.out
    assert "clusterList" not in finished.out


def test_an_unknown_option_names_near_misses(mq: Mq) -> None:
    finished = mq("topicRoute", "--topc", "T")
    assert finished.status == 64
    assert "--topic" in finished.err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("clusterlst", "clusterList"),
        ("contxt list", "context list"),
        ("ofset export", "offset export"),
        # kubectl's order, with all that follows
        ("list topics", "topic list"),
        ("get topics", "topic list"),
        ("delete topic -t T -c C", "topic delete -t T -c C?"),
        ("create topic 'a b'", "topic create"),
        # words of nats, rpk and kafka
        ("topic ls", "topic list?"),
        ("topic rm Orders", "topic delete Orders?"),
        ("group reset billing", "group seek billing?"),
        ("consumer list", "group list?"),
        ("consumer-groups list", "group list?"),
        ("topics", "topic list?"),
        ("context select dev", "context use dev?"),
        ("consume Orders", "tail Orders?"),
        ("sub Orders", "tail Orders?"),
        ("node ls", "broker list?"),
        ("-C", "tail?"),
        ("-C -t Orders", "tail -t Orders?"),
        ("-b h:9876 -t Orders -C", "-n h:9876 tail -t Orders?"),
        ("--topic Orders --delete", "topic delete --topic Orders?"),
        ("topic sub Orders", "topic tail Orders?"),
        ("topic add-partitions Orders", "topic update Orders?"),
        ("consumer group list", "group list?"),
        ("group offsets billing", "group lag billing?"),
        ("config use-context dev", "context use dev?"),
        ("message ls Orders", "message print Orders?"),
        ("ls", "topic list?"),
        ("--list", "topic list?"),
        # options that stand elsewhere, or are called otherwise
        ("--bootstrap-server h:9876 topicList", "-n h:9876 topicList?"),
        ("--contxt dev topicList", "--context dev topicList?"),
        ("-t Orders tail", "tail -t Orders?"),
    ],
)
def test_what_was_meant_is_suggested_first(words: str, meant: str, mq: Mq) -> None:
    finished = mq(*words.split())
    assert finished.status == 64
    assert f"hint: did you mean mq {meant}" in finished.err


def test_help_on_what_is_nearly_a_group_names_the_group(mq: Mq) -> None:
    finished = mq("help", "topik")
    assert (finished.status, finished.out) == (64, "")
    assert "did you mean the group topic" in finished.err


def test_help_of_every_command_fits_eighty_columns(mq: Mq) -> None:
    for _, name in ALL_COMMANDS:
        finished = mq("help", *name.split())
        assert (finished.status, finished.err) == (0, ""), name
        assert not [line for line in finished.out.splitlines() if len(line) > 80], name


def test_every_option_says_what_it_is() -> None:
    for group, name in ALL_COMMANDS:
        declared = load(group, name)
        for parameter in declared.own_names:
            option = typing.get_args(declared.parameter(parameter).annotation)[1]
            assert option.help and option.help.endswith((".", "?")), (name, parameter)


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_closed_streams_that_are_not_written_to_are_no_matter(closed: str) -> None:
    ended = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m mq --version {closed}"], timeout=60, capture_output=True
    )
    assert ended.returncode == 0
    assert ended.stdout.startswith(b"mq ")


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "topicList",
        "topicList -o json",
        "printMsg {topic} --format %b",
        "message export {topic} -",
        "message export {topic} {folder}/file",
    ],
)
@pytest.mark.parametrize("closed", [">&-", "<&- >&-"])
def test_output_that_nobody_can_have_is_an_error(
    arguments: str, closed: str, cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "ToNobody", 1)
    put(standalone, [Message("ToNobody", b"lost")], 0)
    words = arguments.format(topic="ToNobody", folder=tmp_path)
    ended = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m mq {words} {closed}"],
        env={**os.environ, **cluster.variables},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 74
    first, hint = ended.stderr.splitlines()
    assert first.endswith("standard output is closed")
    assert hint == "hint: to discard the output: >/dev/null"


def test_a_command_that_prints_nothing_needs_no_output(cluster: Mq, standalone: Standalone) -> None:
    make_topic(standalone, "Nothing", 1)
    ended = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m mq message export Nothing - >&-"],
        env={**os.environ, **cluster.variables},
        timeout=60,
    )
    assert ended.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_a_full_disk_is_one_line_and_its_status(cluster: Mq) -> None:
    for arguments in ("--help", "topicList", "topicList -o json"):
        ended = subprocess.run(
            ["sh", "-c", f"{sys.executable} -m mq {arguments} >/dev/full"],
            env={**os.environ, **cluster.variables},
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
        assert ended.returncode == 74
        assert ended.stderr.count("\n") == 1
        assert "No space left on device" in ended.stderr


@pytest.mark.parametrize("words", [["all"], ["topic"], ["group"], ["broker"], ["export"]])
def test_lists_of_commands_are_no_wider_than_a_terminal(words: list[str], mq: Mq) -> None:
    lines = mq("help", *words).out.splitlines()
    assert not [line for line in lines if len(line) > 80]


def test_an_option_amid_a_name_is_refused_with_the_right_line(mq: Mq) -> None:
    refused = mq("topic", "--context", "dev", "delete", "a b")
    assert (refused.status, refused.out) == (64, "")
    assert "did you mean mq --context dev topic delete 'a b'?" in refused.err
    assert mq("topic", "--nonsense").status == 64
    assert mq("topic", "-h").status == 0


def test_help_on_a_daemon_names_the_commands_that_begin_with_its_word(mq: Mq) -> None:
    shown = mq("help", "broker").out
    assert shown.startswith(mq("broker", "--help").out)
    assert "  broker drain " in shown


@pytest.mark.parametrize("gone", ["pipe", "full"])
def test_an_error_that_nobody_can_be_told_has_its_status(gone: str, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "mq", "topicList", "-n", "127.0.0.1:1"],
            stdout=subprocess.DEVNULL,
            stderr=writer if gone == "pipe" else full,
            env={**os.environ, "MQ_CONFIG_DIR": str(tmp_path)},
            timeout=60,
        )
    os.close(writer)
    assert ended.returncode == 69


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_a_signal_that_nobody_can_be_told_of_ends_with_its_status(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, open("/dev/full", "w") as full:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-m", "mq", "topicList", "-n", address, "--timeout", "60"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=full) as running:
            link, _ = server.accept()
            with link:
                link.recv(1024)
                running.terminate()
                assert running.wait(60) == 143
