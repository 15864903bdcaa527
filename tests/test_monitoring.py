"""The alert rules and the dashboard use only existing metrics and labels."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import PROCESS_COLLECTOR

from mq.daemons.broker.app import Broker
from mq.daemons.controller.app import Controller
from mq.daemons.controller.config import ControllerSettings
from mq.daemons.metrics import LoopDelay, Metric
from mq.daemons.namesrv.app import metrics_of as of_name_server
from mq.daemons.snode.app import Snode
from mq.daemons.standalone import Standalone
from tests.daemons.broker.replication.pair import settings_of
from tests.daemons.broker.replication.sets import ScriptedControllers, set_master
from tests.daemons.snode.world import snode_settings

MONITORING = Path(__file__).parents[1] / "docs" / "monitoring"
# A name with its braces, and the list of labels of a sum.
NAME = re.compile(r"\b((?:mq|rocketmq|process)_[a-z_]+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\b(?:by|without) \(([^)]*)\)")
OF_PROMETHEUS = {"instance", "job"}


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The labels of each metric of a daemon, in Prometheus' form."""

    async def told() -> list[Metric]:
        folder = tmp_path_factory.mktemp("store")
        async with Standalone(folder, name_server_port=0, broker_port=0) as pair:
            found = [*pair.broker.metrics().all(), LoopDelay().metric()]
            server = pair.name_server
            known = (server.routes, server.beacons, server.snodes)
            found += of_name_server(server.listener, server.tasks, *known)
        async with set_master(folder / "set", ScriptedControllers()) as master:
            found += master.metrics().all()
        slave = {"brokerRole": "SLAVE", "brokerId": "1", "enableSlaveActingMaster": "true"}
        async with Broker(settings_of(folder / "slave", **slave)) as acting:
            found += acting.metrics().all()
        async with Snode(snode_settings("127.0.0.1:1")) as snode:
            found += snode.metrics()
        nowhere = {"listenPort": "0", "etcdEndpoints": "http://127.0.0.1:1"}
        async with Controller(ControllerSettings.load(None, nowhere)) as controller:
            return [*found, *controller.metrics()]

    of_process = {
        sample.name for family in PROCESS_COLLECTOR.collect() for sample in family.samples
    }
    return {name: OF_PROMETHEUS for name in of_process} | {
        metric.name: {*metric.labels, *metric.constant, *OF_PROMETHEUS}
        for metric in asyncio.run(told())
    }


def wrong(expression: str, labels: dict[str, set[str]]) -> Iterator[str]:
    """The unknown names in a Prometheus expression."""
    names = NAME.findall(expression)
    if not names:
        yield f"no metric in {expression}"
    known: set[str] = set()
    for name, matchers in names:
        if name not in labels:
            yield f"no metric {name}"
            continue
        known |= labels[name]
        for label in re.findall(r"(\w+)\s*[=!]~?", matchers):
            if label not in labels[name]:
                yield f"{name} has no label {label}"
    for grouped in GROUPED.findall(expression):
        for label in re.split(r",\s*", grouped):
            if label not in known:
                yield f"{expression} has no label {label}"


def test_every_metric_of_a_rule_exists(labels: dict[str, set[str]]) -> None:
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    for rule in rules:
        assert list(wrong(rule["expr"], labels)) == [], rule["alert"]
        assert rule["annotations"]["summary"] and rule["labels"]["severity"] in ("page", "warn")
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 10


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return found


def test_every_metric_of_the_dashboard_exists_and_has_the_labels_that_are_shown(
    dashboard: dict[str, Any], labels: dict[str, set[str]]
) -> None:
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            assert list(wrong(expression, labels)) == [], panel["title"]
            # A sum has the labels that it is grouped by, everything else those of its metric.
            grouped = GROUPED.findall(expression)
            has = set(re.split(r",\s*", grouped[0])) if grouped else set()
            if not grouped and "sum(" not in expression:
                has = {*labels[NAME.findall(expression)[0][0]]}
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert shown <= has, panel["title"]


def test_the_dashboard_shows_the_state_of_replicas(dashboard: dict[str, Any]) -> None:
    shown = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name, _ in NAME.findall(target["expr"])
    }
    assert shown >= {
        *("mq_replication_lag_bytes", "mq_replication_lag_seconds", "mq_in_sync_replicas"),
        *("mq_master_epoch", "mq_replication_epoch", "mq_has_master"),
        *("mq_elections_total", "mq_elections_failed_total", "mq_controller_leads"),
    }


def test_the_dashboard_can_be_imported(dashboard: dict[str, Any]) -> None:
    (source,) = dashboard["__inputs"]
    assert (source["type"], source["pluginId"]) == ("datasource", "prometheus")
    uses = re.findall(r"\$\{(\w+)\}", json.dumps(dashboard))
    assert set(uses) == {source["name"]}  # asked for at the import; other places need no change
    assert dashboard["id"] is None
    required = {part["id"] for part in dashboard["__requires"] if part["type"] == "panel"}
    panels = dashboard["panels"]
    assert {panel["type"] for panel in panels} == required
    assert len({panel["id"] for panel in panels}) == len(panels)
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = re.findall(r"\$(\w+)", " ".join(t["expr"] for p in panels for t in p["targets"]))
    assert set(used) == variables | {"__rate_interval"}
    taken = [
        (x, y)
        for grid in (panel["gridPos"] for panel in panels)
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(taken) == len(set(taken)) and max(x for x, _ in taken) == 23


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("sum(mq_broker)", "no metric mq_broker"),
        ('mq_brokers{topic="a"}', "mq_brokers has no label topic"),
        ("sum by (topic) (mq_brokers)", "sum by (topic) (mq_brokers) has no label topic"),
        ("sum(up)", "no metric in sum(up)"),
    ],
)
def test_unknown_metrics_and_labels_are_found(
    expression: str, told: str, labels: dict[str, set[str]]
) -> None:
    assert list(wrong(expression, labels)) == [told]
