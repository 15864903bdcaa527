import json

import pytest

from mq.daemons.standalone import Standalone
from mq.protocol.codes import RequestCode
from tests.cli.scripted import answer, daemon
from tests.cli.support import Mq

MASTER = {
    "master": True,
    "masterCommitLogMaxOffset": 900,
    "inSyncSlaveNums": 1,
    "haConnectionInfo": [
        {"addr": "10.0.0.2:4000", "slaveAckOffset": 800, "diff": 100, "inSync": True,
         "transferredByteInSecond": 2048, "transferFromWhere": 810},
    ],
}  # fmt: skip
REPLICA = {
    "master": False,
    "haClientRuntimeInfo": {"masterAddr": "10.0.0.1:10912", "maxOffset": 7,
                            "transferredByteInSecond": 512, "masterFlushOffset": 5},
}  # fmt: skip


def test_a_master_shows_its_replicas(mq: Mq) -> None:
    handlers = {RequestCode.GET_BROKER_HA_STATUS: answer(json.dumps(MASTER).encode())}
    with daemon(handlers) as address:
        plain = mq("haStatus", "-b", address).out
        found = mq("haStatus", "-b", address, "-o", "json").json["data"]
        rows = mq("haStatus", "-b", address, "-o", "csv").out.splitlines()
    assert plain.startswith(
        f"\n#MasterAddr\t{address}\n#MasterCommitLogMaxOffset\t900\n#SlaveNum\t1"
    )
    line = "10.0.0.2:4000                     800                           100             2.00"
    assert plain.splitlines()[-1] == f"{line}               OK              810"
    assert found[address]["haConnectionInfo"][0]["diff"] == 100
    assert rows[1] == f"{address},master,10.0.0.2:4000,800,100,2048,True"


def test_a_replica_shows_its_master(mq: Mq) -> None:
    handlers = {RequestCode.GET_BROKER_HA_STATUS: answer(json.dumps(REPLICA).encode())}
    with daemon(handlers) as address:
        plain = mq("haStatus", "-b", address).out
    assert plain.startswith("\n#MasterAddr\t10.0.0.1:10912\n#CommitLogMaxOffset\t7\n")
    assert "#TransferSpeed(KB/s)\t0.50\n" in plain
    assert plain.endswith("\n#MasterFlushOffset\t5\n")


COMMANDS = [
    ("resetMasterFlushOffset", "-b", "BROKER", "-o", "5"),
    ("getColdDataFlowCtrInfo", "-b", "BROKER"),
    ("updateColdDataFlowCtrGroupConfig", "-b", "BROKER", "-g", "G", "-v", "10"),
    ("removeColdDataFlowCtrGroupConfig", "-c", "DefaultCluster", "-g", "G"),
    ("setCommitLogReadAheadMode", "-b", "BROKER", "-m", "1"),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_broker_that_is_older_is_told_in_one_line(
    arguments: tuple[str, ...], cluster: Mq, standalone: Standalone
) -> None:
    address = standalone.broker.address
    finished = cluster(*(word.replace("BROKER", address) for word in arguments))
    assert (finished.status, finished.out) == (69, "")
    assert finished.err.splitlines()[0] == (
        f"mq {arguments[0]}: {address}: the broker is older than RocketMQ 5, "
        f"which {arguments[0]} needs"
    )


@pytest.mark.parametrize("broker", [("-b", "broker-a"), ("-c", "DefaultCluster")], ids=" ".join)
def test_a_broker_without_controllers_has_no_epochs(
    broker: tuple[str, str], cluster: Mq, standalone: Standalone
) -> None:
    finished = cluster("getBrokerEpoch", *broker)
    assert (finished.status, finished.out) == (69, "")
    assert finished.err.splitlines()[0].rstrip() == (
        f"mq getBrokerEpoch: {standalone.broker.address}: SYSTEM_ERROR: this request only for "
        "controllerMode"
    )


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("haStatus",), 64),
        (("haStatus", "-b", "127.0.0.1:1", "-i", "-1"), 64),
        (("getBrokerEpoch",), 64),
        (("getBrokerEpoch", "-b", "nobody"), 66),
        (("resetMasterFlushOffset", "-b", "127.0.0.1:1"), 64),
        (("resetMasterFlushOffset", "-b", "127.0.0.1:1", "-o", "far"), 64),
        (("getSyncStateSet", "-a", "127.0.0.1:1"), 64),
        (("getSyncStateSet", "-a", "127.0.0.1:1", "-b", "x"), 69),
        (("getColdDataFlowCtrInfo",), 64),
        (("setCommitLogReadAheadMode", "-b", "127.0.0.1:1", "-m", "2"), 64),
        (("updateColdDataFlowCtrGroupConfig", "-b", "127.0.0.1:1", "-g", "a=b", "-v", "1"), 64),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], status: int, cluster: Mq) -> None:
    finished = cluster(*arguments)
    assert (finished.status, finished.out) == (status, "")


def test_who_reads_cold_data_is_shown_with_times(mq: Mq) -> None:
    info = {
        "runtimeTable": {
            "G": {"coldAcc": 5, "createTimeMills": 1000, "lastColdReadTimeMills": 2000}
        },
        "configTable": {"H": 9},
        "cgColdReadThreshold": 3,
    }
    handlers = {RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: answer(json.dumps(info).encode())}
    with daemon(handlers) as address:
        plain = mq("getColdDataFlowCtrInfo", "-b", address).out
        rows = mq("getColdDataFlowCtrInfo", "-b", address, "-o", "csv").out.splitlines()
    head, _, page = plain.partition("\n")
    assert head == f" ============{address}============"
    state = json.loads(page)["runtimeTable"]["G"]
    assert list(state) == ["coldAcc", "lastColdReadTimeFormat", "createTimeFormat"]
    assert state["createTimeFormat"].startswith("1970-01-01 ")
    assert rows[1:] == [f"{address},G,3,5", f"{address},H,9,"]


def test_a_broker_without_limits_says_so(mq: Mq) -> None:
    with daemon({RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: answer()}) as address:
        plain = mq("getColdDataFlowCtrInfo", "-b", address).out
    assert plain.endswith(f"Broker[{address}] has no cold ctr table !\n")
