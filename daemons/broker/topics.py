"""The topics of a broker, kept in config/topics.json.

Topics that every broker has are there from the start and are overwritten by what the file says
(TopicConfigManager). Each change raises the data version, is on the disk before it can be seen, and
is told to `on_change` with the name of the topic, empty for all, so that name servers learn of it.
"""

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from mq.daemons.broker.config import BrokerConfig
from mq.daemons.state_file import read_with_backup, write_atomically
from mq.protocol import fastjson, names
from mq.protocol.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import Permission, TopicSysFlag

log = logging.getLogger(__name__)

READ_WRITE = Permission.READ | Permission.WRITE
DEFAULT_QUEUES = 16  # of a topic made without a number (TopicConfig.defaultReadQueueNums)
BENCHMARK_QUEUES = 1024
SCHEDULE_QUEUES = 18  # one for each delay level


def new_topic(name: str, queues: int, perm: int = READ_WRITE, sys_flag: int = 0) -> TopicConfig:
    """A topic with as many queues to read as to write."""
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_sys_flag=sys_flag,
    )


def system_topics(config: BrokerConfig) -> list[TopicConfig]:
    """The topics that a broker is born with."""
    inherit = Permission.INHERIT
    cluster_perm = inherit | (READ_WRITE if config.cluster_topic_enable else 0)
    broker_perm = inherit | (READ_WRITE if config.broker_topic_enable else 0)
    topics = [
        new_topic(names.SELF_TEST_TOPIC, 1),
        new_topic(names.BENCHMARK_TOPIC, BENCHMARK_QUEUES),
        new_topic(config.broker_cluster_name, DEFAULT_QUEUES, cluster_perm),
        new_topic(config.broker_name, 1, broker_perm),
        new_topic(names.OFFSET_MOVED_EVENT, 1),
        new_topic(names.SCHEDULE_TOPIC, SCHEDULE_QUEUES),
        new_topic(names.reply_topic(config.broker_cluster_name), 1),
    ]
    if config.auto_create_topic_enable:
        topics.append(
            new_topic(names.DEFAULT_TOPIC, config.default_topic_queue_nums, inherit | READ_WRITE)
        )
    if config.trace_topic_enable:
        topics.append(new_topic(config.msg_trace_topic_name, 1))
    return topics


class Topics:
    """The topics by name."""

    def __init__(self, path: Path, config: Callable[[], BrokerConfig]) -> None:
        """`config` gives the current configuration: autoCreateTopicEnable may change."""
        self._path = path
        self._config = config
        self.on_change: list[Callable[[str], None]] = []
        born = system_topics(config())
        self.system_names = names.SYSTEM_TOPICS | {topic.topic_name for topic in born}
        self.table: dict[str, TopicConfig] = {topic.topic_name: topic for topic in born}
        self.data_version = DataVersion(timestamp=time.time_ns() // 1_000_000, counter=0)
        saved = read_with_backup(path, _decode)
        if saved is not None:
            self.table.update(saved.topic_config_table)
            self.data_version = saved.data_version
        log.info("%d topics, data version %d", len(self.table), self.data_version.counter)

    def get(self, name: str) -> TopicConfig | None:
        return self.table.get(name)

    def is_system(self, name: str) -> bool:
        """Whether users may not create, change or delete it."""
        return name in self.system_names or names.is_system_topic(name)

    def wrapper(self) -> TopicConfigSerializeWrapper:
        """All topics, as brokers and name servers exchange them."""
        return TopicConfigSerializeWrapper(
            topic_config_table=self.table, data_version=self.data_version
        )

    def create_for_send(
        self, name: str, default_topic: str, queues: int, sys_flag: int, peer: str
    ) -> TopicConfig | None:
        """The topic of a send; if it is new, made after the default topic named by the client.

        None when there is no such default topic or it may not be inherited from
        (createTopicInSendMessageMethod).
        """
        known = self.table.get(name)
        if known is not None:
            return known
        model = self.table.get(default_topic)
        if model is None:
            log.warning("topic %s of %s not created: no default topic %s", name, peer,
                        default_topic, extra={"peer": peer})  # fmt: skip
            return None
        inheritable = bool(model.perm & Permission.INHERIT)
        if default_topic == names.DEFAULT_TOPIC and not self._config().auto_create_topic_enable:
            inheritable = False
        if not inheritable:
            log.warning("topic %s of %s not created: %s may not be inherited from", name, peer,
                        default_topic, extra={"peer": peer})  # fmt: skip
            return None
        topic = new_topic(
            name,
            max(0, min(queues, model.write_queue_nums)),
            model.perm & ~Permission.INHERIT,
            sys_flag,
        )
        topic.topic_filter_type = model.topic_filter_type
        log.info("topic %s created for %s: %d queues", name, peer, topic.write_queue_nums)
        self._put(topic)
        return topic

    def create_internal(
        self, name: str, queues: int, perm: int = READ_WRITE, sys_flag: int = 0
    ) -> TopicConfig:
        """A topic of the broker's own, such as a retry or dead letter topic; made if it is new."""
        known = self.table.get(name)
        if known is not None:
            return known
        topic = new_topic(name, queues, perm, sys_flag)
        log.info("topic %s created: %d queues", name, queues)
        self._put(topic)
        return topic

    def update(self, topic: TopicConfig) -> None:
        """Create a topic or change it.

        Raises:
            OSError: it could not be saved; nothing has changed.
        """
        old = self.table.get(topic.topic_name)
        self._put(topic)
        log.info("topic %s: %s -> %s", topic.topic_name, old, topic)

    def delete(self, name: str) -> bool:
        """Delete a topic; returns whether there was one.

        Raises:
            OSError: the change could not be saved; nothing has changed.
        """
        if name not in self.table:
            return False
        table = dict(self.table)
        del table[name]
        self._save(table)
        log.info("topic %s deleted", name)
        self._tell(name)
        return True

    def set_ordered(self, ordered: Iterable[str]) -> None:
        """Mark exactly these topics as ordered, as the name servers say."""
        wanted = set(ordered)
        differing = [t for t in self.table.values() if t.order != (t.topic_name in wanted)]
        if not differing:
            return
        for topic in differing:
            topic.order = topic.topic_name in wanted
            log.info("topic %s: order=%s", topic.topic_name, topic.order)
        self._save(self.table)

    def set_unit_flag(self, name: str, flag: int, value: bool) -> None:
        """Set or clear a bit of topicSysFlag, UNIT or UNIT_SUB."""
        assert flag in (TopicSysFlag.UNIT, TopicSysFlag.UNIT_SUB)
        topic = self.table.get(name)
        if topic is None:
            return
        changed = topic.topic_sys_flag | flag if value else topic.topic_sys_flag & ~flag
        if changed != topic.topic_sys_flag:
            topic.topic_sys_flag = changed
            self._put(topic)

    def next_version(self) -> None:
        """Raise the data version, so that name servers take in every topic again."""
        self._save(self.table)
        self._tell("")

    def save(self) -> None:
        """Write the file as it stands, without a new data version."""
        write_atomically(self._path, _encode(self.table, self.data_version))

    def _put(self, topic: TopicConfig) -> None:
        self._save({**self.table, topic.topic_name: topic})
        self._tell(topic.topic_name)

    def _save(self, table: dict[str, TopicConfig]) -> None:
        version = DataVersion(
            timestamp=time.time_ns() // 1_000_000, counter=self.data_version.counter + 1
        )
        write_atomically(self._path, _encode(table, version))
        self.table = table
        self.data_version = version

    def _tell(self, name: str) -> None:
        for callback in self.on_change:
            callback(name)


def _encode(table: dict[str, TopicConfig], version: DataVersion) -> bytes:
    wrapper = TopicConfigSerializeWrapper(topic_config_table=table, data_version=version)
    return fastjson.dumps_pretty(wrapper.to_plain())


def _decode(data: bytes) -> TopicConfigSerializeWrapper:
    try:
        return TopicConfigSerializeWrapper.decode(data)
    except RemoteProtocolError as error:
        raise ValueError(str(error)) from None
