"""Answers of a master, read and checked: what a slave takes over from them, and what it leaves out.

A master may be wrong: another broker that has got its address, or one of another release. What is
taken here becomes names of files and numbers of queues, as what a client asks for does, so the same
limits hold. How much there is at most is what one frame holds (16 MiB).
"""

import logging
from collections.abc import Iterable

from mq.daemons.broker.tables.offsets import SEPARATOR, decode_changed_offsets, decode_offsets
from mq.daemons.broker.tables.topics import MOST_QUEUES
from mq.protocol import names
from mq.protocol.bodies import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)

log = logging.getLogger(__name__)

_LARGEST_OFFSET = (1 << 63) - 1
_MOST_TOLD = 5  # names that are left out, of each kind


def read_topics(body: bytes) -> tuple[dict[str, TopicConfig], DataVersion]:
    """The topics of GET_ALL_TOPIC_CONFIG. Raises RemoteProtocolError. May be called in a thread."""
    wrapper = TopicConfigSerializeWrapper.decode(body)
    table = wrapper.topic_config_table
    good = {name: topic for name, topic in table.items() if _is_topic(name, topic)}
    _tell_left_out("topics", table.keys() - good.keys())
    return good, wrapper.data_version


def read_groups(body: bytes) -> tuple[dict[str, SubscriptionGroupConfig], DataVersion]:
    """The groups of GET_ALL_SUBSCRIPTIONGROUP_CONFIG. Raises RemoteProtocolError. May be called in
    a thread."""
    wrapper = SubscriptionGroupWrapper.decode(body)
    table = wrapper.subscription_group_table
    good = {
        name: group for name, group in table.items() if is_legal(name) and group.group_name == name
    }
    _tell_left_out("groups", table.keys() - good.keys())
    return good, wrapper.data_version


def read_offsets(body: bytes) -> dict[str, dict[int, int]]:
    """The offsets of GET_ALL_CONSUMER_OFFSET, by topic@group and queue. Raises ValueError. May be
    called in a thread."""
    return _good(decode_offsets(body))


def read_changed_offsets(body: bytes) -> dict[str, dict[int, int]]:
    """The same of those that were committed at a slave while it acted as the master."""
    return _good(decode_changed_offsets(body))


def _good(table: dict[str, dict[int, int]]) -> dict[str, dict[int, int]]:
    good = {}
    for key, queues in table.items():
        topic, _, group = key.partition(SEPARATOR)
        if is_legal(topic) and is_legal(group):
            good[key] = {
                queue_id: offset
                for queue_id, offset in queues.items()
                if 0 <= queue_id < MOST_QUEUES and 0 <= offset <= _LARGEST_OFFSET
            }
    _tell_left_out("offsets", table.keys() - good.keys())
    return good


def is_legal(name: str) -> bool:
    """Whether a name may stand for a topic or a group. Topics of retries may have the length of
    groups."""
    try:
        names.check_group(name)
    except names.IllegalName:
        return False
    return True


def _names_a_broker(name: str) -> bool:
    """Whether a topic may be named after a broker or a cluster, which may have any printable name
    without / and \\."""
    return (
        0 < len(name) <= names.MAX_TOPIC_LENGTH
        and name.isprintable()
        and not {"/", "\\"} & {*name}
        and not name.isspace()
    )


def _is_topic(name: str, topic: TopicConfig) -> bool:
    queues = topic.read_queue_nums, topic.write_queue_nums
    return (
        (is_legal(name) or _names_a_broker(name))
        and topic.topic_name == name
        and all(0 <= count <= MOST_QUEUES for count in queues)
        and 0 <= topic.perm <= 15
    )


def _tell_left_out(what: str, left_out: Iterable[str]) -> None:
    found = sorted(left_out)
    if found:
        shown = ", ".join(repr(name[:100]) for name in found[:_MOST_TOLD])
        log.error("%d %s of the master are not taken over, they cannot be: %s", len(found), what,
                  shown, extra={"failure": f"{what} of the master"})  # fmt: skip
