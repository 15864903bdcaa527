import asyncio
from pathlib import Path

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.groups.group_table import Groups
from mq.protocol.bodies import SubscriptionGroupConfig
from tests.daemons.broker.settings import broker_settings

BUILT_IN = {
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
}


def test_a_new_broker_has_the_built_in_groups(tmp_path: Path) -> None:
    assert set(Groups(tmp_path / "g.json", BrokerSettings()).table) == BUILT_IN


def test_an_unknown_group_is_created_with_defaults_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "subscriptionGroup.json"
    group = Groups(path, BrokerSettings()).find("g")
    assert group is not None and (group.retry_max_times, group.retry_queue_nums) == (16, 1)
    assert (
        '\t\t"g":{\n\t\t\t"brokerId":0,\n\t\t\t"consumeBroadcastEnable":true,\n'
        '\t\t\t"consumeEnable":true,\n\t\t\t"consumeFromMinEnable":true,\n'
        '\t\t\t"groupName":"g",\n\t\t\t"notifyConsumerIdsChangedEnable":true,\n'
        '\t\t\t"retryMaxTimes":16,\n\t\t\t"retryQueueNums":1,\n'
        '\t\t\t"whichBrokerWhenConsumeSlowly":1\n\t\t}'
    ) in path.read_text()
    assert "g" in Groups(path, BrokerSettings()).table


def test_an_unknown_group_is_refused_if_creation_is_disabled(tmp_path: Path) -> None:
    settings = broker_settings(auto_create_subscription_group=False)
    groups = Groups(tmp_path / "g.json", settings)
    assert groups.find("g") is None
    assert groups.find("CID_RMQ_SYS_TRANS") is not None


def test_a_group_with_an_illegal_name_is_never_created(tmp_path: Path) -> None:
    groups = Groups(tmp_path / "g.json", BrokerSettings())
    assert groups.find("../x") is None
    assert groups.find("a@b") is None
    assert set(groups.table) == BUILT_IN


def test_changes_and_deletions_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    groups = Groups(path, BrokerSettings())
    asyncio.run(groups.update(SubscriptionGroupConfig(group_name="a", retry_max_times=3)))
    asyncio.run(groups.update(SubscriptionGroupConfig(group_name="b")))
    groups.disable_consume("b")
    assert asyncio.run(groups.delete("TOOLS_CONSUMER"))
    assert not asyncio.run(groups.delete("none"))
    again = Groups(path, BrokerSettings())
    assert again.table["a"].retry_max_times == 3
    assert not again.table["b"].consume_enable
    assert again.data_version == groups.data_version
    assert "TOOLS_CONSUMER" in again.table  # built in: it is restored, as with Java
