"""Requests of a snode itself, in the dialect of snodes (docs/decisions/0059)."""

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.broker.pull.pull_handlers import PullHandlers
from mq.daemons.broker.topics.topic_table import READ_WRITE, Topics, new_topic
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol import names
from mq.protocol.codes import ResponseCode, SnodeCode
from mq.protocol.command import Command
from mq.protocol.headers.snode import CreateRetryTopicRequestHeader


class SnodeHandlers:
    """Serves snodes."""

    def __init__(
        self, settings: BrokerSettings, groups: Groups, topics: Topics, pulls: PullHandlers
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._topics = topics
        self._pulls = pulls

    @serves(SnodeCode.SNODE_PULL_MESSAGE)
    def pull(self, command: Command, channel: Channel) -> None:
        """Pull by the subscription in the header: the snode, not this broker, has the group's
        members.
        """
        self._pulls.pull_relayed(command, channel)

    @serves(SnodeCode.CREATE_RETRY_TOPIC)
    def create_retry_topic(self, command: Command, channel: Channel) -> Command:
        """Create the retry topic of a group, and the group, like a heartbeat of its consumers."""
        name = command.read_header(CreateRetryTopicRequestHeader).group_name
        try:
            names.check_group(name)
        except names.IllegalName as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        group = self._groups.find(name)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{name}] does not exist",
            )
        topic = names.retry_topic(name)
        if group.retry_queue_nums > 0 and not self._topics.get(topic):
            self._topics.create_all([new_topic(topic, group.retry_queue_nums, READ_WRITE, 0)])
        return command.reply()
