"""Lists of topics."""

from collections.abc import Iterable

from mq.daemons.channel import Channel
from mq.daemons.namesrv.routes import Routes
from mq.daemons.request_codes import serves
from mq.protocol.bodies import TopicList
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.flags import TopicSysFlag
from mq.protocol.headers.topic import GetTopicsByClusterRequestHeader


class TopicListHandlers:
    """Lists topics by category."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    @serves(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    def all_topics(self, command: Command, channel: Channel) -> Command:
        """All topics."""
        return _listed(command, self._routes.topics)

    @serves(RequestCode.GET_TOPICS_BY_CLUSTER)
    def of_cluster(self, command: Command, channel: Channel) -> Command:
        """Topics with queues in a cluster; none for an unknown cluster."""
        header = GetTopicsByClusterRequestHeader.decode(command.fields)
        names = self._routes.clusters.get(header.cluster, {})
        found = (t for t, by_broker in self._routes.topics.items() if by_broker.keys() & names)
        return _listed(command, found)

    @serves(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    def system_topics(self, command: Command, channel: Channel) -> Command:
        """The topics named after clusters and brokers, and the address of one broker that has the
        others.
        """
        names = set(self._routes.clusters)
        for brokers in self._routes.clusters.values():
            names.update(brokers)
        address = None
        for broker in self._routes.brokers.values():
            address = broker.broker_addrs[min(broker.broker_addrs)]
            break
        return command.reply(body=TopicList(topic_list=names, broker_addr=address).encode())

    @serves(RequestCode.GET_UNIT_TOPIC_LIST)
    def unit_topics(self, command: Command, channel: Channel) -> Command:
        """Topics of a unit."""
        return _listed(command, self._by_flag(TopicSysFlag.UNIT, TopicSysFlag.UNIT))

    @serves(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)
    def unit_subscribed_topics(self, command: Command, channel: Channel) -> Command:
        """Topics that units subscribe to."""
        return _listed(command, self._by_flag(TopicSysFlag.UNIT_SUB, TopicSysFlag.UNIT_SUB))

    @serves(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
    def unit_subscribed_only_topics(self, command: Command, channel: Channel) -> Command:
        """Topics to which units subscribe, and that are not topics of a unit."""
        mask = TopicSysFlag.UNIT | TopicSysFlag.UNIT_SUB
        return _listed(command, self._by_flag(TopicSysFlag.UNIT_SUB, mask))

    def _by_flag(self, wanted: int, mask: int) -> Iterable[str]:
        """Topics whose topicSysFlag under `mask` is `wanted`; one broker's flag is enough."""
        for topic, by_broker in self._routes.topics.items():
            if next(iter(by_broker.values())).topic_sys_flag & mask == wanted:
                yield topic


def _listed(command: Command, topics: Iterable[str]) -> Command:
    return command.reply(body=TopicList(topic_list=set(topics)).encode())
