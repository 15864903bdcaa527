"""Pulls: checked against the consumer's heartbeats, then answered or suspended by an enode.

An enode has no heartbeats of the snode's consumers, so the snode adds the subscription to a pull
whose client leaves that to the broker, like Java's push consumers.
"""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass

from mq.daemons.broker.clients.registry import Consumers
from mq.daemons.broker.groups.read_checks import consuming_group
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Overloaded, Refused
from mq.daemons.request_codes import serves
from mq.daemons.snode.enodes import Enodes
from mq.daemons.snode.forwarding import Forwarding
from mq.daemons.snode.groups import SnodeGroups
from mq.daemons.snode.interceptors import InterceptorGroup
from mq.daemons.snode.offsets import Key, OffsetCache
from mq.protocol.bodies import MessageModel, SubscriptionData, SubscriptionGroupConfig
from mq.protocol.codes import PULLS, RequestCode, ResponseCode, SnodeCode
from mq.protocol.command import Command
from mq.protocol.flags import PullSysFlag
from mq.protocol.headers.pull import PullMessageRequestHeader

# Timeouts of an enode in seconds: the suspend time of a pull, and a little more.
SHORTEST_SECONDS = 30.0
_BEYOND_HOLD = 10.0
_LONGEST_SECONDS = 3600.0 + _BEYOND_HOLD
# Limit of the suspend time in ms. An enode does not notice that a client has disconnected and keeps
# the pull suspended, and the number of its suspended pulls per connection is limited. Java's
# clients request 15 s or 20 s.
LONGEST_HOLD_MILLIS = 30_000
# Limit for the pulls of all clients on one connection to an enode. A broker closes a connection
# that makes it hold 64 MiB (connectionMemoryMaxBytes), so a few clients could break it for all.
MOST_HELD_BYTES = 48 * 1024 * 1024
MOST_SETTING = "bytes of pulls at one connection of an enode"
_SUSPEND = PullSysFlag.SUSPEND
_SUBSCRIPTION = PullSysFlag.SUBSCRIPTION
_COMMIT = PullSysFlag.COMMIT_OFFSET


@dataclass(frozen=True, slots=True)
class PullHandlers:
    """Forwards pulls of consumers."""

    forwarding: Forwarding
    enodes: Enodes
    groups: SnodeGroups
    consumers: Consumers
    offsets: OffsetCache
    interceptors: InterceptorGroup

    @serves(*PULLS, SnodeCode.SNODE_PULL_MESSAGE)
    def pull(self, command: Command, channel: Channel) -> Awaitable[None] | None:
        """Return the messages of a queue from an offset on."""
        asked = command.read_header(PullMessageRequestHeader)
        group = consuming_group(self.groups, asked.consumer_group)
        self._check(asked, group)
        fields = command.fields
        if not asked.sys_flag & _SUBSCRIPTION:
            subscription = self._subscription(asked)
            if self.forwarding.may_change(fields):
                fields = _with_subscription(fields, asked.sys_flag, subscription)
        hold = asked.suspend_timeout_millis
        if hold > LONGEST_HOLD_MILLIS and self.forwarding.may_change(fields):
            hold = LONGEST_HOLD_MILLIS
            fields = {**fields, "suspendTimeoutMillis": str(hold)}
        enode = self.forwarding.enode_of(fields, channel)
        if asked.sys_flag & _COMMIT:
            key = Key(enode, asked.topic, asked.consumer_group)
            self.offsets.remember(key, asked.queue_id, asked.commit_offset, channel.remote)
        slot = self.enodes.slot_of(channel.remote_address[1])
        if asked.sys_flag & _SUSPEND and self.forwarding.held[enode, slot] > MOST_HELD_BYTES:
            fields = self._at_once(fields)
        return self.forwarding.forward(
            *(command, channel, enode, fields),
            code=self._code(command.code, enode, slot),
            seconds=max(SHORTEST_SECONDS, min(hold / 1000 + _BEYOND_HOLD, _LONGEST_SECONDS)),
            slot=slot,
            groups=(self.interceptors,) if self.interceptors else (),
        )

    def _at_once(self, fields: Mapping[str, str]) -> Mapping[str, str]:
        """The same pull without suspension. Raises Overloaded if it is signed."""
        if not self.forwarding.may_change(fields):
            raise Overloaded(MOST_SETTING, f"[OVERLOAD]pulls hold {MOST_HELD_BYTES} bytes already")
        return {**fields, "sysFlag": str(int(fields["sysFlag"]) & ~_SUSPEND)}

    def _code(self, code: int, enode: str, slot: int) -> int:
        """The code for the enode: 351 means something else to a broker that is not known to support
        snodes, and 361 is unknown to 4.x; an ordinary pull requests the same.
        """
        if code == SnodeCode.SNODE_PULL_MESSAGE:
            address = self.enodes.masters.get(enode, "")
            if self.enodes.speaks_snode(address, slot):
                return code
        return RequestCode.PULL_MESSAGE

    def _check(self, asked: PullMessageRequestHeader, group: SubscriptionGroupConfig) -> None:
        name = asked.consumer_group
        if not group.consume_broadcast_enable:
            members = self.consumers.groups.get(name)
            if members is not None and members.message_model is MessageModel.BROADCASTING:
                raise Refused(
                    ResponseCode.NO_PERMISSION,
                    f"the consumer group[{name}] can not consume by broadcast way",
                )
        if asked.queue_id < 0:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{asked.queue_id}] is illegal, topic:[{asked.topic}]",
            )

    def _subscription(self, asked: PullMessageRequestHeader) -> SubscriptionData:
        name, topic = asked.consumer_group, asked.topic
        if name not in self.consumers.groups:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist: {name} has sent no heartbeat",
            )
        found = self.consumers.subscription(name, topic)
        if found is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: group {name} has sent no heartbeat "
                f"that names topic {topic}",
            )
        if found.sub_version < asked.sub_version:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        return found


def _with_subscription(
    fields: Mapping[str, str], sys_flag: int, subscription: SubscriptionData
) -> Mapping[str, str]:
    return {
        **fields,
        "sysFlag": str(sys_flag | _SUBSCRIPTION),
        "subscription": subscription.sub_string,
        "expressionType": subscription.expression_type,
    }
