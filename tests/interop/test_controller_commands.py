"""Commands for replication, controllers and containers print what Java's mqadmin 5.5.0 prints."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.support import Finished, Mq
from tests.daemons.controller.etcd_server import EtcdServer
from tests.interop import peers
from tests.interop.jvm import require_java, write_properties
from tests.interop.ports import free_port
from tests.interop.tools import JavaTool, warm_tool
from tests.system.daemon import ControllerProcess

pytestmark = pytest.mark.java

SET = "set-a"
CLUSTER = ("-c", "DefaultCluster")


@dataclass
class Controlled:
    """A controller with a replica set of two brokers in sync."""

    java: JavaTool
    mq: Mq
    namesrv: str
    controller: str
    brokers: tuple[str, str]

    def ours(self, *arguments: str) -> Finished:
        return self.mq(*arguments, "-n", self.namesrv)

    def state(self) -> dict[int, bool]:
        """Whether each broker of the set is in sync."""
        found = self.ours("getSyncStateSet", "-a", self.controller, "-b", SET, "-o", "json")
        sets = found.json["data"].values() if found.status == 0 else []
        return {
            replica["brokerId"]: name == "inSyncReplicas"
            for one in sets
            for name in ("inSyncReplicas", "notInSyncReplicas")
            for replica in one[name]
        }

    def assert_same(self, *arguments: str) -> str:
        """Both tools print the same, except for current rates and times."""
        for _ in range(20):
            java = self.java(*arguments, "-n", self.namesrv)
            ours = self.ours(*arguments)
            if moment(ours.out) == moment(java):
                break
        assert moment(ours.out) == moment(java) != ""
        assert (ours.status, ours.err) == (0, "")
        return ours.out


def moment(text: str) -> str:
    text = re.sub(r"(#Last(Read|Write)Time\t).*", r"\1<time>", text)
    return re.sub(r"(?<=\d )\d+\.\d\d(?= +(OK|Fall Behind))|(?<=KB/s\)\t)\d+\.\d\d", "<rate>", text)


def our_controller(parts: ExitStack, tmp: Path) -> ControllerProcess:
    etcd = parts.enter_context(EtcdServer(tmp))
    settings = {"configStorePath": str(tmp / "controller.properties")}
    return parts.enter_context(ControllerProcess(tmp / "controller.log", etcd.url, settings))


@pytest.fixture(scope="module", params=[pytest.param("java", marks=pytest.mark.long), "ours"])
def controlled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Controlled]:
    """Java brokers, under Java's controller and under ours."""
    require_java()
    tmp = tmp_path_factory.mktemp("controlled")
    with ExitStack() as parts:
        namesrv = parts.enter_context(peers.JavaNameServer("5.5.0", tmp))
        controller: ControllerProcess | peers.JavaController
        if request.param == "ours":
            controller = our_controller(parts, tmp)
        else:
            controller = parts.enter_context(peers.JavaController("5.5.0", tmp))

        def start() -> str:
            settings = {
                "brokerName": SET,
                "enableControllerMode": "true",
                "controllerAddr": controller.address,
                "haListenPort": free_port(),
            }
            broker = peers.JavaBroker("5.5.0", tmp, namesrv.address, settings)
            return parts.enter_context(broker).address

        brokers = start(), start()
        java = warm_tool("5.5.0")
        both = Controlled(java, Mq(tmp / "config"), namesrv.address, controller.address, brokers)
        deadline = time.monotonic() + 60
        while list(both.state().values()) != [True, True]:
            assert time.monotonic() < deadline, both.state()
            time.sleep(0.2)
        yield both


def test_queries_of_a_controller_print_what_java_prints(controlled: Controlled) -> None:
    where = ("-a", controlled.controller)
    assert "#Peer:\t" in controlled.assert_same("getControllerMetaData", *where)
    assert "controllerDLegerGroup" in controlled.assert_same("getControllerConfig", *where)
    change = ("-k", "notifyBrokerRoleChanged", "-v", "true")
    controlled.assert_same("updateControllerConfig", *where, *change)
    settings = controlled.ours("getControllerConfig", *where, "-o", "json").json["data"]
    assert settings[controlled.controller]["notifyBrokerRoleChanged"] == "true"
    for members in (("-b", SET), CLUSTER):
        page = controlled.assert_same("getSyncStateSet", *where, *members)
        assert page.count("\nInSyncReplica:\t") == 2


def test_replication_queries_of_brokers_print_what_java_prints(controlled: Controlled) -> None:
    for members in (("-b", SET), CLUSTER):
        page = controlled.assert_same("getBrokerEpoch", *members)
        assert page.count("#Epoch: EpochEntry{epoch=1, startOffset=0, endOffset=") == 2
    pages = [controlled.assert_same("haStatus", "-b", address) for address in controlled.brokers]
    pages.append(controlled.assert_same("haStatus", *CLUSTER))
    # the master, which is queried twice
    assert sum("#SlaveNum\t1\n" in page for page in pages) == 2
    assert sum("#MasterFlushOffset\t" in page for page in pages) == 1
    replica = next(
        address
        for address, page in zip(controlled.brokers, pages, strict=False)
        if "#SlaveNum" not in page
    )
    controlled.assert_same("resetMasterFlushOffset", "-b", replica, "-o", "0")


def test_a_master_is_elected_and_broker_metadata_is_removed(controlled: Controlled) -> None:
    """Last, because it removes a broker from the set. A second election is refused.

    Java's electMaster cannot read the response: it elects, prints nothing and exits with 0.
    """
    where = ("-a", controlled.controller)
    rows = controlled.ours("getSyncStateSet", *where, "-b", SET, "-o", "json").json["data"][SET]
    (other,) = {1, 2} - {rows["masterBrokerId"]}
    elect = ("electMaster", *where, *CLUSTER, "-bn", SET, "-b", str(other))
    elected = controlled.ours(*elect)
    assert elected.status == 0, elected.err
    assert re.fullmatch(
        r"\n#ClusterName\tDefaultCluster\n#BrokerName\tset-a\n#BrokerMasterAddr\t127\.0\.0\.1:\d+"
        r"\n#MasterEpoch\t2\n#SyncStateSetEpoch\t\d+\n",
        elected.out,
    )
    again = controlled.ours(*elect)
    assert (again.status, again.out) == (69, "")
    assert "CONTROLLER_MASTER_STILL_EXIST" in again.err
    clean = ("cleanBrokerMetadata", *where, *CLUSTER, "-bn", SET, "-l", "-b")
    forgotten = controlled.ours(*clean, str(rows["masterBrokerId"]))
    assert forgotten.status == 0, forgotten.err
    assert forgotten.out == f"clear broker {SET} metadata from controller success! \n"


@pytest.mark.long
def test_brokers_are_added_to_and_removed_from_a_container_as_by_java(tmp_path: Path) -> None:
    mq = Mq(tmp_path / "config")
    with (
        peers.JavaNameServer("5.5.0", tmp_path) as namesrv,
        peers.JavaContainer("5.5.0", tmp_path, namesrv.address) as container,
    ):
        java = warm_tool("5.5.0")
        where = ("-c", container.address, "-b")

        def settings(name: str) -> str:
            return str(broker_file(tmp_path, name, namesrv.address))

        added = mq("addBroker", *where, settings("in-a"), "--timeout", "60")
        assert (added.status, added.err) == (0, "")
        twice = mq("addBroker", *where, settings("in-a"))
        assert (twice.status, twice.out) == (69, "")
        assert "already" in twice.err
        removed = mq("removeBroker", *where, "DefaultCluster:in-a:0", "--timeout", "60")
        assert (removed.status, removed.err) == (0, "")
        gone = mq("removeBroker", *where, "DefaultCluster:in-a:0")
        assert (gone.status, gone.out) == (66, "")
        # Java waits for five seconds, and prints nothing if the container takes longer.
        for name in ("in-b", "in-c", "in-d", "in-e"):
            pages = (
                java("addBroker", *where, settings(name)),
                java("removeBroker", *where, f"DefaultCluster:{name}:0"),
            )
            if all(pages):
                break
        assert pages == (added.out, removed.out)


def broker_file(tmp: Path, name: str, namesrv: str) -> Path:
    """The settings of a broker in a container."""
    path = tmp / f"{name}.conf"
    settings = {
        "brokerName": name,
        "brokerClusterName": "DefaultCluster",
        "brokerId": 0,
        "brokerIP1": "127.0.0.1",
        "listenPort": free_port(),
        "haListenPort": free_port(),
        "namesrvAddr": namesrv,
        "storePathRootDir": tmp / name,
        "storePathCommitLog": tmp / name / "commitlog",
        "mappedFileSizeCommitLog": 64 << 20,
        **peers.CALM_5,
    }
    write_properties(path, settings)
    return path
