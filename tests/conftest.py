"""The distribution of the suite: groups of test files, the longest first; what is left out."""

import functools
import gc
import json
import os
import re
import signal
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as property_settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from mq.client.options import ClientOptions
from mq.client.producer.options import ProducerOptions

# Modules are compiled once, as in an installation, and not by each of a thousand commands.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A busy machine answers more slowly than a user would accept. Tests of missing answers set their
# own timeouts.
for _options, _names in (
    (ClientOptions, ("timeout", "connect_timeout")),
    (ProducerOptions, ("timeout",)),
):
    _defaults = _options.__init__.__kwdefaults__
    assert _defaults is not None and _defaults.keys() >= set(_names)
    _defaults.update(dict.fromkeys(_names, 30.0))

# A shell that starts the suite in the background makes processes ignore Ctrl-C, which tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Objects created by the collection of tests are not garbage, and every process would scan them.
gc.disable()

ROOT = Path(__file__).resolve().parents[1]
# Set by `make test-long`: tests with the mark `long` run, and those with `longer` do more.
IS_LONG = bool(os.environ.get("MQ_TEST_LONG"))
# Set by `make test-more`: tests with the mark `only_more` run, and those with `more` do more.
IS_MORE = bool(os.environ.get("MQ_TEST_MORE"))


def share(count: int) -> int:
    """A quarter of a number of examples, seeds or inputs; all of them in `make test-more`."""
    return count if IS_MORE or IS_LONG else -(-count // 4)


# No deadlines: a busy machine makes any example slow.
property_settings.register_profile(
    "suite",
    deadline=None,
    max_examples=2_000 if IS_LONG else share(60),
    suppress_health_check=[HealthCheck.too_slow],
)
property_settings.load_profile("suite")

# They share the syntax trees of the sources.
STRUCTURAL = {f"tests/test_{name}.py" for name in ("imports", "seams", "sizes")}
# Fixtures of a whole run that take seconds to start; tests of one group share them.
SHARED = re.compile(r'\b(java_cluster: |spark_cluster: |both_tools: |spark: "SparkSession")')
DURATIONS = ROOT / "tests" / "durations.json"  # seconds by group; `make durations` writes it


@functools.cache
def group(file: str) -> str:
    """What a test file shares with others, such as a fixture, or the file itself."""
    if file in STRUCTURAL:
        return "the structure of the sources"
    used = sorted(set(SHARED.findall((ROOT / file).read_text(encoding="utf-8"))))
    names = "+".join(name.partition(":")[0] for name in used)
    if "spark" in names:  # all of them in sequence take as long as the whole suite
        # A start of Spark takes ten seconds of a core: too much for the few tests of TubeMQ alone.
        return f"spark of {file.rpartition('/')[0].removesuffix('/tube')}"
    if names == "java_cluster" and "console" in file:  # together they take as long as those of Java
        return f"{names} of the console"
    return names or file


class BySharedFixture(LoadFileScheduling):  # type: ignore[misc]  # which has no types
    """Like --dist=loadfile, but files with the same shared fixture go to the same process.

    Every other process starts with the shortest groups. The longest groups start JVMs, which use
    all cores; the shortest wait for timers. So neither kind is left to run alone at the end.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group(super()._split_scope(nodeid))

    def _assign_work_unit(self, node: WorkerController) -> None:
        if int(node.gateway.id.removeprefix("gw")) % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    config.option.loadscopereorder = False  # sorts by the number of tests, which puts Spark last
    return BySharedFixture(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this run has no time for; sort the others by time, so that all processes end
    together.
    """
    for mark, is_run in (("long", IS_LONG), ("only_more", IS_MORE)):
        left_out = [item for item in items if not is_run and item.get_closest_marker(mark)]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if not item.get_closest_marker(mark)]
    seconds: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    items.sort(key=lambda item: -seconds.get(group(item.nodeid.partition("::")[0]), 0))


def pytest_xdist_setupnodes() -> None:
    """The process that only distributes tests runs without garbage collection."""
    gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude modules and tests from later garbage collections: hundreds of MB."""
    gc.enable()
    gc.freeze()


_spent: defaultdict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _spent[group(report.nodeid.partition("::")[0])] += report.duration


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return  # not all have run
    if os.environ.get("MQ_TEST_DURATIONS") and "PYTEST_XDIST_WORKER" not in os.environ:
        longest = sorted(_spent.items(), key=lambda item: -item[1])
        known = {name: round(spent) for name, spent in longest if spent >= 2}
        DURATIONS.write_text(json.dumps(known, indent=1) + "\n")
