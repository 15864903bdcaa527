"""Pulls: checked against what a consumer's heartbeats say, then an enode's to answer, and to hold.

An enode has heard of the snode's consumers nothing, so a pull gets the text of its subscription
here if its client leaves that to the broker, as Java's push consumers do.
"""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass

from mq.daemons.broker.clients.registry import Consumers
from mq.daemons.broker.handlers.reading import consuming_group
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

# How long an enode may take, in seconds: what it holds a pull for, and a little.
SHORTEST_SECONDS = 30.0
_BEYOND_HOLD = 10.0
_LONGEST_SECONDS = 3600.0 + _BEYOND_HOLD
# An enode does not hear of a client that closes its connection: it holds the pull all the same, and
# of those a connection has so many. Java's clients ask for 15 s or 20 s.
LONGEST_HOLD_MILLIS = 30_000
# Of the pulls of all clients on one connection to an enode. A broker closes a connection that makes
# it hold 64 MiB (connectionMemoryMaxBytes): because of a few clients all on it would fail.
MOST_HELD_BYTES = 48 * 1024 * 1024
MOST_SETTING = "bytes of pulls at one connection of an enode"
_SUSPEND = PullSysFlag.SUSPEND
_SUBSCRIPTION = PullSysFlag.SUBSCRIPTION
_COMMIT = PullSysFlag.COMMIT_OFFSET


@dataclass(frozen=True, slots=True)
class PullHandlers:
    """Passes on what consumers ask for."""

    forwarding: Forwarding
    enodes: Enodes
    groups: SnodeGroups
    consumers: Consumers
    offsets: OffsetCache
    interceptors: InterceptorGroup

    @serves(*PULLS, SnodeCode.SNODE_PULL_MESSAGE)
    def pull(self, command: Command, channel: Channel) -> Awaitable[None] | None:
        """The messages of a queue from an offset on."""
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
        """The same pull, to be answered at once. Raises Overloaded for one that is signed."""
        if not self.forwarding.may_change(fields):
            raise Overloaded(MOST_SETTING, f"[OVERLOAD]pulls hold {MOST_HELD_BYTES} bytes already")
        return {**fields, "sysFlag": str(int(fields["sysFlag"]) & ~_SUSPEND)}

    def _code(self, code: int, enode: str, slot: int) -> int:
        """351 means something else to a broker of which it is not known that it serves snodes, and
        361 nothing to one of 4.x: the same is asked by an ordinary pull."""
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
