"""Queue assignment by the broker, and the choice of pull or pop for a group (5.x)."""

import logging
from collections.abc import Awaitable, Callable, Sequence

from mq.client.reader.rebalance import allocate_averagely, allocate_in_circle
from mq.daemons.broker.clients.registry import Consumers
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.broker.groups.request_modes import RequestModes
from mq.daemons.broker.roles import check_may_modify
from mq.daemons.broker.topics.topic_handlers import saving
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol import names
from mq.protocol.bodies import MessageModel, MessageQueue, MessageRequestMode
from mq.protocol.bodies.pop import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command

log = logging.getLogger(__name__)

# Returns the queues of a topic in the whole cluster, None for a topic that does not exist.
QueuesOf = Callable[[str], Awaitable[Sequence[MessageQueue] | None]]

_STRATEGIES = {"AVG": allocate_averagely, "AVG_BY_CIRCLE": allocate_in_circle}
# Java's "no result": a client that receives it keeps its queues.
_NO_RESULT = b"{}"


class AssignmentHandlers:
    """Assigns queues to the members of groups."""

    def __init__(
        self,
        settings: BrokerSettings,
        modes: RequestModes,
        topics: Topics,
        groups: Groups,
        consumers: Consumers,
        queues_of: QueuesOf,
    ) -> None:
        self._settings = settings
        self._modes = modes
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._queues_of = queues_of

    @serves(RequestCode.QUERY_ASSIGNMENT)
    async def query(self, command: Command, channel: Channel) -> Command:
        """Return the queues of a topic that a client is to consume, and the mode."""
        asked = command.read_body(QueryAssignmentRequestBody)
        topic, group = asked.topic or "", asked.consumer_group or ""
        mode = self._mode(topic, group)
        queues = await self._queues_of(topic)
        shared = None if queues is None else self._share(asked, mode, queues)
        if shared is None:
            return command.reply(body=_NO_RESULT)
        # Java's answer is a set: with pop, each broker is in it once.
        assignments = [
            MessageQueueAssignment(message_queue=queue, mode=mode.mode)
            for queue in dict.fromkeys(shared)
        ]
        body = QueryAssignmentResponseBody(message_queue_assignments=assignments)
        return command.reply(body=body.encode())

    def _mode(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        known = self._modes.get(topic, group)
        if known is not None:
            return known
        mode = MessageRequestMode.PULL
        return SetMessageRequestModeRequestBody(topic=topic, consumer_group=group, mode=mode)

    def _share(
        self,
        asked: QueryAssignmentRequestBody,
        mode: SetMessageRequestModeRequestBody,
        queues: Sequence[MessageQueue],
    ) -> Sequence[MessageQueue] | None:
        """The queues of one client (QueryAssignmentProcessor.doLoadBalance); None for no result."""
        config = self._settings.broker
        if asked.message_model is MessageModel.BROADCASTING:
            return queues
        if asked.message_model is not MessageModel.CLUSTERING:
            return None
        if not config.server_load_balancer_enable:
            return queues
        group = self._consumers.groups.get(asked.consumer_group or "")
        allocate = _STRATEGIES.get(asked.strategy_name or "")
        if group is None or allocate is None:
            log.warning(
                "no queues of %s for group %s: %s",
                asked.topic,
                asked.consumer_group,
                "it has no members" if group is None else f"no strategy {asked.strategy_name!r}",
            )
            return None
        clients = sorted(group.client_ids())
        client = asked.client_id or ""
        if mode.mode is not MessageRequestMode.POP:
            return allocate(client, queues, clients)
        further = mode.pop_share_queue_num
        if further <= 0 or further >= len(clients) - 1:
            return [MessageQueue(q.topic, q.broker_name, -1) for q in queues]
        if client not in clients:
            return []
        index = clients.index(client)
        if len(clients) > len(queues):
            return [sorted(queues)[index % len(queues)]]
        sharing = [clients[(index + n) % len(clients)] for n in range(further + 1)]
        return [queue for one in sharing for queue in allocate(one, queues, clients)]

    @serves(RequestCode.SET_MESSAGE_REQUEST_MODE)
    def set_mode(self, command: Command, channel: Channel) -> Command:
        """Set whether a group pulls or pops a topic."""
        check_may_modify(self._settings)
        mode = command.read_body(SetMessageRequestModeRequestBody)
        topic, group = mode.topic or "", mode.consumer_group or ""
        if topic.startswith(names.RETRY_PREFIX):
            raise Refused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.get(topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        if self._groups.find(group) is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist"
            )
        log.info("%s: group %s reads %s by %s", channel.remote, group, topic, mode.mode.name)
        with saving():
            self._modes.set(mode)
        return command.reply()

    @serves(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    def all_modes(self, command: Command, channel: Channel) -> Command:
        """All modes that were set, as a slave copies them."""
        return command.reply(body=self._modes.table.encode())
