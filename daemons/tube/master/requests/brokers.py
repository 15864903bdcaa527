"""Requests 7 to 9: brokers."""

import logging
from collections.abc import Iterable
from itertools import islice
from typing import Any

from mq.daemons.tube.master.broker_assignment import removed
from mq.daemons.tube.master.broker_run import BrokerRun, Report
from mq.daemons.tube.master.brokers import unknown
from mq.daemons.tube.master.catalog import ChangeRefused
from mq.daemons.tube.master.core import Core, Peer
from mq.daemons.tube.master.groups import Refused
from mq.daemons.tube.master.liveness import Unknown
from mq.daemons.tube.master.records import TopicDeploy
from mq.daemons.tube.master.requests.checks import legal
from mq.daemons.tube.master.requests.producers import OK
from mq.daemons.tube.master.storage import MOST_CHANGES, Changes
from mq.protocol.tube.codes import UNDEFINED, Code
from mq.protocol.tube.messages import (
    CloseRequestB2M,
    CloseResponseM2B,
    ClusterConfig,
    EnableBrokerFunInfo,
    HeartRequestB2M,
    HeartResponseM2B,
    MasterBrokerAuthorizedInfo,
    RegisterRequestB2M,
    RegisterResponseM2B,
)
from mq.protocol.tube.names import check_client_id

log = logging.getLogger(__name__)


def forget_removed(core: Core, broker_id: int, topics: Iterable[str]) -> None:
    """Delete the records of these topics if the broker was to remove them.

    It starts a change and does not wait for it: if it fails, the broker reports the topics
    again."""
    found = (topic for topic in topics if _is_to_go(core, broker_id, topic))
    gone = list(islice(found, MOST_CHANGES))  # the broker reports the others again
    if not gone:
        return

    def step() -> Changes:
        return {
            (TopicDeploy.kind, f"{broker_id}-{topic}"): None
            for topic in gone
            if _is_to_go(core, broker_id, topic)
        }

    async def work() -> None:
        try:
            await core.catalog.change(step)
        except ChangeRefused as error:
            log.warning("topics that broker %d has removed are kept: %s", broker_id, error)

    core.spawn(work, "removed topics")


def _is_to_go(core: Core, broker_id: int, topic: str) -> bool:
    deploy = core.catalog.deploy(broker_id, topic)
    return deploy is not None and deploy.status.is_removed


def register(core: Core, request: RegisterRequestB2M, peer: Peer) -> RegisterResponseM2B:
    """Register a broker: send its configured settings, and the required checks of clients."""
    core.certificates.check_broker(request.authInfo, peer.host)
    client_id = legal(check_client_id, request.clientId)
    core.check_active(client_id)
    run = core.brokers.register(
        client_id,
        Report(
            request.brokerOnline,
            request.curBrokerConfId,
            request.confCheckSumId,
            request.brokerDefaultConfInfo,
            tuple(request.brokerTopicSetConfInfo),
        ),
        tls_port=request.tlsPort if request.HasField("tlsPort") else None,
        offers_tls=request.enableTls,
        over_tls=peer.over_tls,
        now=core.now(),
    )
    core.broker_beats.begin(run.broker.broker_id, core.now())
    config = core.config
    answer = RegisterResponseM2B(
        **OK,
        stopRead=False,
        stopWrite=False,
        takeConfInfo=False,
        ssdStoreId=UNDEFINED,
        enableBrokerInfo=EnableBrokerFunInfo(
            enableConsumeAuthenticate=config.start_consume_authenticate,
            enableConsumeAuthorize=config.start_consume_authorize,
            enableProduceAuthenticate=config.start_produce_authenticate,
            enableProduceAuthorize=config.start_produce_authorize,
            enableVisitTokenCheck=config.start_visit_token_check,
        ),
    )
    _add_settings(core, run, answer)
    _add_shared(core, request, answer, run.broker.broker_id)
    return answer


def heartbeat(core: Core, request: HeartRequestB2M, peer: Peer) -> HeartResponseM2B:
    """Process a broker's heartbeat, with its topics and removed topics if reported."""
    core.certificates.check_broker(request.authInfo, peer.host)
    broker_id = _broker_id(request.brokerId)
    core.check_active(str(broker_id))
    if broker_id not in core.brokers.runs:
        raise unknown(broker_id)
    try:
        core.broker_beats.renew(broker_id, core.now())
    except Unknown as error:
        raise Refused(Code.HB_NO_NODE, str(error)) from None
    run = core.brokers.heartbeat(
        broker_id,
        Report(
            request.brokerOnline,
            request.curBrokerConfId,
            request.confCheckSumId,
            request.brokerDefaultConfInfo if request.takeConfInfo else None,
            tuple(request.brokerTopicSetConfInfo),
        ),
        core.now(),
    )
    core.brokers.book_status(broker_id, request.readStatusRpt, request.writeStatusRpt)
    if request.takeRemovedTopicInfo:
        forget_removed(core, broker_id, request.removedTopicsInfo)
    answer = HeartResponseM2B(
        **OK,
        stopRead=False,
        stopWrite=False,
        needReportData=False,
        takeConfInfo=False,
        takeRemoveTopicInfo=True,
        curBrokerConfId=UNDEFINED,
        confCheckSumId=UNDEFINED,
        ssdStoreId=UNDEFINED,
    )
    _add_settings(core, run, answer)
    answer.needReportData = answer.takeConfInfo
    answer.removeTopicConfInfo.extend(removed(core.catalog, broker_id))
    _add_shared(core, request, answer, broker_id)
    return answer


def close(core: Core, request: CloseRequestB2M, peer: Peer) -> CloseResponseM2B:
    """Unregister a broker."""
    core.certificates.check_broker(request.authInfo, peer.host)
    broker_id = _broker_id(request.brokerId)
    core.check_active(str(broker_id))
    if not core.brokers.remove(broker_id):
        raise unknown(broker_id)
    core.broker_beats.end(broker_id)
    log.info("broker %d closes", broker_id)
    return CloseResponseM2B(**OK)


def _broker_id(text: str) -> int:
    text = text.strip()
    if not text:
        raise Refused(Code.BAD_REQUEST, "Request miss necessary brokerId data")
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 1 << 31):
        raise Refused(
            Code.BAD_REQUEST, f'Parse brokerId to int failure For input string: "{text[:100]}"'
        )
    return int(text)


def _add_settings(core: Core, run: BrokerRun, answer: Any) -> None:
    """Add the configured settings of a broker, if it has others."""
    answer.curBrokerConfId, answer.confCheckSumId = run.config_id, run.checksum
    wanted = run.to_send()
    if wanted is not None:
        answer.takeConfInfo = True
        answer.brokerDefaultConfInfo = wanted.defaults
        answer.brokerTopicSetConfInfo.extend(wanted.topics)


def _add_shared(core: Core, request: Any, answer: Any, broker_id: int) -> None:
    """Add the access data, the limits of the cluster, and the maximum size of a message."""
    grants = core.grants.for_broker(broker_id, request.authInfo.authorizedToken)
    answer.brokerAuthorizedInfo.CopyFrom(
        MasterBrokerAuthorizedInfo(
            visitAuthorizedToken=core.tokens.for_brokers, authAuthorizedToken=str(grants)
        )
    )
    cluster = core.catalog.cluster
    if request.HasField("clsConfig"):
        config = ClusterConfig(configId=cluster.audit.serial)
        if request.clsConfig.configId != cluster.audit.serial:
            config.maxMsgSize = cluster.max_msg_bytes
        answer.clsConfig.CopyFrom(config)
    if request.HasField("flowCheckId"):
        answer.qryPriorityId = cluster.qry_priority
        answer.flowCheckId = cluster.audit.serial
        if request.flowCheckId != cluster.audit.serial:
            answer.flowControlInfo = cluster.flow_rules if cluster.flow_enabled else " "
    elif isinstance(answer, HeartResponseM2B):
        answer.flowCheckId = answer.qryPriorityId = UNDEFINED
