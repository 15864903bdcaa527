"""Our brokers under a Java 5.5.0 controller, alone and with a Java broker in their replica set.

All tests share one controller and our name server; each has its own replica set.
"""

import asyncio
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from mq.client.errors import MQError
from mq.client.transport.session import Session
from mq.protocol.codes import ResponseCode
from tests.cli.support import Mq
from tests.interop import peers
from tests.interop.java_client import JavaClient, JavaFailed
from tests.interop.jvm import require_java
from tests.interop.ports import free_port
from tests.system.daemon import BrokerProcess, NameServerProcess
from tests.system.dying_masters import Rounds
from tests.system.ledger import QUEUES, TOPIC, audit, send_command
from tests.system.pairs import caught_up

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

PATIENCE = 60.0
CLUSTER = "DefaultCluster"
MIXED_ROUNDS = 30 if os.environ.get("MQ_TEST_LONG") else 1


@dataclass
class Set:
    """A replica set of brokers, by their addresses."""

    name: str
    tmp: Path
    namesrv: str
    controller: str
    mq: Mq

    def ours(self, store: str, **settings: object) -> BrokerProcess:
        given = {
            "brokerName": self.name,
            "listenPort": free_port(),
            "namesrvAddr": self.namesrv,
            "enableControllerMode": "true",
            "controllerAddr": self.controller,
            "allAckInSyncStateSet": "true",
            "mappedFileSizeCommitLog": 64 << 20,
            "diskMaxUsedSpaceRatio": 95,
            "slaveReadEnable": "true",
            **settings,
        }
        return BrokerProcess(self.tmp / store, {key: str(value) for key, value in given.items()})

    def java(self, **more: object) -> peers.JavaBroker:
        settings = {
            "brokerName": self.name,
            "brokerRole": "SLAVE",
            "brokerId": -1,
            "enableControllerMode": "true",
            "controllerAddr": self.controller,
            "allAckInSyncStateSet": "true",
            "haListenPort": free_port(),
            "slaveReadEnable": "true",
            **more,
        }
        return peers.JavaBroker("5.5.0", self.tmp, self.namesrv, settings)

    def command(self, *words: str) -> dict[str, object]:
        """Return the data that a command prints; {} if it fails."""
        found = self.mq(*words, "-n", self.namesrv, "-o", "json")
        return found.json["data"] if found.status == 0 else {}

    def state(self) -> tuple[str, set[str], int]:
        """The address of the master, the addresses in sync, and the master epoch."""
        data = self.command("getSyncStateSet", "-a", self.controller, "-b", self.name)
        one = data.get(self.name)
        if not isinstance(one, dict):
            return "", set(), 0
        members = {replica["brokerAddress"] for replica in one["inSyncReplicas"]}
        return one["masterAddress"] or "", members, one["masterEpoch"]

    def until(self, holds: Callable[[str, set[str], int], bool]) -> tuple[str, set[str], int]:
        deadline = time.monotonic() + PATIENCE
        while not holds(*(now := self.state())):
            assert time.monotonic() < deadline, now
            time.sleep(0.1)
        return now

    def in_sync(self, *addresses: str) -> str:
        """Wait until these brokers are in sync; returns the address of their master."""
        return self.until(lambda master, members, _: members == {*addresses} and bool(master))[0]

    def master_but(self, address: str) -> str:
        """Wait for a master other than this one; returns its address."""
        return self.until(lambda master, _, __: master not in ("", address))[0]


@dataclass
class Common:
    namesrv: str
    java: peers.JavaController
    mq: Mq
    tmp: Path

    def set_of(self, name: str) -> Set:
        folder = self.tmp / name
        folder.mkdir()
        return Set(name, folder, self.namesrv, self.java.address, self.mq)


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Common]:
    require_java()
    tmp = tmp_path_factory.mktemp("controlled")
    with ExitStack() as parts:
        namesrv = parts.enter_context(NameServerProcess(tmp / "names"))
        controller = parts.enter_context(peers.JavaController("5.5.0", tmp))
        yield Common(namesrv.address, controller, Mq(tmp / "config"), tmp)


async def send(address: str, numbers: range) -> list[int]:
    async with Session("127.0.0.1:1", timeout=15) as session:
        answers = [
            session.request(address, send_command(f"id-{number:06d}", number % QUEUES, 900))
            for number in numbers
        ]
        return [answer.code for answer in await asyncio.gather(*answers)]


def sent(address: str, numbers: range) -> None:
    """Send messages; all must be acknowledged."""
    assert set(asyncio.run(send(address, numbers))) == {ResponseCode.SUCCESS}


def until_sent(java: JavaClient, tag: str) -> None:
    """Send until a send succeeds."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            java.send(TOPIC, "sync", tag)
            return
        except JavaFailed:
            assert time.monotonic() < deadline
            time.sleep(0.5)


def takes_a_send(address: str) -> bool:
    async def ask() -> int:
        async with Session("127.0.0.1:1", timeout=1) as session:
            return (await session.invoke(address, send_command("probe", 0, 100))).code

    try:
        return asyncio.run(ask()) == ResponseCode.SUCCESS
    except MQError:
        return False


def test_our_brokers_fail_over_under_a_java_controller_and_java_clients_continue(
    common: Common,
) -> None:
    one = common.set_of("set-ours")
    with one.ours("a") as first, one.ours("b") as second:
        old = one.in_sync(first.address, second.address)
        killed, other = (first, second) if old == first.address else (second, first)
        with (
            JavaClient("4.9.8", common.namesrv, one.tmp) as java,
            JavaClient("5.5.0", common.namesrv, one.tmp) as newer,
        ):
            sent(old, range(100))
            assert {result.status for result in java.send(TOPIC, "sync", "before", 20)} == {
                "SEND_OK"
            }
            newer.consume("reader", "readers-of-ours", TOPIC)
            newer.got("reader", 120)
            began = time.monotonic()
            killed.kill()
            assert one.master_but(old) == other.address
            deadline = time.monotonic() + PATIENCE
            while not takes_a_send(other.address):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            took = time.monotonic() - began
            sent(other.address, range(200, 300))
            until_sent(java, "found")  # it requests routes periodically, even after failures
            after = java.send(TOPIC, "sync", "after", 20)
            assert {result.status for result in after} == {"SEND_OK"}
            again = newer.send(TOPIC, "sync", "newer", 5)
            assert {result.status for result in again} == {"SEND_OK"}
            killed.start()
            one.in_sync(first.address, second.address)
            wanted = {
                f"{tag}-{number}"
                for tag, count in (("before", 20), ("after", 20), ("newer", 5))
                for number in range(count)
            }
            deadline = time.monotonic() + PATIENCE
            while missing := wanted - {message.body for message in newer.got("reader")}:
                assert time.monotonic() < deadline, missing
                time.sleep(0.05)
        caught_up(killed.address, other.address)
        # test_controller_commands.py compares the output of Java's tool.
        epochs = common.mq("getBrokerEpoch", "-b", one.name, "-n", common.namesrv)
        assert epochs.out.count("EpochEntry{epoch=2, startOffset=") == 2, epochs.out
        assert (first.stop(), second.stop()) == (0, 0)
    print(f"from kill -9 to the next acknowledged send: {took:.2f} s")
    assert took < 8  # when notified; otherwise it polls every ten seconds


def test_our_broker_and_a_java_broker_replicate_from_each_other(common: Common) -> None:
    one = common.set_of("set-mixed")
    with one.ours("a") as ours, one.java() as java:
        assert one.in_sync(ours.address, java.address) == ours.address
        sent(ours.address, range(200))
        caught_up(java.address, ours.address)
        elected = elect(one, java.address)
        assert elected == java.address
        sent_until_taken(java.address, 200)  # it reports the role of master before it accepts sends
        sent(java.address, range(201, 400))
        one.in_sync(ours.address, java.address)
        caught_up(ours.address, java.address)
        java.kill()
        assert one.master_but(java.address) == ours.address
        sent_until_taken(ours.address, 400)
        result = audit(one.tmp, ours.address)
        result.stored.pop("probe", None)
        assert set(result.stored) >= {f"id-{number:06d}" for number in range(400)}
        assert not result.doubled


@pytest.mark.longer
@pytest.mark.timeout(120 + 30 * MIXED_ROUNDS)
def test_nothing_is_lost_when_our_masters_and_java_masters_are_killed(common: Common) -> None:
    one = common.set_of("set-dying")
    two = {"minInSyncReplicas": 2}
    with one.ours("a", **two) as first, one.ours("b", **two) as second, one.java(**two) as java:
        rounds = Rounds(one.tmp, one.name, [first, second, java], [common.java.address])
        asyncio.run(rounds.play(MIXED_ROUNDS, common.namesrv))
    print(rounds.figures)


def sent_until_taken(address: str, number: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while asyncio.run(code_of(address, number)) != ResponseCode.SUCCESS:
        assert time.monotonic() < deadline
        time.sleep(0.1)


async def code_of(address: str, number: int) -> int:
    try:
        return (await send(address, range(number, number + 1)))[0]
    except MQError:
        return -1


def elect(one: Set, address: str) -> str:
    """Elect a broker with the command; returns the address of the new master."""
    data = one.command("getSyncStateSet", "-a", one.controller, "-b", one.name)[one.name]
    assert isinstance(data, dict)
    replicas = [*data["inSyncReplicas"], *data["notInSyncReplicas"]]
    (number,) = (each["brokerId"] for each in replicas if each["brokerAddress"] == address)
    words = ("electMaster", "-a", one.controller, "-c", CLUSTER, "-bn", one.name)
    found = one.mq(*words, "-b", str(number), "-n", one.namesrv)
    assert found.status == 0, found.err
    assert re.search(rf"#BrokerMasterAddr\t{re.escape(address)}\n", found.out)
    return one.until(lambda master, _, __: master == address)[0]


def test_a_member_removed_from_the_controller_joins_as_a_new_one(common: Common) -> None:
    one = common.set_of("set-cleaned")
    with one.ours("a") as first, one.ours("b") as second:
        master = one.in_sync(first.address, second.address)
        slave = second if master == first.address else first
        assert slave.stop() == 0
        one.in_sync(master)
        identity = slave.store / "brokerIdentity"
        number = identity.read_text().rpartition("#")[2]
        words = ("cleanBrokerMetadata", "-a", one.controller, "-c", CLUSTER, "-bn", one.name)
        cleaned = one.mq(*words, "-b", number, "-n", one.namesrv)
        assert cleaned.status == 0, cleaned.err
        identity.unlink()
        slave.start()
        one.in_sync(first.address, second.address)
        assert identity.read_text() == f"{CLUSTER}#{one.name}#3"


def test_roles_stay_while_the_controller_is_down_and_after_its_return(common: Common) -> None:
    one = common.set_of("set-alone")
    with one.ours("a") as first, one.ours("b") as second:
        master = one.in_sync(first.address, second.address)
        epoch = one.state()[2]
        common.java.kill()
        sent(master, range(100))
        slave = second if master == first.address else first
        caught_up(slave.address, master)
        common.java.start()
        one.until(lambda now, members, _: now == master and len(members) == 2)
        sent(master, range(100, 200))
        time.sleep(6)  # the controller checks for dead masters every five seconds
        assert one.state() == (master, {first.address, second.address}, epoch)
        sent(master, range(200, 300))
