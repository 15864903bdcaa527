"""The topics of a broker, kept in config/topics.json.

A table is never changed once others can see it: a change puts another one in its place.
Topics that every broker has are there from the start and are overwritten by what the file says
(TopicConfigManager). Each change raises the data version and is told to `on_change` with the name
of the topic, empty for all, so that name servers learn of it. A topic that is made for a send is on
the disk before it can be seen, as what an administrator changes is; but of many that are made in a
row, and of those that are made by the way otherwise, most are saved a little later: nobody else
shall wait for the disk. If the broker is killed before that, the topic's queues tell of it
(`adopt`).
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path

from mq.daemons.broker.broker_config import BrokerConfig
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.roles import is_slave
from mq.daemons.broker.tables.saved_table import SavedTable
from mq.daemons.dispatch import Overloaded, Refused
from mq.daemons.state_file import read_body
from mq.protocol import attributes, names
from mq.protocol.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from mq.protocol.bodies.route import MAX_QUEUES
from mq.protocol.codes import ResponseCode
from mq.protocol.flags import Permission, TopicSysFlag

log = logging.getLogger(__name__)

Table = dict[str, TopicConfig]

READ_WRITE = Permission.READ | Permission.WRITE
TOPICS_SETTING = "maxAutoCreatedTopics"
DEFAULT_QUEUES = 16  # of a topic made without a number (TopicConfig.defaultReadQueueNums)
BENCHMARK_QUEUES = 1024
_MOST_TOLD = 20  # topics made at once that the log names
SCHEDULE_QUEUES = 18  # one for each delay level
# A queue costs a folder, a file and memory in every broker.
MOST_QUEUES = MAX_QUEUES


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
    if config.enable_slave_acting_master:
        topics.append(new_topic(names.MEMBERS_TOPIC_PREFIX + config.broker_name, 1))
    if config.auto_create_topic_enable:
        topics.append(
            new_topic(names.DEFAULT_TOPIC, config.default_topic_queue_nums, inherit | READ_WRITE)
        )
    if config.trace_topic_enable:
        topics.append(new_topic(config.msg_trace_topic_name, 1))
    return topics


def no_such_topic(name: str) -> Refused:
    """What a client hears of a topic that has to be made first."""
    return Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!")


class Topics(SavedTable[TopicConfig]):
    """The topics by name."""

    def __init__(self, path: Path, settings: BrokerSettings) -> None:
        self._settings = settings
        self.on_change: list[Callable[[str], None]] = []
        born = system_topics(settings.broker)
        self.system_names = names.SYSTEM_TOPICS | {topic.topic_name for topic in born}
        saved = read_body(path, TopicConfigSerializeWrapper)
        super().__init__(
            path,
            "topicConfigTable",
            {topic.topic_name: topic for topic in born},
            None if saved is None else (saved.topic_config_table, saved.data_version),
            is_copy=lambda: is_slave(settings),
        )
        log.info("%d topics, data version %d", len(self.table), self.data_version.counter)

    def get(self, name: str) -> TopicConfig | None:
        return self.table.get(name)

    def is_system(self, name: str) -> bool:
        """Whether users may not create, change or delete it."""
        return (
            name in self.system_names
            or names.is_system_topic(name)
            or names.is_internal_topic(name)
        )

    def knows(self, name: str, queue_id: int) -> bool:
        """Whether messages of a queue can be served: it is configured, or the broker's own."""
        topic = self.table.get(name)
        if topic is not None and queue_id < max(topic.read_queue_nums, topic.write_queue_nums):
            return True
        return self.is_system(name) or name.startswith(names.LMQ_PREFIX)

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
        (createTopicInSendMessageMethod). Raises Overloaded when there are enough topics.
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
        if (
            default_topic == names.DEFAULT_TOPIC
            and not self._settings.broker.auto_create_topic_enable
        ):
            inheritable = False
        if not inheritable:
            log.warning("topic %s of %s not created: %s may not be inherited from", name, peer,
                        default_topic, extra={"peer": peer})  # fmt: skip
            return None
        most = self._settings.operation.max_auto_created_topics
        if 0 < most <= len(self.table):
            raise Overloaded(TOPICS_SETTING, f"[OVERLOAD]topic {name} is new, and there are {most}")
        topic = new_topic(
            name,
            max(0, min(queues, model.write_queue_nums)),
            model.perm & ~Permission.INHERIT,
            sys_flag,
        )
        topic.topic_filter_type = model.topic_filter_type
        log.info("topic %s created for %s: %d queues", name, peer, topic.write_queue_nums)
        # A Java broker that takes over the store after a kill knows only what is in the file.
        self._put_soon([topic], at_once=True)
        return topic

    def create_internal(
        self, name: str, queues: int, perm: int = READ_WRITE, sys_flag: int = 0
    ) -> TopicConfig:
        """A topic of the broker's own, such as a retry or dead letter topic; made if it is new."""
        known = self.table.get(name)
        if known is not None:
            return known
        topic = new_topic(name, queues, perm, sys_flag)
        self.create_all([topic])
        return topic

    def find_or_remake(self, name: str) -> TopicConfig | None:
        """The topic of a message that has waited. It may be missing though the message was
        acknowledged, if the broker was killed before the topic was saved: it is made again then,
        where a send would make it. None for one that is not made by sends."""
        known = self.table.get(name)
        if known is not None:
            return known
        if name.startswith((names.RETRY_PREFIX, names.DEAD_LETTER_PREFIX)):
            return self.create_internal(name, 1)
        config = self._settings.broker
        if not config.auto_create_topic_enable or self.is_system(name):
            return None
        return self.create_internal(name, config.default_topic_queue_nums)

    def create_all(self, topics: Sequence[TopicConfig]) -> None:
        """Make those topics of the broker's own that are new, and save them together."""
        new = [topic for topic in topics if topic.topic_name not in self.table]
        for topic in new[:_MOST_TOLD]:
            log.info("topic %s created: %d queues", topic.topic_name, topic.write_queue_nums)
        if len(new) > _MOST_TOLD:
            log.info("and %d more topics", len(new) - _MOST_TOLD)
        if new:
            self._put_soon(new)

    def adopt(self, queues: Mapping[str, int]) -> None:
        """Make topics that have messages but are not in the file.

        ``queues`` is how many queues of each topic there are on the disk.
        """
        found = []
        for name, count in queues.items():
            if name not in self.table and not names.is_system_topic(name):
                wanted = max(count, self._settings.broker.default_topic_queue_nums)
                if name.startswith(("%RETRY%", "%DLQ%")):
                    wanted = count
                log.warning("topic %s has messages but no settings: it gets the defaults", name)
                found.append(new_topic(name, wanted))
        if found:
            self._put_soon(found)

    def derive(self, name: str, queue_id: int) -> None:
        """Have a topic with at least this queue, because there are messages in it."""
        topic = self.table.get(name)
        if topic is None:
            self.adopt({name: queue_id + 1})
            return
        topic = copy(topic)
        topic.read_queue_nums = max(topic.read_queue_nums, queue_id + 1)
        topic.write_queue_nums = max(topic.write_queue_nums, queue_id + 1)
        self._put_soon([topic])

    async def update(self, topic: TopicConfig) -> None:
        """Create a topic or change it.

        Raises:
            OSError: it could not be saved; nothing has changed.
        """
        await self.update_all([topic])

    async def update_all(self, topics: Sequence[TopicConfig]) -> None:
        """Create topics or change them, all or none. Which are ordered only name servers say.

        The attributes of `topics` are changes (see `mq.protocol.attributes`).

        Raises:
            ValueError: of an attribute.
            OSError: they could not be saved; nothing has changed.
        """
        for topic in topics:
            known = self.table.get(topic.topic_name)
            current = None if known is None else known.attributes or {}
            attributes.check_changes(attributes.TOPIC, current, topic.attributes or {})
        old = self.table
        new = {topic.topic_name: topic for topic in topics}
        tell = partial(self._tell, list(new))
        await self._change(lambda table: {**table, **_with_kept(table, new)}, tell)
        for topic in topics:
            log.info("topic %s: %s -> %s", topic.topic_name, old.get(topic.topic_name), topic)

    async def delete(self, name: str, also: Callable[[], None] = lambda: None) -> bool:
        """Delete a topic; returns whether there was one.

        `also` deletes what belongs to it, in the same turn of the loop: a send that comes a turn
        later makes the topic anew, and what is stored in that one stays.

        Raises:
            OSError: the change could not be saved; nothing has changed. Or what `also` raises; the
                topic is gone then.
        """

        def then() -> None:
            self._tell([name])
            also()

        deleted = await self._delete(name, then, also)
        if deleted:
            log.info("topic %s deleted", name)
        return deleted

    async def set_ordered(self, ordered: Iterable[str]) -> None:
        """Mark exactly these topics as ordered, as the name servers say. Raises OSError."""
        wanted = set(ordered)
        others = [t.topic_name for t in self.table.values() if t.order != (t.topic_name in wanted)]
        if not others:
            return
        await self._change(lambda table: _ordered(table, wanted))
        for name in others:
            log.info("topic %s: order=%s", name, name in wanted)

    def set_unit_flag(self, name: str, flag: int, value: bool) -> None:
        """Set or clear a bit of topicSysFlag, UNIT or UNIT_SUB."""
        assert flag in (TopicSysFlag.UNIT, TopicSysFlag.UNIT_SUB)
        topic = self.table.get(name)
        if topic is None:
            return
        changed = topic.topic_sys_flag | flag if value else topic.topic_sys_flag & ~flag
        if changed != topic.topic_sys_flag:
            topic = copy(topic)
            topic.topic_sys_flag = changed
            self._put_soon([topic])

    async def take_copy(self, members: Table, version: DataVersion) -> None:
        """Have the topics that the master of this slave has. Raises OSError; nothing has changed.

        What lies in the queues of a topic that is gone stays until its log files go: that a master
        names no topics may be the master's loss.
        """
        gone = self.table.keys() - members.keys()
        await self.copy(members, version, partial(self._tell, [""]))
        log.info("topics of the master: %d, data version %d, %d are gone", len(members),
                 version.counter, len(gone))  # fmt: skip

    async def next_version(self) -> None:
        """Raise the data version, so that name servers take in every topic again."""
        await self._change(dict, partial(self._tell, [""]))

    def save(self) -> None:
        """Write the file as it stands, without a new data version. Raises OSError."""
        self.file.save()

    def _put_soon(self, topics: Sequence[TopicConfig], *, at_once: bool = False) -> None:
        """Put topics, and save them soon, or now unless that takes too much of the time."""
        self.table = {**self.table, **{topic.topic_name: topic for topic in topics}}
        self._changed(at_once=at_once)
        self._tell([topic.topic_name for topic in topics])

    def _tell(self, names: Sequence[str]) -> None:
        for name in names:
            for callback in self.on_change:
                callback(name)


def _with_kept(table: Table, new: Table) -> Table:
    """New topics with what they keep of those of their names: order, and attributes that they do
    not change."""
    found = {}
    for name, topic in new.items():
        known = table.get(name)
        found[name] = copy(topic)
        found[name].order = known is not None and known.order
        before = None if known is None else known.attributes
        found[name].attributes = attributes.apply_changes(before, topic.attributes) or None
    return found


def _ordered(table: Table, wanted: set[str]) -> Table:
    changed = dict(table)
    for name, topic in table.items():
        if topic.order != (name in wanted):
            changed[name] = copy(topic)
            changed[name].order = not topic.order
    return changed
