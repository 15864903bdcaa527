"""Topics that a broker has removed are forgotten (delCleanedTopicDeployInfo)."""

import logging
from collections.abc import Iterable
from itertools import islice

from mq.daemons.tube.master.catalog import ChangeRefused
from mq.daemons.tube.master.core import Core
from mq.daemons.tube.master.records import TopicDeploy
from mq.daemons.tube.master.storage import MOST_CHANGES, Changes

log = logging.getLogger(__name__)


def forget_removed(core: Core, broker_id: int, topics: Iterable[str]) -> None:
    """Forget those of these topics that the broker was told to remove. Begins a change and does not
    wait for it: the broker says so again where it fails."""
    found = (topic for topic in topics if _is_to_go(core, broker_id, topic))
    gone = list(islice(found, MOST_CHANGES))  # the broker tells of the others again
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
