"""Every command of mqadmin is there, under each of its names."""

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


def test_there_are_as_many_as_the_readme_says() -> None:
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
    found = re.search(r"its (\d+) commands of\s4\.9\.8 and the (\d+) that 5\.x added", readme)
    assert found is not None
    assert (len(OF_4_9_8.split()), len(OF_5_ALONE.split())) == (int(found[1]), int(found[2]))
