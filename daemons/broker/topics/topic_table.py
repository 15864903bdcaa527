"""The topics of a broker, kept in config/topics.json.

A table is never modified once it is visible: a change replaces it. The topics that every broker has
exist from the start and are overwritten by the file (TopicConfigManager). Each change raises the
data version and is reported to `on_change` with the name of the topic, or "" for all, so that name
servers are informed. A topic created for a send is on the disk before it is visible, like an
administrator's change. But of many topics created in a row, and of those created otherwise, most
are saved a little later, so that other requests do not wait for the disk. If the broker is killed
before that, the topic's queues show that it exists (`adopt`).
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
DEFAULT_QUEUES = 16  # of a topic created without a number (TopicConfig.defaultReadQueueNums)
BENCHMARK_QUEUES = 1024
_MOST_TOLD = 20  # limit of topics created at once that are logged
SCHEDULE_QUEUES = 18  # one for each delay level
# A queue costs a folder, a file and memory in every broker.
MOST_QUEUES = MAX_QUEUES


def new_topic(name: str, queues: int, perm: int = READ_WRITE, sys_flag: int = 0) -> TopicConfig:
    """A topic with equal numbers of queues to read and to write."""
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_sys_flag=sys_flag,
    )


def system_topics(config: BrokerConfig) -> list[TopicConfig]:
    """The initial topics of every broker."""
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
    """The refusal for a topic that must be created first."""
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
        """Whether messages of a queue can be served: it is configured, or used by the broker
        itself.
        """
        topic = self.table.get(name)
        if topic is not None and queue_id < max(topic.read_queue_nums, topic.write_queue_nums):
            return True
        return self.is_system(name) or name.startswith(names.LMQ_PREFIX)

    def wrapper(self) -> TopicConfigSerializeWrapper:
        """All topics, in the form that brokers and name servers exchange."""
        return TopicConfigSerializeWrapper(
            topic_config_table=self.table, data_version=self.data_version
        )

    def create_for_send(
        self, name: str, default_topic: str, queues: int, sys_flag: int, peer: str
    ) -> TopicConfig | None:
        """The topic of a send; if missing, it is created from the default topic that the client
        names.

        None if that default topic does not exist or may not be inherited from
        (createTopicInSendMessageMethod). Raises Overloaded at the limit of topics.
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
        # A Java broker that takes over the store after a kill knows only the topics in the file.
        self._put_soon([topic], at_once=True)
        return topic

    def create_internal(
        self, name: str, queues: int, perm: int = READ_WRITE, sys_flag: int = 0
    ) -> TopicConfig:
        """Return an internal topic, such as a retry or dead letter topic; creates it if missing."""
        known = self.table.get(name)
        if known is not None:
            return known
        topic = new_topic(name, queues, perm, sys_flag)
        self.create_all([topic])
        return topic

    def find_or_remake(self, name: str) -> TopicConfig | None:
        """Return the topic of a message that has waited.

        It may be missing although the message was acknowledged, if the broker was killed before the
        topic was saved. Then it is created again if a send would create it; otherwise the result is
        None.
        """
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
        """Create the internal topics that are missing, and save them together."""
        new = [topic for topic in topics if topic.topic_name not in self.table]
        for topic in new[:_MOST_TOLD]:
            log.info("topic %s created: %d queues", topic.topic_name, topic.write_queue_nums)
        if len(new) > _MOST_TOLD:
            log.info("and %d more topics", len(new) - _MOST_TOLD)
        if new:
            self._put_soon(new)

    def adopt(self, queues: Mapping[str, int]) -> None:
        """Create topics that have messages but are not in the file.

        ``queues`` is the number of queues of each topic on the disk.
        """
        found = []
        for name, count in queues.items():
            if name not in self.table and not names.is_system_topic(name):
                wanted = max(count, self._settings.broker.default_topic_queue_nums)
                if name.startswith(("%RETRY%", "%DLQ%")):
                    wanted = count
                log.warning("topic %s has messages but no configuration; using defaults", name)
                found.append(new_topic(name, wanted))
        if found:
            self._put_soon(found)

    def derive(self, name: str, queue_id: int) -> None:
        """Ensure that a topic has at least this queue, because it has messages."""
        topic = self.table.get(name)
        if topic is None:
            self.adopt({name: queue_id + 1})
            return
        topic = copy(topic)
        topic.read_queue_nums = max(topic.read_queue_nums, queue_id + 1)
        topic.write_queue_nums = max(topic.write_queue_nums, queue_id + 1)
        self._put_soon([topic])

    async def update(self, topic: TopicConfig) -> None:
        """Create or change a topic.

        Raises:
            OSError: it could not be saved; nothing has changed.
        """
        await self.update_all([topic])

    async def update_all(self, topics: Sequence[TopicConfig]) -> None:
        """Create or change topics, all or none. Only name servers decide which are ordered.

        The attributes of `topics` are changes (see `mq.protocol.attributes`).

        Raises:
            ValueError: an attribute is wrong.
            OSError: they could not be saved; nothing has changed.
        """
        for topic in topics:
            known = self.table.get(topic.topic_name)
            current = None if known is None else known.attributes or {}
            attributes.check_changes(attributes.TOPIC, current, topic.attributes or {})
        old = self.table
        new = {topic.topic_name: topic for topic in topics}
        notify = partial(self._notify, list(new))
        await self._change(lambda table: {**table, **_with_kept(table, new)}, notify)
        for topic in topics:
            log.info("topic %s: %s -> %s", topic.topic_name, old.get(topic.topic_name), topic)

    async def delete(self, name: str, also: Callable[[], None] = lambda: None) -> bool:
        """Delete a topic; returns whether it existed.

        `also` deletes the topic's other data, in the same turn of the event loop: a send in the
        next turn creates the topic again, and its messages must stay.

        Raises:
            OSError: the change could not be saved; nothing has changed. Or what `also` raises; the
              topic is deleted then.
        """

        def then() -> None:
            self._notify([name])
            also()

        deleted = await self._delete(name, then, also)
        if deleted:
            log.info("topic %s deleted", name)
        return deleted

    async def set_ordered(self, ordered: Iterable[str]) -> None:
        """Mark exactly these topics as ordered, as name servers require. Raises OSError."""
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
        """Replace the topics by those of this slave's master. Raises OSError; nothing has changed
        then.

        Messages of a removed topic stay until their log files expire, because the master may have
        lost its topics.
        """
        gone = self.table.keys() - members.keys()
        await self.copy(members, version, partial(self._notify, [""]))
        log.info("topics of the master: %d, data version %d, %d removed", len(members),
                 version.counter, len(gone))  # fmt: skip

    async def next_version(self) -> None:
        """Raise the data version, so that name servers accept every topic again."""
        await self._change(dict, partial(self._notify, [""]))

    def save(self) -> None:
        """Write the file as it is, without a new data version. Raises OSError."""
        self.file.save()

    def _put_soon(self, topics: Sequence[TopicConfig], *, at_once: bool = False) -> None:
        """Store topics, and save them soon, or now unless that takes too much time."""
        self.table = {**self.table, **{topic.topic_name: topic for topic in topics}}
        self._changed(at_once=at_once)
        self._notify([topic.topic_name for topic in topics])

    def _notify(self, names: Sequence[str]) -> None:
        for name in names:
            for callback in self.on_change:
                callback(name)


def _with_kept(table: Table, new: Table) -> Table:
    """New topics with the order flag, and the attributes that they do not change, of the existing
    ones.
    """
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
