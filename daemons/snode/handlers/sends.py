"""Sends: a message goes to its enode, and once that has it, to who is pushed to."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from mq.daemons.channel import Channel
from mq.daemons.serving import serves
from mq.daemons.snode.forwarding import Forwarding
from mq.daemons.snode.interceptors import InterceptorGroup
from mq.daemons.snode.push.service import PushService
from mq.daemons.snode.topic_sizes import TopicSizes
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.send import Letter


@dataclass(frozen=True, slots=True)
class SendHandlers:
    """Takes messages from producers, and back from consumers. `address` is the snode's own;
    `knows_accounts` tells whether it has asked who consumes (aclEnable)."""

    forwarding: Forwarding
    push: PushService
    interceptors: InterceptorGroup
    address: Callable[[], str]
    knows_accounts: bool = False
    sizes: TopicSizes = field(default_factory=TopicSizes)

    @serves(RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    def send(self, command: Command, channel: Channel) -> Awaitable[None] | None:
        """A message, or several for one queue."""
        forwarding = self.forwarding
        given = command.fields
        enode = forwarding.enode_of(given, channel, Letter.BROKER_NAME)
        fields = forwarding.with_hosts(given, channel, self.address())
        body = command.body

        def stored(response: Command) -> None:
            if response.code != ResponseCode.SUCCESS:
                return
            self.sizes.sent(given.get(Letter.TOPIC, ""), len(body))
            if self.knows_accounts or forwarding.may_change(given):
                self.push.acknowledged(enode, given, body, response.fields, channel.born_host)
            else:
                self.push.left_out("signed")

        return forwarding.forward(
            command, channel, enode, fields, groups=self._groups(), on_answer=stored
        )

    @serves(RequestCode.CONSUMER_SEND_MSG_BACK)
    def send_back(self, command: Command, channel: Channel) -> Awaitable[None] | None:
        """A message that its consumer could not consume, to be delivered again later."""
        enode = self.forwarding.enode_of(command.fields, channel)
        return self.forwarding.forward(
            command, channel, enode, command.fields, groups=self._groups()
        )

    def _groups(self) -> tuple[InterceptorGroup, ...]:
        return (self.interceptors,) if self.interceptors else ()
