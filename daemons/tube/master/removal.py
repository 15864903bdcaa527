"""Records of removed topics are deleted (delCleanedTopicDeployInfo)."""

import logging
from collections.abc import Iterable
from itertools import islice

from mq.daemons.tube.master.catalog import ChangeRefused
from mq.daemons.tube.master.core import Core
from mq.daemons.tube.master.records import TopicDeploy
from mq.daemons.tube.master.storage import MOST_CHANGES, Changes

log = logging.getLogger(__name__)


def forget_removed(core: Core, broker_id: int, topics: Iterable[str]) -> None:
    """Delete the records of these topics if the broker was to remove them.

    It starts a change and does not wait for it: if it fails, the broker reports the topics
    again."""
    found = (topic for topic in topics if _is_to_go(core, broker_id, topic))
    gone = list(islice(found, MOST_CHANGES))  # the broker reports the others again
    if not gone:
        return

    def step() -> Changes:
        return {
            (TopicDeploy.kind, f"{broker_id}-{topic}"): None
            for topic in gone
            if _is_to_go(core, broker_id, topic)
        }

    async def work() -> None:
        try:
            await core.catalog.change(step)
        except ChangeRefused as error:
            log.warning("topics that broker %d has removed are kept: %s", broker_id, error)

    core.spawn(work, "removed topics")


def _is_to_go(core: Core, broker_id: int, topic: str) -> bool:
    deploy = core.catalog.deploy(broker_id, topic)
    return deploy is not None and deploy.status.is_removed
