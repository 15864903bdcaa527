"""Sends: forwarded to their enode, and pushed to consumers once the enode has stored them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from mq.client.errors import BrokerError, MQError
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.daemons.snode.access import SnodeAccess
from mq.daemons.snode.enodes import Enodes, unavailable
from mq.daemons.snode.forwarding import Forwarding
from mq.daemons.snode.interceptors import InterceptorGroup
from mq.daemons.snode.push.service import PushService
from mq.daemons.snode.topic_sizes import TopicSizes
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.headers.query import ViewMessageRequestHeader
from mq.protocol.headers.send import ConsumerSendMsgBackRequestHeader, Letter
from mq.protocol.message import decode_record


@dataclass(frozen=True, slots=True)
class SendHandlers:
    """Serves sends of producers, and messages that consumers send back.

    `address` is the snode's own; `access` has the permissions, with aclEnable.
    """

    forwarding: Forwarding
    push: PushService
    interceptors: InterceptorGroup
    address: Callable[[], str]
    enodes: Enodes
    access: SnodeAccess | None = None
    sizes: TopicSizes = field(default_factory=TopicSizes)

    @serves(RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    def send(self, command: Command, channel: Channel) -> Awaitable[None] | None:
        """Forward a message, or several for one queue."""
        forwarding = self.forwarding
        given = command.fields
        enode = forwarding.enode_of(given, channel, Letter.BROKER_NAME)
        fields = forwarding.with_hosts(given, channel, self.address())
        body = command.body

        def stored(response: Command) -> None:
            if response.code != ResponseCode.SUCCESS:
                return
            self.sizes.sent(given.get(Letter.TOPIC, ""), len(body))
            if self.access is not None or forwarding.may_change(given):
                self.push.acknowledged(enode, given, body, response.fields, channel.born_host)
            else:
                self.push.left_out("signed")

        return forwarding.forward(
            command, channel, enode, fields, groups=self._groups(), on_answer=stored
        )

    @serves(RequestCode.CONSUMER_SEND_MSG_BACK)
    def send_back(self, command: Command, channel: Channel) -> Awaitable[Command | None] | None:
        """Forward a message that its consumer could not consume, to be redelivered later."""
        enode = self.forwarding.enode_of(command.fields, channel)
        if self.access is not None:
            return self._send_back_if_readable(command, channel, enode, self.access)
        return self._pass_back(command, channel, enode)

    def _pass_back(self, command: Command, channel: Channel, enode: str) -> Awaitable[None] | None:
        fields = command.fields
        return self.forwarding.forward(command, channel, enode, fields, groups=self._groups())

    async def _send_back_if_readable(
        self, command: Command, channel: Channel, enode: str, access: SnodeAccess
    ) -> Command | None:
        """Forward the request if its sender may read the message at its offset.

        An enode checks the permissions of the signer: that is the snode itself if it signs all
        requests, and an enode without accounts checks nothing.
        """
        offset = command.read_header(ConsumerSendMsgBackRequestHeader).offset
        try:
            access.check_read(command, channel, await self._topic_at(enode, offset))
        except BrokerError as error:
            # An enode that refuses an unsigned query of the snode checks the sender itself.
            if error.code != ResponseCode.NO_PERMISSION or self.enodes.signs:
                return command.reply(error.code, remark=error.remark)
        passed = self._pass_back(command, channel, enode)
        if passed is not None:
            await passed
        return None

    async def _topic_at(self, enode: str, offset: int) -> str:
        """The topic of a message. Raises BrokerError of the enode, or Refused."""
        enodes = self.enodes
        address = enodes.masters.get(enode) or await enodes.find(enode)
        if address is None:
            raise unavailable(enode, "no name server has a master of it")
        header = ViewMessageRequestHeader(offset=offset)
        try:
            response = await enodes.call(
                address, Command(RequestCode.VIEW_MESSAGE_BY_ID, header.encode())
            )
            return decode_record(response.body, decompress=False).topic
        except BrokerError:
            raise
        except MQError as error:
            raise unavailable(enode, error) from None
        except RemoteProtocolError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"message at {offset}: {error}") from None

    def _groups(self) -> tuple[InterceptorGroup, ...]:
        return (self.interceptors,) if self.interceptors else ()
