"""Which tests run in the same process: those of a file, and files that share what starts slowly."""

import functools
import re
import signal
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

# A shell that starts the suite in the background has processes ignore Ctrl-C; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]
# Fixtures of a whole run that take ten seconds to start; tests of one group use several of them.
SHARED = re.compile(r'\b(java|spark)(?:_cluster: |: "SparkSession")')


@functools.cache
def group(file: str) -> str:
    """The fixture that a test file shares with others, or the file itself."""
    used = sorted(set(SHARED.findall((ROOT / file).read_text(encoding="utf-8"))))
    return "+".join(used) or file


class BySharedFixture(LoadFileScheduling):  # type: ignore[misc]  # which has no types
    """As --dist=loadfile, but files with the same shared fixture go to the same process."""

    def _split_scope(self, nodeid: str) -> str:
        return group(super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    config.option.loadscopereorder = False  # by the number of tests: those with Spark came last
    return BySharedFixture(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The groups first, as they take minutes: at the end of a run a process would work alone."""
    items.sort(key=lambda item: "/" in group(item.nodeid.partition("::")[0]))
