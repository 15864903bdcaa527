"""Every command of mqadmin exists, with each of its names."""

import re
from pathlib import Path

import pytest

from mq.cli import catalog

OF_4_9_8 = """
    clusterAclConfigVersion deleteAclConfig updateAclConfig updateGlobalWhiteAddr
    brokerConsumeStats brokerStatus cleanExpiredCQ cleanUnusedTopic deleteExpiredCommitLog
    getBrokerConfig sendMsgStatus updateBrokerConfig clusterList clusterRT consumerConnection
    producerConnection consumer consumerProgress consumerStatus deleteSubGroup
    getConsumerConfig startMonitoring updateSubGroup exportConfigs exportMetadata
    exportMetrics DecodeMessageId checkMsgSendRT consumeMessage printMsg printMsgByQueue
    queryMsgById queryMsgByKey queryMsgByOffset queryMsgByUniqueKey queryMsgTraceById
    sendMessage addWritePerm deleteKvConfig getNamesrvConfig updateKvConfig
    updateNamesrvConfig wipeWritePerm cloneGroupOffset getConsumerStatus resetOffsetByTime
    resetOffsetByTimeOld skipAccumulatedMessage producer queryCq statsAll allocateMQ
    deleteTopic topicClusterList topicList topicRoute topicStatus updateOrderConf updateTopic
    updateTopicPerm
"""
OF_5_ALONE = """
    copyAcl copyUser createAcl createUser deleteAcl deleteUser getAcl getUser listAcl listUser
    updateAcl updateUser getBrokerEpoch getColdDataFlowCtrInfo
    removeColdDataFlowCtrGroupConfig resetMasterFlushOffset setCommitLogReadAheadMode
    updateColdDataFlowCtrGroupConfig setConsumeMode updateSubGroupList addBroker removeBroker
    cleanBrokerMetadata electMaster getControllerConfig getControllerMetaData
    updateControllerConfig exportMetadataInRocksDB exportPopRecord getSyncStateSet haStatus
    dumpCompactionLog rocksDBConfigToJson checkRocksdbCqWriteProgress remappingStaticTopic
    updateStaticTopic updateTopicList
"""
SECOND_NAMES = "deleteAccessConfig QueryMsgTraceById"


@pytest.mark.parametrize("name", OF_4_9_8.split() + OF_5_ALONE.split())
def test_a_command_of_mqadmin_is_found_by_its_name(name: str) -> None:
    found = catalog.find([name])
    assert found is not None
    assert found[1] == name


@pytest.mark.parametrize("name", SECOND_NAMES.split())
def test_a_command_of_mqadmin_is_found_by_its_second_name(name: str) -> None:
    assert catalog.find([name]) is not None


@pytest.mark.parametrize(("alias", "name"), catalog.ALIASES.items())
def test_a_second_name_runs_a_command_that_there_is(alias: str, name: str) -> None:
    found = catalog.find([*alias.split(), "more"])
    assert found is not None
    assert found[1:] == (name, len(alias.split()))
    assert catalog.called(alias.split()) == alias
    assert name not in catalog.ALIASES


def test_no_second_name_is_a_command_of_its_own() -> None:
    names = {catalog.key_of(name) for names in catalog.GROUPS.values() for name in names}
    assert names.isdisjoint(map(catalog.key_of, catalog.ALIASES))


@pytest.mark.parametrize(
    "word", ["broker", "console", "controller", "consumer", "namesrv", "producer"]
)
def test_a_command_that_begins_names_is_itself_with_options(word: str) -> None:
    for words in ([word], [word, "-x"], [word, "--help"]):
        found = catalog.find(words)
        assert found is not None
        assert found[1:] == (word, 1)


def test_commands_that_messages_and_pages_name_are_there() -> None:
    """A hint that names a command which there is not helps nobody."""
    root = Path(__file__).resolve().parents[2]
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    for folder in ("cli", "client", "daemons", "pipeline", "systemd", "mq"):
        pages += (root / folder).rglob("*.py")
    named = re.compile(r"\bmq ((?:[a-z]+ )?[a-z]+(?:[A-Z][a-z]+)+)\b|see: mq ([a-z]+ [a-z]+)\b")
    unknown = set()
    for page in pages:
        text = page.read_text("utf-8")
        for words in filter(None, (word for found in named.findall(text) for word in found)):
            if not _is_command(words) and f"no command {words!r}" not in text:
                unknown.add(f"{page.relative_to(root)}: mq {words}")
    assert unknown == set()


def _is_command(words: str) -> bool:
    if catalog.find(words.split()) is None:
        return False
    return catalog.called(words.split()) in (words, words.split()[0])


def test_a_word_with_a_colon_is_no_second_half_of_a_name() -> None:
    assert catalog.find(["producer", "10.0.0.1:10911"]) == ("producer", "producer", 1)
    assert catalog.find(["producer", "list"]) == ("producer", "producer", 2)
