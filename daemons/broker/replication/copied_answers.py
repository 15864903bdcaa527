"""Parses and checks a master's replies for a slave, and skips entries that the slave cannot use.

A master may be wrong: another broker at its address, or another release. The entries become names
of files and numbers of queues here, as with client requests, so the same limits apply. One frame
(16 MiB) limits their number.
"""

import logging
from collections.abc import Iterable

from mq.daemons.broker.offsets.offset_table import SEPARATOR, decode_changed_offsets, decode_offsets
from mq.daemons.broker.topics.topic_table import MOST_QUEUES
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
_MAX_LOGGED = 5  # skipped names that are logged, of each kind


def read_topics(body: bytes) -> tuple[dict[str, TopicConfig], DataVersion]:
    """Parse the topics of GET_ALL_TOPIC_CONFIG. Raises RemoteProtocolError. May run in a thread."""
    wrapper = TopicConfigSerializeWrapper.decode(body)
    table = wrapper.topic_config_table
    good = {name: topic for name, topic in table.items() if _is_topic(name, topic)}
    _log_skipped("topics", table.keys() - good.keys())
    return good, wrapper.data_version


def read_groups(body: bytes) -> tuple[dict[str, SubscriptionGroupConfig], DataVersion]:
    """Parse the groups of GET_ALL_SUBSCRIPTIONGROUP_CONFIG. Raises RemoteProtocolError. May run in
    a thread.
    """
    wrapper = SubscriptionGroupWrapper.decode(body)
    table = wrapper.subscription_group_table
    good = {
        name: group for name, group in table.items() if is_legal(name) and group.group_name == name
    }
    _log_skipped("groups", table.keys() - good.keys())
    return good, wrapper.data_version


def read_offsets(body: bytes) -> dict[str, dict[int, int]]:
    """Parse the offsets of GET_ALL_CONSUMER_OFFSET, by topic@group and queue. Raises ValueError.
    May run in a thread.
    """
    return _good(decode_offsets(body))


def read_changed_offsets(body: bytes) -> dict[str, dict[int, int]]:
    """As `read_offsets`, for offsets committed at a slave while it was acting master."""
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
    _log_skipped("offsets", table.keys() - good.keys())
    return good


def is_legal(name: str) -> bool:
    """Whether a name is valid for a topic or a group. Retry topics may be as long as groups."""
    try:
        names.check_group(name)
    except names.IllegalName:
        return False
    return True


def _names_a_broker(name: str) -> bool:
    """Whether a topic may be named after a broker or a cluster, whose names may have all printable
    characters except / and \\."""
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


def _log_skipped(what: str, skipped: Iterable[str]) -> None:
    found = sorted(skipped)
    if found:
        shown = ", ".join(repr(name[:100]) for name in found[:_MAX_LOGGED])
        log.error("skipped %d %s of the master that cannot be used here: %s", len(found), what,
                  shown, extra={"failure": f"{what} of the master"})  # fmt: skip
