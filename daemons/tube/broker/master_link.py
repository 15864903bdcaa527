"""A broker's session with its master: register, heartbeats, close (methods 7, 8 and 9).

The master defines the topics, the checks of clients, and whether sends and gets are served; the
broker reports its state. While no master answers, the broker continues with the last settings. Of
several masters it uses the one that answered last; one that is no longer active answers with an
exception, and the next is tried.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from mq.client.errors import MQError
from mq.client.machine import clock, random_ids
from mq.client.tube.connection import TubeConnection
from mq.daemons.broker.store import StoreLoadError
from mq.daemons.tube.broker.access import RequestError
from mq.daemons.tube.broker.config import BrokerConfig
from mq.daemons.tube.broker.serving import Serving
from mq.daemons.tube.broker.topics import STATUS_HARD_REMOVE, Topic
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.tube.codes import UNDEFINED, Code, Method
from mq.protocol.tube.errors import MalformedText, RemoteFailure
from mq.protocol.tube.flow_control import FlowControl
from mq.protocol.tube.messages import (
    AuthenticateInfo,
    CloseRequestB2M,
    ClusterConfig,
    HeartRequestB2M,
    HeartResponseM2B,
    MasterBrokerAuthorizedInfo,
    MasterCertificateInfo,
    RegisterRequestB2M,
    RegisterResponseM2B,
    parse,
)
from mq.protocol.tube.settings import checksum
from mq.protocol.tube.signature import MAX_NONCE, sign
from mq.protocol.tube.strings import Address

log = logging.getLogger(__name__)

# The release that brokers report; masters show it.
VERSION = "2.5.0"

_TRIES = 5  # to register, before a start continues without a master
_BETWEEN_TRIES = 0.2
_FORGOTTEN = 3.0  # after a failure the next heartbeat is sooner, s


class Unanswered(Exception):
    """No master has answered. The text has the error of each one."""


class MasterLink:
    """The session. ``opened`` opens the stores of topics before they are used."""

    def __init__(
        self,
        config: BrokerConfig,
        serving: Serving,
        port: int,
        tls_port: int | None,
        opened: Callable[[list[Topic]], Awaitable[None]],
        removed: Callable[[Topic], Awaitable[None]],
    ) -> None:
        self._config = config
        self._serving = serving
        self._masters = list(config.masters())
        self._client_id = f"{config.number}:{config.host_name}:{port}:{VERSION}"
        self._tls_port = tls_port
        self._opened = opened
        self._removed = removed
        serving.access.is_kept = lambda: self.is_answered
        self._connection: TubeConnection | None = None
        self._needs_report = False
        self._removing: asyncio.Task[None] | None = None
        self.is_registered = False
        self.is_answered = False  # whether the last heartbeat was answered
        self.is_online = False
        self.registrations = 0
        self.failures = 0  # heartbeats that no master answered
        self.last_error = ""

    @property
    def master(self) -> str:
        """The address of the answering master, "" if none answers."""
        return self._connection.address if self.is_registered and self._connection else ""

    async def start(self) -> None:
        """Register, with a few attempts. Raises StoreLoadError and OSError for stores that cannot
        be
        opened; if no master answers, that is logged, and `run` tries again."""
        for attempt in range(_TRIES):
            if attempt:
                await asyncio.sleep(_BETWEEN_TRIES)
            if await self._register(is_start=True):
                return
        known = (
            "continues with the previous topics" if self._serving.topics.is_known else "has none"
        )
        log.error("no master has registered this broker (%s): it %s", self.last_error, known)

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        period = self._config.heartbeat_period_ms / 1000
        while True:
            await asyncio.sleep(period if self.is_registered else min(period, _FORGOTTEN))
            await self.beat()

    async def beat(self) -> None:
        """Send a heartbeat, or register if not registered."""
        if not self.is_registered:
            await self._register()
            return
        try:
            answer = await self._call(
                Method.BROKER_HEARTBEAT_B2M, self._heartbeat().SerializeToString(), HeartResponseM2B
            )
        except Unanswered as error:
            self._lost(str(error))
            return
        if answer.success:
            await self._take_heartbeat(answer)
        elif answer.errCode == Code.HB_NO_NODE:
            log.warning("the master no longer knows this broker: registering again")
            self.is_registered = False
            await self._register()
        else:
            self._lost(f"{answer.errCode}: {answer.errMsg}")

    async def close(self) -> None:
        """Unregister the broker, and close the connection. Idempotent."""
        if self._removing is not None:
            self._removing.cancel()
            await asyncio.gather(self._removing, return_exceptions=True)
        if self.is_registered:
            self.is_registered = False
            request = CloseRequestB2M(brokerId=str(self._config.number))
            self._sign(request)
            try:
                if self._connection is not None:
                    await self._connection.call(
                        Method.BROKER_CLOSE_B2M, request.SerializeToString(), 2.0
                    )
            except (MQError, RemoteProtocolError, RemoteFailure) as error:
                log.info("could not unregister at the master: %s", error)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # asking -----------------------------------------------------------------------------------

    async def _call(self, method: Method, body: bytes, kind: Any) -> Any:
        """Return the answer of the first master that answers. Raises Unanswered."""
        said = []
        for _ in range(len(self._masters)):
            address = self._masters[0]
            try:
                connection = self._connected(address)
                timeout = self._config.rpc_read_timeout_ms / 1000
                return parse(kind, await connection.call(method, body, timeout))
            except (MQError, RemoteProtocolError, RemoteFailure) as error:
                said.append(f"{address}: {error}")
                self._drop()
                self._masters.append(self._masters.pop(0))
        raise Unanswered("; ".join(said))

    def _connected(self, address: Address) -> TubeConnection:
        connection = self._connection
        if connection is not None and (connection.has_ended or connection.address != str(address)):
            self._drop()
            connection = None
        if connection is None:
            connection = self._connection = TubeConnection(str(address))
        return connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _lost(self, why: str) -> None:
        self.failures += 1
        self.is_answered = False
        self.last_error = why
        log.warning("no heartbeat: %s", why, extra={"failure": "heartbeats to masters"})

    # registering ------------------------------------------------------------------------------

    async def _register(self, *, is_start: bool = False) -> bool:
        try:
            answer: RegisterResponseM2B = await self._call(
                Method.BROKER_REGISTER_B2M, self._registration().SerializeToString(),
                RegisterResponseM2B,
            )  # fmt: skip
        except Unanswered as error:
            self._lost(str(error))
            return False
        if not answer.success:
            self._lost(f"{answer.errCode}: {answer.errMsg}")
            return False
        serving = self._serving
        self._take_state(answer)
        if serving.access.configure(answer.enableBrokerInfo):
            await asyncio.to_thread(serving.access.save)
        try:
            await self._take_topics(answer)
        except (OSError, StoreLoadError, MalformedText) as error:
            if is_start and not isinstance(error, MalformedText):
                raise
            self._lost(f"the topics cannot be used: {error}")
            return False
        self.is_registered = self.is_answered = True
        self.registrations += 1
        serving.access.registered_ms = clock.milliseconds()
        log.info("registered at the master %s", self.master)
        return True

    def _registration(self) -> RegisterRequestB2M:
        serving, topics = self._serving, self._serving.topics
        request = RegisterRequestB2M(
            clientId=self._client_id,
            brokerOnline=self.is_online,
            enableTls=self._tls_port is not None,
            readStatusRpt=serving.reads.report,
            writeStatusRpt=serving.writes.report,
            curBrokerConfId=topics.config_id,
            confCheckSumId=topics.checksum,
            brokerDefaultConfInfo=topics.defaults_text,
            brokerTopicSetConfInfo=topics.topic_texts,
            flowCheckId=serving.rules_id,
            qryPriorityId=serving.query_priority,
            clsConfig=ClusterConfig(configId=topics.cluster_id),
        )
        if self._tls_port is not None:
            request.tlsPort = self._tls_port
        self._sign(request)
        return request

    def _heartbeat(self) -> HeartRequestB2M:
        serving, topics = self._serving, self._serving.topics
        gone = [one.name for one in topics.removed.values() if one.status == STATUS_HARD_REMOVE]
        request = HeartRequestB2M(
            brokerId=str(self._config.number),
            brokerOnline=self.is_online,
            readStatusRpt=serving.reads.report,
            writeStatusRpt=serving.writes.report,
            curBrokerConfId=topics.config_id,
            confCheckSumId=topics.checksum,
            takeConfInfo=False,
            takeRemovedTopicInfo=bool(gone),
            removedTopicsInfo=gone,
            flowCheckId=serving.rules_id,
            qryPriorityId=serving.query_priority,
            clsConfig=ClusterConfig(configId=topics.cluster_id),
        )
        if self._needs_report or topics.config_id != topics.reported_id:
            request.takeConfInfo = True
            request.brokerDefaultConfInfo = topics.defaults_text
            request.brokerTopicSetConfInfo.extend(topics.topic_texts)
            topics.reported_id = topics.config_id
            self._needs_report = False
        self._sign(request)
        return request

    def _sign(self, request: Any) -> None:
        config = self._config
        if self._serving.access.rights_id:
            request.authInfo.authorizedToken = self._serving.access.rights_id
        if config.visit_master_auth:
            now, nonce = clock.milliseconds(), random_ids.randrange(MAX_NONCE + 1)
            request.authInfo.MergeFrom(
                MasterCertificateInfo(
                    authInfo=AuthenticateInfo(
                        userName=config.visit_name,
                        timestamp=now,
                        nonce=nonce,
                        othParams="",
                        signature=sign(config.visit_name, config.visit_password, now, nonce),
                    )
                )
            )

    # what a master says -----------------------------------------------------------------------

    async def _take_heartbeat(self, answer: HeartResponseM2B) -> None:
        self.is_answered = True
        self._take_state(answer)
        self._needs_report = self._needs_report or answer.needReportData
        if answer.takeConfInfo:
            try:
                await self._take_topics(answer)
            except (OSError, StoreLoadError, MalformedText) as error:
                log.error("the master's topics cannot be used now: %s", error,
                          extra={"failure": "topics of the master"})  # fmt: skip
        if answer.takeRemoveTopicInfo:
            gone = self._serving.topics.take_removed(tuple(answer.removeTopicConfInfo))
            if gone and (self._removing is None or self._removing.done()):
                self._removing = asyncio.get_running_loop().create_task(self._remove(gone))

    def _take_state(self, answer: RegisterResponseM2B | HeartResponseM2B) -> None:
        """Process the part that answers to registration and heartbeats share."""
        serving = self._serving
        serving.reads.set_by_master(answer.stopRead)
        serving.writes.set_by_master(answer.stopWrite)
        if answer.HasField("flowCheckId") and 0 <= answer.flowCheckId != serving.rules_id:
            try:
                serving.rules = FlowControl.parse(answer.flowControlInfo)
                serving.rules_id = answer.flowCheckId
            except MalformedText as error:
                log.error("the master's flow control is not understood: %s", error)
            if answer.HasField("qryPriorityId"):
                serving.query_priority = answer.qryPriorityId
        if answer.HasField("brokerAuthorizedInfo"):
            self._take_access(answer.brokerAuthorizedInfo)
        if answer.HasField("clsConfig") and answer.clsConfig.configId != serving.topics.cluster_id:
            size = answer.clsConfig.maxMsgSize if answer.clsConfig.HasField("maxMsgSize") else None
            serving.topics.set_cluster_size(answer.clsConfig.configId, size)

    def _take_access(self, given: MasterBrokerAuthorizedInfo) -> None:
        """Use tokens and rights; consumers that have lost theirs are removed."""
        serving = self._serving
        serving.access.add_tokens(given.visitAuthorizedToken)
        if not serving.access.take_grants(given.authAuthorizedToken):
            return
        for consumer in serving.consumers:
            try:
                serving.access.check_rights(consumer.group, consumer.topic, consumer.filters)
            except RequestError as denied:
                log.info("consumer %s is removed: %s", consumer.client_id, denied)
                serving.drop(consumer)

    async def _take_topics(self, answer: RegisterResponseM2B | HeartResponseM2B) -> None:
        """Open the stores of the master's topics, then use the topics. Raises errors of the
        opening.
        """
        topics = self._serving.topics
        defaults, texts = answer.brokerDefaultConfInfo, tuple(answer.brokerTopicSetConfInfo)
        if not defaults.strip():
            return
        said = answer.confCheckSumId
        if said != UNDEFINED and texts and said != checksum(defaults, texts):
            log.warning("the checksum of the master's settings is %d, not that of its texts", said)
        found = topics.understood(defaults, texts or topics.topic_texts)
        await self._opened(list(found.values()))
        topics.take(answer.curBrokerConfId, said, defaults, texts)
        await asyncio.to_thread(topics.save)

    async def _remove(self, gone: list[Topic]) -> None:
        """Delete the data of removed topics; the next heartbeat reports it."""
        removed = self._serving.topics.removed
        for topic in gone:
            try:
                await self._removed(topic)
            except OSError as error:
                log.error("%s cannot be deleted now: %s", topic.name, error)
                continue
            if topic.name in removed:
                removed[topic.name] = topic.hard_removed()
            log.info("the messages of the topic %s are deleted", topic.name)
