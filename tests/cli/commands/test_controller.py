import json
from collections.abc import Iterator

import pytest

from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from tests.cli.scripted import answer, daemon
from tests.cli.support import Mq

REPLICAS = {
    "replicasInfoTable": {
        "set-a": {
            "masterBrokerId": 1,
            "masterAddress": "10.0.0.1:10911",
            "masterEpoch": 4,
            "syncStateSetEpoch": 7,
            "inSyncReplicas": [
                {"brokerName": "set-a", "brokerId": 1, "brokerAddress": "10.0.0.1:10911",
                 "alive": True},
            ],
            "notInSyncReplicas": [
                {"brokerName": "set-a", "brokerId": 2, "brokerAddress": "10.0.0.2:10911",
                 "alive": False},
            ],
        }
    }
}  # fmt: skip
ELECTED = {"brokerMemberGroup": {"cluster": "c", "brokerName": "set-a",
                                 "brokerAddrs": {"0": "10.0.0.2:10911"}}}  # fmt: skip


@pytest.fixture
def asked() -> list[Command]:
    return []


@pytest.fixture
def controller(asked: list[Command]) -> Iterator[str]:
    """A controller that is its own leader."""
    own: list[str] = []

    def metadata(request: Command, channel: Channel) -> Command:
        fields = {"group": "g", "controllerLeaderId": "n0", "controllerLeaderAddress": own[0]}
        return request.reply(0, {**fields, "isLeader": "true", "peers": "n0:1;n1:2"})

    def keeping(handler: Handler) -> Handler:
        def handle(request: Command, channel: Channel) -> object:
            asked.append(request)
            return handler(request, channel)

        return handle  # type: ignore[return-value]

    elected = {"masterBrokerId": "2", "masterAddress": "10.0.0.2:10911", "masterEpoch": "5",
               "syncStateSetEpoch": "8"}  # fmt: skip
    handlers = {
        RequestCode.CONTROLLER_GET_METADATA_INFO: metadata,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: answer(json.dumps(REPLICAS).encode()),
        RequestCode.CONTROLLER_ELECT_MASTER: answer(json.dumps(ELECTED).encode(), elected),
        RequestCode.GET_CONTROLLER_CONFIG: answer(b"a=1\nb=2\n"),
        RequestCode.UPDATE_CONTROLLER_CONFIG: answer(),
        RequestCode.CLEAN_BROKER_DATA: answer(),
        RequestCode.ADD_BROKER: answer(),
        RequestCode.REMOVE_BROKER: answer(),
    }
    with daemon({code: keeping(handler) for code, handler in handlers.items()}) as address:
        own.append(address)
        yield address


def test_the_controllers_are_shown(mq: Mq, controller: str) -> None:
    assert mq("getControllerMetaData", "-a", controller).out == (
        f"\n#ControllerGroup\tg\n#ControllerLeaderId\tn0\n#ControllerLeaderAddress\t{controller}"
        "\n#Peer:\tn0:1\n#Peer:\tn1:2\n"
    )
    (row,) = mq("getControllerMetaData", "-a", controller, "-o", "json").json["data"]
    assert row["peers"] == "n0:1;n1:2"


def test_settings_of_controllers_are_shown_and_changed(
    mq: Mq, controller: str, asked: list[Command]
) -> None:
    shown = mq("getControllerConfig", "-a", controller).out
    assert shown == f"============{controller}============\n" + "".join(
        f"{key:<50}=  {value}\n" for key, value in (("a", 1), ("b", 2))
    )
    found = mq("getControllerConfig", "-a", controller, "-o", "json").json["data"]
    assert found == {controller: {"a": "1", "b": "2"}}
    changed = mq("updateControllerConfig", "-a", controller, "-k", "a", "-v", "3")
    assert changed.out == f"update controller config success![{controller}]\na : 3\n"
    assert bytes(asked[-1].body) == b"a=3\n"


def test_one_of_several_controllers_that_is_away_is_reported(mq: Mq, controller: str) -> None:
    shown = mq("getControllerConfig", "-a", f"{controller};127.0.0.1:1")
    assert shown.status == 1
    assert shown.out.startswith(f"============{controller}============\n")
    assert "127.0.0.1:1" in shown.err


def test_the_replicas_of_a_set_are_shown(mq: Mq, controller: str, asked: list[Command]) -> None:
    where = ("getSyncStateSet", "-a", f"{controller};10.0.0.9:1", "-b", "set-a")
    plain = mq(*where).out
    assert plain == (
        "\n#brokerName\tset-a\n#MasterBrokerId\t1\n#MasterAddr\t10.0.0.1:10911\n#MasterEpoch\t4\n"
        "#SyncStateSetEpoch\t7\n#SyncStateSetNums\t1\n"
        "\nInSyncReplica:\tReplicaIdentity{brokerName='set-a', brokerId=1, "
        "brokerAddress='10.0.0.1:10911', alive=true}\n"
        "\nNotInSyncReplica:\tReplicaIdentity{brokerName='set-a', brokerId=2, "
        "brokerAddress='10.0.0.2:10911', alive=false}\n"
    )
    assert bytes(asked[-1].body) == b'["set-a"]'
    assert mq(*where, "-o", "csv").out.splitlines()[1:] == [
        "set-a,1,10.0.0.1:10911,True,True,True",
        "set-a,2,10.0.0.2:10911,False,False,False",
    ]


def test_a_master_is_elected(mq: Mq, controller: str, asked: list[Command]) -> None:
    elect = ("electMaster", "-a", controller, "-b", "2", "-bn", "set-a", "-c", "c")
    assert mq(*elect).out == (
        "\n#ClusterName\tc\n#BrokerName\tset-a\n#BrokerMasterAddr\t10.0.0.2:10911"
        "\n#MasterEpoch\t5\n#SyncStateSetEpoch\t8\n"
    )
    fields = asked[-1].fields
    assert (fields["designateElect"], fields["brokerId"], fields["clusterName"]) == (
        "true",
        "2",
        "c",
    )
    (row,) = mq(*elect, "-o", "json").json["data"]
    assert (row["brokerAddr"], row["masterEpoch"]) == ("10.0.0.2:10911", 5)


def test_brokers_are_forgotten(mq: Mq, controller: str, asked: list[Command]) -> None:
    clean = ("cleanBrokerMetadata", "-a", controller, "-bn", "set-a")
    assert mq(*clean).status == 64  # without -l the cluster is required
    assert mq(*clean, "-l", "-b", "1;x").status == 64
    assert not asked
    done = mq(*clean, "-c", "c", "-b", "1;2")
    assert done.out == "clear broker set-a metadata from controller success! \n"
    fields = asked[-1].fields
    assert (fields["brokerControllerIdsToClean"], fields["isCleanLivingBroker"]) == ("1;2", "false")


def test_brokers_of_a_container_are_started_and_stopped(
    mq: Mq, controller: str, asked: list[Command]
) -> None:
    added = mq("addBroker", "-c", controller, "-b", "/etc/broker.conf")
    assert added.out == f"add broker to {controller} success\n"
    assert asked[-1].fields["configPath"] == "/etc/broker.conf"
    removed = mq("removeBroker", "-c", controller, "-b", "DefaultCluster:broker-a:0")
    assert removed.out == f"remove broker from {controller} success\n"
    fields = asked[-1].fields
    names = fields["brokerClusterName"], fields["brokerName"], fields["brokerId"]
    assert names == ("DefaultCluster", "broker-a", "0")
    for identity in ("broker-a:0", "c:b:-1", "c:b:x", ":b:0"):
        refused = mq("removeBroker", "-c", controller, "-b", identity)
        assert (refused.status, refused.out) == (64, "")


def test_a_controller_that_is_not_there_is_unavailable(mq: Mq) -> None:
    for command in ("getControllerMetaData", "getControllerConfig"):
        finished = mq(command, "-a", "127.0.0.1:1")
        assert (finished.status, finished.out) == (69, "")
