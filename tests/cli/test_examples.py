"""Every example of every command, run: against our daemons, or parsed if it cannot run here.

The names in them are those of one shop: topic Orders, group billing, broker-a. Addresses, message
ids and the home folder are replaced by those of the test.
"""

import io
import json
import shlex
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mq.cli import catalog
from mq.cli.main import load, run
from mq.cli.manual.examples import Example, of
from mq.cli.runtime.effects import effect_of
from mq.cli.runtime.env import Environment
from mq.daemons.standalone import Standalone
from mq.protocol.message import Message
from tests.cli import contract
from tests.cli.commands import tube_pair
from tests.cli.commands.buried import bury
from tests.cli.connected import connected
from tests.cli.members import member
from tests.cli.pairs import make_topic, put, running_pair
from tests.cli.support import Finished

# The unique id and the offset id of a message in examples.
UNIQUE_ID = "7F0000010A2C18B4AAC2A1B2C3D40000"
OFFSET_ID = "7F00000100002A9F00000000000000D4"

_DAEMON = "it runs until it is stopped: test_daemon.py starts it"
_CONTROLLER = (
    "there are no controllers here: tests/cli/commands/test_controller.py has scripted ones"
)
_ROCKSDB = "it takes a store of Java's in RocksDB: test_rocksdb.py has one"
_MEASURES = "it measures for seconds what test_bench.py does in a moment"

# Only parsed, and why.
PARSED = {
    **dict.fromkeys(catalog.GROUPS["daemon"], _DAEMON),
    **dict.fromkeys(catalog.GROUPS["controller"], _CONTROLLER),
    "getSyncStateSet": _CONTROLLER,
    **dict.fromkeys(catalog.GROUPS["bench"], _MEASURES),
    "tube bench": _MEASURES,
    "exportMetadataInRocksDB": _ROCKSDB,
    "rocksDBConfigToJson -p": _ROCKSDB,
    "remappingStaticTopic": "it takes a static topic, which brokers of 5.x alone have",
    "spark submit": "it starts Spark: tests/pipeline does",
    "shutdown": "it would stop the daemons of whoever runs the tests",
    "getBrokerEpoch": _CONTROLLER,
    "startMonitoring": "it shows nothing while all is well: test_monitoring.py has what is not",
    "manual": "it writes the pages of the project: tests/cli/manual has them",
    "systemd install --prefix /usr": "it writes to /usr",
}

# Features of 5.x brokers only; ours refuses them with a message.
OF_5 = (
    *catalog.GROUPS["auth"],
    "updateStaticTopic",
    "getColdDataFlowCtrInfo",
    "updateColdDataFlowCtrGroupConfig",
    "removeColdDataFlowCtrGroupConfig",
    "setCommitLogReadAheadMode",
    "checkRocksdbCqWriteProgress",
    "resetMasterFlushOffset",
)
REFUSED = "older than RocketMQ 5"

# Commands that may end with another status than 0, and that status.
STATUSES = {
    "topic plan": {0, 1},  # 1: there is something to do
    "doctor": {0, 1, 2},  # something is wrong; critical, with --nagios
    "offset diff": {0, 1},
    "systemd install": {0, 1},  # 1: the checkout lies where units see no programs, as in /tmp
    "tube groups": {0, 66},  # nobody is in the group now
}


ORDERS = [
    Message("Orders", f'{{"order": {number}}}'.encode(), "paid", [f"order-{number}"])
    for number in range(1, 5)
]


class World:
    """The shop of the examples, and the replacements."""

    def __init__(self, pair: Standalone, home: Path) -> None:
        self.pair = pair
        self.home = home
        self.web_port = 0  # of the masters of TubeMQ
        self.letter = ""  # the unique id of a dead letter
        self.variables = {
            "HOME": str(home),
            "MQ_CONFIG_DIR": str(home / "config"),
            "MQ_STATE_DIR": str(home / "state"),
            "NAMESRV_ADDR": pair.name_server_address,
        }
        self.names = {
            "127.0.0.1:10911": pair.broker.address,
            "127.0.0.1:9876": pair.name_server_address,
            "10.0.0.5:9876": pair.name_server_address,
            "~/": f"{home}/",
        }

    def mq(self, *words: str, typed: str = "", interrupted: bool = False) -> Finished:
        """Run a command, with `typed` as standard input; Ctrl-C after its first output."""
        out, err = (_Interrupted() if interrupted else io.StringIO()), io.StringIO()
        environment = Environment(
            stdin=io.StringIO(typed), stdout=out, stderr=err, variables=self.variables
        )
        finished = Finished(run(list(words), environment), out.getvalue(), err.getvalue())
        contract.check(words, finished.out)
        return finished

    def done(self, *words: str) -> Finished:
        finished = self.mq(*words)
        assert finished.status == 0, finished.err
        return finished

    def make(self) -> None:
        """Create topics, groups and permissions."""
        self.done("updateTopic", "-t", "Orders", "-c", "DefaultCluster", "-r", "2", "-w", "2")
        self.done("updateTopic", "-t", "OrdersCopy", "-c", "DefaultCluster")
        for group in ("billing", "invoices"):
            self.done("updateSubGroup", "-g", group, "-c", "DefaultCluster")

    def fill(self) -> None:
        """Send messages, create a dead letter, and set offsets."""
        put(self.pair, ORDERS)
        bury(self.pair, "billing", "Orders", [b"refused"])
        send = ("sendMessage", "-t", "Orders", "-p", "traced", "-m", "true", "-o", "json")
        (sent,) = self.done(*send).json["data"]
        letter = self.done("dlq", "show", "-g", "billing", "-o", "json").json["data"][-1]
        self.names |= {UNIQUE_ID: sent["messageId"], OFFSET_ID: sent["offsetId"]}
        self.letter = letter["messageId"]
        self.done("resetOffsetByTimeOld", "-g", "billing", "-t", "Orders", "-s", "now")

    def write(self) -> None:
        """The files that examples read."""
        self.done("message", "export", "-t", "Orders", str(self.home / "orders.jsonl"))
        self.done("offset", "export", str(self.home / "offsets.jsonl"))
        self.done("context", "add", "dev", "-n", self.pair.name_server_address)
        for name, text in FILES.items():
            (self.home / name).write_text(text)


class _Interrupted(io.StringIO):
    """A terminal with one Ctrl-C after the first output."""

    pressed = False

    def flush(self) -> None:
        if self.getvalue().strip() and not self.pressed:
            self.pressed = True
            signal.raise_signal(signal.SIGINT)


FILES = {
    "topics.yaml": "topics:\n  Orders:\n    queues: 4\n",
    "topics.json": json.dumps([{"topicName": "Orders", "readQueueNums": 4, "writeQueueNums": 4}]),
    "groups.json": json.dumps([{"groupName": "billing", "retryMaxTimes": 3}]),
    "orders.txt": "one\ntwo\n",
    "order.json": json.dumps({"order": 1}),
    "keyed.txt": "4711:paid\n4712:new\n",
    "commands.txt": "topicList\nclusterList\n",
    "users.properties": "carol=a-password,1\n",
    "broker.conf": "brokerName=broker-a\n",
    "snode.conf": "snodeName=snode-a\n",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("home")
    small = {"mappedFileSizeCommitLog": "1048576"}  # reading the whole file is what takes time
    with running_pair(small, store=home / "stopped") as pair:
        make_topic(pair, "Orders")
        put(pair, ORDERS)
    shutil.move(home / "stopped" / "store", home / "store")
    with running_pair() as pair:
        world = World(pair, home)
        world.make()
        world.fill()
        world.write()
        yield world


@pytest.fixture(scope="module")
def tube(world: World) -> Iterator[None]:
    """Masters for the commands of TubeMQ, and a topic of the shop there."""
    with tube_pair.running({"Orders": 3}) as pair:
        admin = tube_pair.admin_of(pair)
        admin.change(
            "admin_update_broker_configure", brokerId=1, brokerWebPort=pair.broker.web_port
        )
        world.variables |= {
            "MQ_TUBE_MASTERS": pair.master_address,
            "MQ_TUBE_TOKEN": tube_pair.TOKEN,
        }
        world.web_port = pair.master.web_port
        world.names["10.0.0.5:8715"] = pair.master_address
        world.done("tube", "send", "Orders", "news")
        world.done("tube", "consume", "Orders", "billing", "--first", "--limit", "1")
        yield


SECRET = "a-secret-of-16-chars"
ACCOUNTS = f"""\
accounts:
- {{accessKey: administrator, secretKey: {SECRET}, admin: true}}
- {{accessKey: shop-service, secretKey: {SECRET}, admin: false}}
"""


@pytest.fixture(scope="module")
def guarded(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A cluster with access control, and the key of its administrator."""
    home = tmp_path_factory.mktemp("guarded")
    (home / "conf").mkdir()
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    with running_pair({"aclEnable": "true", "rocketmqHome": str(home)}) as pair:
        guarded = World(pair, world.home)
        guarded.variables |= {
            "MQ_ACCESS_KEY": "administrator",
            "MQ_SECRET_KEY": SECRET,
        }
        yield guarded


COMMANDS = [(group, name) for group, names in catalog.GROUPS.items() for name in names]


def examples_of(group: str, name: str) -> tuple[Example, ...]:
    return of(load(group, name).function)


@pytest.mark.parametrize(("group", "name"), COMMANDS)
def test_every_command_has_examples_that_say_what_they_do(group: str, name: str) -> None:
    found = examples_of(group, name)
    assert 1 <= len(found) <= 4
    for command, words in found:
        assert f"mq {name}" in command
        assert words and not words.endswith(".")
        assert len(command) <= 100


@pytest.mark.parametrize(("group", "name"), COMMANDS)
def test_examples_are_taken_as_they_are_written(group: str, name: str) -> None:
    for command, _ in examples_of(group, name):
        words = words_of(command)
        found = catalog.find(words)
        assert found is not None and found[:2] == (group, name), command
        declared = load(group, name, words[found[2] :])
        assert declared.parse(words[found[2] :]) is not None, command


def words_of(command: str) -> list[str]:
    """Return the arguments of `mq` in a line of the shell."""
    last = shlex.split(command.rpartition(" | ")[2])
    ends = [index for index, word in enumerate(last) if word in ("<", ">")]
    return last[1 : ends[0]] if ends else last[1:]


def is_parsed_alone(name: str, command: str) -> bool:
    prints = name in catalog.GROUPS["daemon"] and {"-p", "-m"} & set(command.split())
    return not prints and any(f"{command} ".startswith(f"mq {start} ") for start in PARSED)


# Commands that show events, and run until Ctrl-C.
FED = ("tail", "tube tail", "tube consume")
UNTIL_STOPPED = ("tail", "tube tail", "top", "clusterRT")
HAVE_A_MEMBER = ("consumer", "consumerStatus", "consumerConnection", "getConsumerStatus")


@pytest.mark.parametrize("group", catalog.GROUPS)
def test_every_example_does_what_it_says(
    group: str, world: World, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.home)
    monkeypatch.setattr(tempfile, "tempdir", str(world.home))  # where updateStaticTopic writes
    if group == "tube":
        request.getfixturevalue("tube")
    if group == "acl":
        world = request.getfixturevalue("guarded")
    problems = [
        f"{command}: status {finished.status}\n{finished.err}{finished.out[:300]}"
        for name in catalog.GROUPS[group]
        for command, finished in outcomes(world, group, name)
        if not is_well(name, finished)
    ]
    assert not problems, "\n".join(problems)


def is_well(name: str, finished: Finished) -> bool:
    if name in OF_5:
        dry = finished.out.endswith("dry run: nothing was changed\n")
        return dry or (finished.status == 69 and REFUSED in finished.err)
    return finished.status in STATUSES.get(name, {0})


def outcomes(world: World, group: str, name: str) -> Iterator[tuple[str, Finished]]:
    """The examples of a command that can be run, and how each has ended."""
    for command, _ in examples_of(group, name):
        if not is_parsed_alone(name, command):
            with surroundings(world, name, command):
                yield command, outcome(world, name, command)
    if effect_of(load(group, name).function).destroys and group != "acl":
        world.make()
        world.fill()


@contextmanager
def surroundings(world: World, name: str, command: str) -> Iterator[None]:
    """Clients that are connected, or send, while an example of a command runs."""
    if name in HAVE_A_MEMBER:
        with member(world.pair, "billing", "Orders"):
            yield
    elif name == "producerConnection":
        with connected(world.pair, group="shop"):
            yield
    elif name in FED and "--wait" not in command:
        kind = ["tube", "send", "--type"] if name.startswith("tube") else ["sendMessage", "-c"]
        with sending(world, [*kind, "paid", "Orders", "news"]):
            yield
    else:
        yield


@contextmanager
def sending(world: World, words: list[str]) -> Iterator[None]:
    """Send a message now and then."""
    stop = threading.Event()

    def send() -> None:
        while not stop.wait(0.2):
            world.mq(*words)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


def outcome(world: World, name: str, command: str) -> Finished:
    if name.startswith("dlq "):
        command = command.replace(UNIQUE_ID, world.letter)
    for written, real in world.names.items():
        command = command.replace(written, real)
    typed = "clusterList\n" if name == "shell" else f"{SECRET}\n"
    if " | " in command:  # the second one reads the output of the first
        first, _, command = command.partition(" | ")
        typed = world.mq(*shlex.split(first)[1:]).out
    if " < " in command:
        command, _, path = command.partition(" < ")
        typed = Path(path).read_text()
    interrupted = name in UNTIL_STOPPED or "--watch" in command
    words = shlex.split(command)[1:]
    if name in catalog.GROUPS["tube"]:
        words += ["--web-port", str(world.web_port)]
    return world.mq(*words, typed=typed, interrupted=interrupted)
