"""The broker that a filter server is beside: it registers there, and pulls from there.

Sources: FiltersrvController.registerFilterServerToBroker, DefaultRequestProcessor (4.2.0). Java's
process ends when a registration fails, for its broker to start another one. This one tries again,
sooner than it has to register: a broker that comes back has it at once, its classes with it.
"""

import asyncio
import logging
import ssl

from mq.client.credentials import AccessKey
from mq.client.errors import MQError
from mq.client.options import ClientOptions
from mq.client.session import Session
from mq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import PullSysFlag
from mq.protocol.headers.filtersrv import (
    RegisterFilterServerRequestHeader,
    RegisterFilterServerResponseHeader,
)
from mq.protocol.headers.pull import PullMessageRequestHeader
from mq.protocol.names import FILTERSRV_CONSUMER_GROUP

log = logging.getLogger(__name__)

REGISTER_SECONDS = 10.0
REGISTER_TIMEOUT = 3.0
AGAIN_SECONDS = 1.0
# A broker may hold a pull for a second less than it may for consumers, who wait a second longer.
SUSPEND_MILLIS = 19_000
PULL_TIMEOUT = 29.0


class BrokerLink:
    """One connection to the broker, for all that is asked of it."""

    def __init__(
        self, broker: str, tls: ssl.SSLContext | None = None, key: AccessKey | None = None
    ) -> None:
        self.broker = broker
        self.broker_name = ""  # until it is registered
        self.broker_id = 0
        self.registered = asyncio.Event()  # once
        self.session = Session(broker, ClientOptions(tls=tls, credentials=key))

    async def register(self, address: str) -> None:
        """Say where this filter server is. Raises MQError."""
        header = RegisterFilterServerRequestHeader(filter_server_addr=address)
        command = Command(RequestCode.REGISTER_FILTER_SERVER, header.encode())
        response = await self.session.call(self.broker, command, REGISTER_TIMEOUT)
        told = RegisterFilterServerResponseHeader.decode(response.fields)
        self.broker_name = self.broker_name or told.broker_name
        self.broker_id = told.broker_id
        await self._beat()

    async def keep_registered(self, address: str) -> None:
        """Register again and again, until cancelled: each 10 s, and soon when the connection has
        broken, with which the broker has dropped it."""
        while True:
            try:
                await self.register(address)
            except (MQError, RemoteProtocolError) as error:
                log.error("broker %s does not take the registration: %s", self.broker, error,
                          extra={"failure": "registration"})  # fmt: skip
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                if not self.registered.is_set():
                    log.info("registered with broker %s (%s)", self.broker_name, self.broker)
                    self.registered.set()
                try:
                    async with asyncio.timeout(REGISTER_SECONDS):
                        await self.session.disconnected(self.broker)
                        await asyncio.sleep(AGAIN_SECONDS)
                except TimeoutError:
                    continue

    async def pull(self, header: PullMessageRequestHeader) -> Command:
        """Pull all messages of a queue, as a consumer has asked for those that match; the broker's
        answer, whatever it is. Raises MQError."""
        asked = PullMessageRequestHeader(
            consumer_group=FILTERSRV_CONSUMER_GROUP,
            topic=header.topic,
            queue_id=header.queue_id,
            queue_offset=header.queue_offset,
            max_msg_nums=header.max_msg_nums,
            sys_flag=PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION,
            commit_offset=0,  # a consumer commits by a request of its own
            suspend_timeout_millis=SUSPEND_MILLIS,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        command = Command(RequestCode.PULL_MESSAGE, asked.encode())
        return await self.session.invoke(self.broker, command, PULL_TIMEOUT)

    async def _beat(self) -> None:
        """Be seen among the consumers of the broker, as Java's are."""
        data = HeartbeatData(
            client_id=self.session.client_id,
            producer_data_set=[],
            consumer_data_set=[
                ConsumerData(
                    group_name=FILTERSRV_CONSUMER_GROUP,
                    consume_type=ConsumeType.CONSUME_ACTIVELY,
                    message_model=MessageModel.CLUSTERING,
                    consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                    subscription_data_set=[],
                    unit_mode=False,
                )
            ],
        )
        command = Command(RequestCode.HEART_BEAT, None, data.encode())
        try:
            await self.session.call(self.broker, command, REGISTER_TIMEOUT)
        except (MQError, RemoteProtocolError) as error:
            log.warning("heartbeat failed: %s", error, extra={"failure": "heartbeat"})
