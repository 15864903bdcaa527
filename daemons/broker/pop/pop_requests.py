"""Checked requests of groups that pop (5.x)."""

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.filters.properties import Expression
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.broker.groups.read_checks import check_broker, consuming_group, readable_topic
from mq.daemons.broker.pop.request import ALL_QUEUES, INIT_MIN, PopRequest
from mq.daemons.broker.pull.subscriptions import Subscriptions
from mq.daemons.broker.roles import check_takes_messages
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.protocol import names
from mq.protocol.codes import ResponseCode
from mq.protocol.flags import PullSysFlag
from mq.protocol.headers.pop import PopMessageRequestHeader
from mq.protocol.pop_receipt import retry_topic

MOST_MESSAGES = 32  # messages per pop
LONGEST_INVISIBLE = 7 * 24 * 3600 * 1000  # ms
# Limit in characters. Clients use a UUID; that of an ordered pop is kept and saved for each queue.
LONGEST_ATTEMPT_ID = 255


def check_maximum(maximum: int) -> None:
    """Raises Refused unless 1 to MOST_MESSAGES messages are requested."""
    if not 1 <= maximum <= MOST_MESSAGES:
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"maxMsgNums={maximum}: expected 1 to {MOST_MESSAGES}",
        )


class PopRequests:
    """Reads pop requests. All methods raise Refused."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: Topics,
        groups: Groups,
        subscriptions: Subscriptions,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._expression_of = subscriptions.expression

    def of_pop(self, header: PopMessageRequestHeader, channel: Channel) -> PopRequest:
        """The request of a POP_MESSAGE."""
        check_takes_messages(self._settings)  # a pop stores check points
        check_maximum(header.max_msg_nums)
        if not 1 <= header.invisible_time <= LONGEST_INVISIBLE:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"invisibleTime={header.invisible_time}: expected 1 to {LONGEST_INVISIBLE} ms",
            )
        attempt_id = header.attempt_id or ""
        if len(attempt_id) > LONGEST_ATTEMPT_ID:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"an attemptId of {len(attempt_id)} characters: expected at most "
                f"{LONGEST_ATTEMPT_ID}",
            )
        self.check(header.topic, header.consumer_group, header.queue_id, channel)
        return PopRequest(
            header.consumer_group,
            header.topic,
            max(header.queue_id, ALL_QUEUES),
            header.max_msg_nums,
            header.invisible_time,
            header.init_mode,
            self._expression(header),
            header.order,
            attempt_id,
        )

    def of_everything(
        self,
        topic: str,
        group: str,
        queue_id: int,
        maximum: int,
        is_ordered: bool = False,
        attempt_id: str = "",
    ) -> PopRequest:
        """A request to see all messages, regardless of the group's subscription."""
        expression = self._expression_of(
            {"subscription": "*"}, PullSysFlag.SUBSCRIPTION, group, topic
        )
        return PopRequest(
            group,
            topic,
            max(queue_id, ALL_QUEUES),
            maximum,
            0,
            INIT_MIN,
            expression,
            is_ordered,
            attempt_id,
        )

    def _expression(self, header: PopMessageRequestHeader) -> Expression:
        fields = {"subscription": header.exp or "*"}
        if header.exp and header.exp_type:
            fields["expressionType"] = header.exp_type
        return self._expression_of(
            fields, PullSysFlag.SUBSCRIPTION, header.consumer_group, header.topic
        )

    def check(self, topic: str, group: str, queue_id: int, channel: Channel) -> None:
        """Check that the group may read the topic; refuses like PopMessageProcessor."""
        check_broker(self._settings.broker, "pop message")
        known = readable_topic(self._topics, topic, "peeking message")
        if queue_id >= known.read_queue_nums:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                f"[{known.read_queue_nums}] consumer:[{channel.remote}]",
            )
        consuming_group(self._groups, group)
        again = retry_topic(group, topic)
        if len(again) > names.MAX_TOPIC_LENGTH:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"the names of group and topic are too long to pop: their retry topic {again} "
                f"would have over {names.MAX_TOPIC_LENGTH} characters",
            )
