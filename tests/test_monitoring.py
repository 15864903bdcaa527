"""The rules for alerts name only what the daemons tell."""

import asyncio
import re
from pathlib import Path

import yaml

from mq.daemons.broker.metrics import metrics_of as of_broker
from mq.daemons.metrics import LoopDelay
from mq.daemons.namesrv.metrics import metrics_of as of_name_server
from mq.daemons.standalone import Standalone

RULES = Path(__file__).parents[1] / "docs" / "monitoring" / "alerts.yml"
NAME = re.compile(r"\b(?:mq|rocketmq)_[a-z_]+")


def test_every_metric_of_a_rule_exists(tmp_path: Path) -> None:
    async def names() -> set[str]:
        async with Standalone(tmp_path, name_server_port=0, broker_port=0) as pair:
            told = {metric.name for metric in (*of_broker(pair.broker), LoopDelay().metric())}
            return told | {metric.name for metric in of_name_server(pair.name_server)}

    rules = [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]
    told = asyncio.run(names())
    for rule in rules:
        named = NAME.findall(rule["expr"])
        assert named and set(named) <= told, rule["alert"]
        assert rule["annotations"]["summary"] and rule["labels"]["severity"] in ("page", "warn")
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 10
