"""The link of a filter server to its broker: registration and pulls.

Sources: FiltersrvController.registerFilterServerToBroker, DefaultRequestProcessor (4.2.0). Java's
process ends when a registration fails, so that its broker starts another one. This one retries,
after less than the registration interval: a broker that returns has it at once, with its classes.
"""

import asyncio
import logging
import ssl

from mq.client.credentials import AccessKey
from mq.client.errors import MQError
from mq.client.options import ClientOptions
from mq.client.transport.session import Session
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
# Limits of a suspended pull: the broker's is a second below that of consumers, who wait a second
# longer.
SUSPEND_MILLIS = 19_000
PULL_TIMEOUT = 29.0


class BrokerLink:
    """One connection to the broker for all requests."""

    def __init__(
        self, broker: str, tls: ssl.SSLContext | None = None, key: AccessKey | None = None
    ) -> None:
        self.broker = broker
        self.broker_name = ""  # "" until it has registered
        self.broker_id = 0
        self.registered = asyncio.Event()  # set once
        self.session = Session(broker, ClientOptions(tls=tls, credentials=key))

    async def register(self, address: str) -> None:
        """Register the address of this filter server. Raises MQError."""
        header = RegisterFilterServerRequestHeader(filter_server_addr=address)
        command = Command(RequestCode.REGISTER_FILTER_SERVER, header.encode())
        response = await self.session.call(self.broker, command, REGISTER_TIMEOUT)
        response_header = RegisterFilterServerResponseHeader.decode(response.fields)
        self.broker_name = self.broker_name or response_header.broker_name
        self.broker_id = response_header.broker_id
        await self._send_heartbeat()

    async def keep_registered(self, address: str) -> None:
        """Register repeatedly, until cancelled: every 10 s, and soon after the connection has
        broken, because the broker drops the filter server with it.
        """
        while True:
            try:
                await self.register(address)
            except (MQError, RemoteProtocolError) as error:
                log.error("registration with broker %s failed: %s", self.broker, error,
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
        """Pull all messages of a queue from which a consumer has requested the matching ones;
        returns the broker's reply, whatever it is. Raises MQError.
        """
        asked = PullMessageRequestHeader(
            consumer_group=FILTERSRV_CONSUMER_GROUP,
            topic=header.topic,
            queue_id=header.queue_id,
            queue_offset=header.queue_offset,
            max_msg_nums=header.max_msg_nums,
            sys_flag=PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION,
            commit_offset=0,  # a consumer commits by a separate request
            suspend_timeout_millis=SUSPEND_MILLIS,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        command = Command(RequestCode.PULL_MESSAGE, asked.encode())
        return await self.session.invoke(self.broker, command, PULL_TIMEOUT)

    async def _send_heartbeat(self) -> None:
        """Send a heartbeat, so that the broker lists this process as a consumer, like Java's."""
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
