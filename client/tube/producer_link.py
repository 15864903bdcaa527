"""A producer and its masters; see master_link, whose rules apply."""

import asyncio
from collections.abc import Callable, Mapping

from mq.client.errors import MQError
from mq.client.tube.master_link import MasterLink
from mq.client.tube.masters import Masters
from mq.client.tube.membership import Member, accepted
from mq.client.tube.routing import Routing
from mq.protocol.tube.codes import UNDEFINED, Code, Method
from mq.protocol.tube.messages import (
    ApprovedClientConfig,
    CloseRequestP2M,
    CloseResponseM2P,
    HeartRequestP2M,
    HeartResponseM2P,
    RegisterRequestP2M,
    RegisterResponseM2P,
)
from mq.protocol.tube.strings import Address

# The list of brokers is fetched again after this time, whatever its checksum (Java:
# ProducerManager, 2 hours).
REFRESH_SECONDS = 7200.0


class ProducerLink(MasterLink):
    """Registers a producer, and updates its routes."""

    def __init__(
        self,
        member: Member,
        masters: Masters,
        topics: Mapping[str, None],
        routing: Routing,
        on_token: Callable[[], None],
    ) -> None:
        """``topics`` are the published ones; ``on_token`` is called when there are new tokens."""
        super().__init__(member, masters)
        self.error: MQError | None = None  # of the last heartbeat
        self._topics = topics
        self._routing = routing
        self._on_token = on_token
        self._registrations = 0
        self._config_id = UNDEFINED
        self._refreshed = 0.0
        self._one_at_a_time = asyncio.Lock()

    async def register(self) -> None:
        """See MasterLink; a failure is also stored in `error`."""
        try:
            await super().register()
        except MQError as error:
            self.error = error
            raise

    async def beat(self) -> None:
        """Send one heartbeat; after a registration one more, because only heartbeats return topics.

        A failure is stored in `error`.
        """
        async with self._one_at_a_time:
            self.error = None
            before = self._registrations
            await super().beat()
            if self._registrations != before:
                self.error = None
                await super().beat()

    def _failed(self, error: MQError) -> None:
        super()._failed(error)
        self.error = error

    async def _register_at(self, master: Address) -> None:
        request = RegisterRequestP2M(
            clientId=self._client.client_id,
            topicList=list(self._topics),
            brokerCheckSum=-1,
            hostName=self._client.host,
            appdConfig=ApprovedClientConfig(configId=UNDEFINED),
            authInfo=self._client.identity.for_master(),
        )
        answer = await self._client.ask(
            master, Method.PRODUCER_REGISTER_P2M, request, RegisterResponseM2P
        )
        accepted(answer.success, answer, master)
        self._registrations += 1
        self._take_brokers(answer)
        self._learn(answer)

    async def _beat_at(self, master: Address) -> None:
        now = asyncio.get_running_loop().time()
        known = now < self._refreshed + REFRESH_SECONDS
        request = HeartRequestP2M(
            clientId=self._client.client_id,
            brokerCheckSum=self._routing.checksum if known else -1,
            hostName=self._client.host,
            topicList=list(self._topics),
            appdConfig=ApprovedClientConfig(configId=self._config_id),
            authInfo=self._client.identity.for_master(),
        )
        answer = await self._client.ask(
            master, Method.PRODUCER_HEARTBEAT_P2M, request, HeartResponseM2P
        )
        accepted(answer.success, answer, master)
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
            self._client.identity.learn(answer.authorizedInfo)
            self._on_token()
        if answer.HasField("appdConfig"):
            self._config_id = answer.appdConfig.configId
            if answer.appdConfig.maxMsgSize > 0:
                self._routing.max_message_size = answer.appdConfig.maxMsgSize

    async def _close_at(self, master: Address) -> None:
        request = CloseRequestP2M(
            clientId=self._client.client_id, authInfo=self._client.identity.for_master()
        )
        answer = await self._client.ask(
            master, Method.PRODUCER_CLOSE_P2M, request, CloseResponseM2P
        )
        accepted(answer.success, answer, master)
