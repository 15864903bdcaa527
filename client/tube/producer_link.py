"""A producer and its masters: registering, heartbeats, and which master is asked.

The rules are those of consumers (`master_link`): each master once, from the current one on, to
register; 411 registers again at the same master, a standby's exception at the next; a master that
does not answer is left for the next one; after some failures in a row the interval is the long one.
"""

import asyncio
import logging
import os
from collections.abc import Callable

from google.protobuf.message import Message

from mq.client.errors import BadAnswer, ConnectError, MQError, RequestTimeout
from mq.client.machine import clock
from mq.client.tube.credentials import Identity
from mq.client.tube.errors import NotRegistered, StandbyMaster, TubeError, for_code
from mq.client.tube.masters import Masters
from mq.client.tube.options import TubeClientOptions
from mq.client.tube.routing import Routing
from mq.client.tube.service import TubeService
from mq.protocol.tube.codes import UNDEFINED, Code, Method
from mq.protocol.tube.errors import MalformedRpc, RemoteFailure
from mq.protocol.tube.messages import (
    ApprovedClientConfig,
    CloseRequestP2M,
    CloseResponseM2P,
    HeartRequestP2M,
    HeartResponseM2P,
    M,
    RegisterRequestP2M,
    RegisterResponseM2P,
    parse,
)
from mq.protocol.tube.strings import Address

log = logging.getLogger(__name__)

VERSION = "1.0.0-mq"  # the last part of the ids of clients; where the original has its release

# The list of brokers is asked for anew after so many seconds, whatever its checksum (Java:
# ProducerManager, 2 hours).
REFRESH_SECONDS = 7200.0


class ProducerLink:
    """Registers a producer, and tells it where its topics are."""

    def __init__(
        self,
        service: TubeService,
        masters: Masters,
        options: TubeClientOptions,
        identity: Identity,
        routing: Routing,
        on_token: Callable[[], None],
    ) -> None:
        """``on_token`` is called when a master has given new tokens."""
        self.topics: dict[str, None] = {}  # that are published
        self.client_id = ""
        self.host = "127.0.0.1"
        self.is_registered = False
        self.failures = 0  # in a row
        self.error: MQError | None = None  # the last one; None after a success
        self._service = service
        self._masters = masters
        self._options = options
        self._identity = identity
        self._routing = routing
        self._on_token = on_token
        self._config_id = UNDEFINED
        self._refreshed = 0.0
        self._one_at_a_time = asyncio.Lock()

    def name(self, index: int) -> None:
        """Take the number that the service has given, and make the id of it (the C++ client's)."""
        self.host = self._service.own_host(self._masters.current)
        parts = (self.host, os.getpid(), clock.milliseconds(), index, VERSION)
        self.client_id = "PRODUCER_" + "-".join(map(str, parts))

    async def register(self) -> None:
        """Register at the first master that takes us. Raises why the last one did not."""
        failure: MQError | None = None
        for _ in range(len(self._masters)):
            try:
                await self._register_at(self._masters.current)
            except MQError as error:
                log.warning("%s: not registered: %s", self.client_id, error)
                failure = error
                self._masters.advance()
            else:
                self.is_registered = True
                return
        assert failure is not None
        raise failure

    async def run(self) -> None:
        """Beat again and again, until cancelled."""
        options = self._options
        await asyncio.sleep(options.heartbeat_interval / 2)
        while True:
            try:
                await self.beat()
            except Exception:
                self.failures += 1
                log.exception("the heartbeat to the master failed")
            often = self.failures < options.heartbeat_failures
            await asyncio.sleep(
                options.heartbeat_interval if often else options.heartbeat_interval_after_failures
            )

    async def beat(self) -> None:
        """Send one heartbeat, and register before it where that is due.

        Failures are logged and counted, and the last is in `error`.
        """
        async with self._one_at_a_time:
            try:
                if not self.is_registered:
                    await self.register()
                await self._beat_or_register()
            except MQError as error:
                self.failures += 1
                self.error = error
                log.warning(
                    "%s: heartbeat %d in a row failed: %s", self.client_id, self.failures, error
                )
            else:
                self.failures = 0
                self.error = None

    async def _beat_or_register(self) -> None:
        try:
            await self._beat_at(self._masters.current)
        except (NotRegistered, StandbyMaster) as error:
            self.is_registered = False
            if isinstance(error, StandbyMaster):
                self._masters.advance()
            await self.register()
            await self._beat_at(self._masters.current)
        except (ConnectError, RequestTimeout):
            self._masters.advance()
            raise

    async def _ask(self, master: Address, method: Method, request: Message, kind: type[M]) -> M:
        options = self._options
        try:
            data = await self._service.call(
                master,
                method,
                request.SerializeToString(),
                options.timeout,
                connect_timeout=options.connect_timeout,
                tls=options.tls,
            )
            return parse(kind, data)
        except RemoteFailure as failure:
            error = StandbyMaster if failure.standby else TubeError
            raise error(Code.RECEIVED_EXCEPTION, str(failure), str(master)) from None
        except MalformedRpc as malformed:
            raise BadAnswer(str(master), str(malformed)) from None

    async def _register_at(self, master: Address) -> None:
        request = RegisterRequestP2M(
            clientId=self.client_id,
            topicList=list(self.topics),
            brokerCheckSum=-1,
            hostName=self.host,
            appdConfig=ApprovedClientConfig(configId=UNDEFINED),
            authInfo=self._identity.for_master(),
        )
        answer = await self._ask(master, Method.PRODUCER_REGISTER_P2M, request, RegisterResponseM2P)
        _accepted(answer, master)
        self._take_brokers(answer)
        self._learn(answer)

    async def _beat_at(self, master: Address) -> None:
        now = asyncio.get_running_loop().time()
        known = now < self._refreshed + REFRESH_SECONDS
        request = HeartRequestP2M(
            clientId=self.client_id,
            brokerCheckSum=self._routing.checksum if known else -1,
            hostName=self.host,
            topicList=list(self.topics),
            appdConfig=ApprovedClientConfig(configId=self._config_id),
            authInfo=self._identity.for_master(),
        )
        answer = await self._ask(master, Method.PRODUCER_HEARTBEAT_P2M, request, HeartResponseM2P)
        _accepted(answer, master)
        if answer.errCode == Code.NOT_READY:
            return  # the master has just started, and knows too little
        if answer.brokerCheckSum != self._routing.checksum or not known:
            self._take_brokers(answer)
        self._routing.update_topics(answer.topicInfos)
        self._learn(answer)

    def _take_brokers(self, answer: RegisterResponseM2P | HeartResponseM2P) -> None:
        self._routing.update_brokers(answer.brokerInfos, answer.brokerCheckSum)
        self._refreshed = asyncio.get_running_loop().time()

    def _learn(self, answer: RegisterResponseM2P | HeartResponseM2P) -> None:
        if answer.HasField("authorizedInfo"):
            self._identity.learn(answer.authorizedInfo)
            self._on_token()
        if answer.HasField("appdConfig"):
            self._config_id = answer.appdConfig.configId
            if answer.appdConfig.maxMsgSize > 0:
                self._routing.max_message_size = answer.appdConfig.maxMsgSize

    async def close(self) -> None:
        """Tell the master that we leave. Raises why it was not told."""
        master = self._masters.current
        request = CloseRequestP2M(clientId=self.client_id, authInfo=self._identity.for_master())
        answer = await self._ask(master, Method.PRODUCER_CLOSE_P2M, request, CloseResponseM2P)
        _accepted(answer, master)


def _accepted(
    answer: RegisterResponseM2P | HeartResponseM2P | CloseResponseM2P, master: Address
) -> None:
    """Raises the error that an answer is, unless it is a success."""
    if not answer.success:
        raise for_code(answer.errCode, answer.errMsg, str(master))
