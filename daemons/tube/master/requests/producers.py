"""Requests 1 to 3: producers."""

import logging
from typing import Any

from mq.daemons.tube.master.certificates import Client
from mq.daemons.tube.master.core import Core, Peer
from mq.daemons.tube.master.groups import Refused
from mq.daemons.tube.master.liveness import Unknown
from mq.daemons.tube.master.requests.checks import authorized, legal, producer_topics
from mq.protocol.tube.codes import UNDEFINED, Code
from mq.protocol.tube.messages import (
    ApprovedClientConfig,
    CloseRequestP2M,
    CloseResponseM2P,
    HeartRequestP2M,
    HeartResponseM2P,
    RegisterRequestP2M,
    RegisterResponseM2P,
)
from mq.protocol.tube.names import check_client_id, check_host

log = logging.getLogger(__name__)

OK: dict[str, Any] = {"success": True, "errCode": int(Code.SUCCESS), "errMsg": "OK!"}


def register(core: Core, request: RegisterRequestP2M, peer: Peer) -> RegisterResponseM2P:
    """Register a producer: return the brokers; topics come with its heartbeats."""
    producer, topics, client = _checked(core, request, peer, registers=True)
    core.producers.book(producer, topics)
    core.producer_beats.begin(producer, core.now())
    log.info("producer %s registers from %s", producer, peer.address)
    answer = RegisterResponseM2P(
        **OK, brokerCheckSum=core.brokers.list_id, authorizedInfo=authorized(core, client)
    )
    answer.brokerInfos.extend(core.brokers.infos(over_tls=peer.over_tls))
    _add_config(core, request, answer)
    return answer


def heartbeat(core: Core, request: HeartRequestP2M, peer: Peer) -> HeartResponseM2P:
    """Process a producer's heartbeat with its topics."""
    producer, topics, client = _checked(core, request, peer)
    try:
        core.producer_beats.renew(producer, core.now())
    except Unknown as error:
        raise Refused(Code.HB_NO_NODE, str(error)) from None
    core.producers.book(producer, topics)
    brokers, catalog = core.brokers, core.catalog
    answer = HeartResponseM2P(
        **OK, brokerCheckSum=brokers.list_id, authorizedInfo=authorized(core, client)
    )
    if request.brokerCheckSum != brokers.list_id:
        answer.brokerInfos.extend(brokers.infos(over_tls=peer.over_tls))
    usual = catalog.cluster.max_msg_bytes
    sizes = {}
    for topic in sorted(topics):
        control = catalog.topic_control(topic)
        own = UNDEFINED if control is None else control.max_msg_size_in_mb
        sizes[topic] = usual if own == UNDEFINED else own * 1024 * 1024
    answer.topicInfos.extend(brokers.views.for_producers(sizes))
    _add_config(core, request, answer)
    return answer


def close(core: Core, request: CloseRequestP2M, peer: Peer) -> CloseResponseM2P:
    """Remove a producer."""
    core.certificates.check_client(request.authInfo, request.clientId, peer.host, produces=True)
    producer = legal(check_client_id, request.clientId)
    core.check_active(producer)
    core.producers.remove(producer)
    core.producer_beats.end(producer)
    log.info("producer %s closes", producer)
    return CloseResponseM2P(**OK)


def _checked(
    core: Core, request: Any, peer: Peer, *, registers: bool = False
) -> tuple[str, frozenset[str], Client]:
    """Return the checked producer. Raises Refused, and ServiceFailure from a standby."""
    client = core.certificates.check_client(
        request.authInfo, request.clientId, peer.host, produces=True, registers=registers
    )
    producer = legal(check_client_id, request.clientId)
    legal(check_host, request.hostName)
    topics = producer_topics(request.topicList)
    core.check_active(producer)
    return producer, topics, client


def _add_config(core: Core, request: Any, answer: Any) -> None:
    """Add the maximum message size, if the producer's id differs (buildApprovedClientConfig)."""
    cluster = core.catalog.cluster
    config = ApprovedClientConfig(configId=cluster.audit.serial)
    if request.appdConfig.configId != cluster.audit.serial or not request.HasField("appdConfig"):
        config.maxMsgSize = cluster.max_msg_bytes
    answer.appdConfig.CopyFrom(config)
