"""docs/pipeline.md and docs/pipeline-tubemq.md agree with the declarations."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from mq.pipeline.jobs import JOBS
from tests.pipeline.conftest import require_spark

require_spark()

from mq.pipeline import columns, sink_columns  # noqa: E402
from mq.pipeline.options import ReadOptions  # noqa: E402
from mq.pipeline.store_options import StoreOptions  # noqa: E402
from mq.pipeline.tube.columns import COLUMNS as TUBE_COLUMNS  # noqa: E402
from mq.pipeline.tube.options import TubeReadOptions  # noqa: E402
from mq.pipeline.write_options import WriteOptions  # noqa: E402

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "pipeline.md").read_text("utf-8")
TUBE_PAGE = (DOCS / "pipeline-tubemq.md").read_text("utf-8")
ROW = re.compile(r"^\| `([^`]+)` \| (?:`([^`]*)`)? ?\| (?:`(.*?)`)? ?\| (.*) \|$", re.MULTILINE)


def table(name: str) -> dict[str, tuple[str, str]]:
    """Return the default and the example of each option in a table."""
    found = re.search(rf"<!-- options: {name} -->\n(.*?)<!-- end -->", PAGE + TUBE_PAGE, re.DOTALL)
    assert found is not None
    lines = found[1].strip().splitlines()[2:]
    rows = {row[1]: (row[2] or "", row[3].replace("\\|", "|")) for row in ROW.finditer(found[1])}
    assert len(rows) == len(lines), "a line is not an option, or one is there twice"
    return rows


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("read", ReadOptions),
        ("write", WriteOptions),
        ("store", StoreOptions),
        ("tubemq", TubeReadOptions),
    ],
)
def test_every_option_is_documented_with_its_default_and_example(name: str, kind: Any) -> None:
    declared = {item.metadata["name"]: item for item in fields(kind) if "name" in item.metadata}
    shown = table(name)
    assert shown.keys() == declared.keys()
    for option, (default, example) in shown.items():
        item = declared[option]
        assert example == item.metadata["example"], option
        if default:
            assert item.metadata["parse"](default) == item.default, option
        else:
            assert item.default in (None, (), ""), option


@pytest.mark.parametrize(
    ("page", "heading", "there"),
    [
        (PAGE, "## Read", columns.COLUMNS),
        (PAGE, "## Write", sink_columns.COLUMNS),
        (TUBE_PAGE, "# Topics of TubeMQ in Spark", TUBE_COLUMNS),
    ],
    ids=["read", "write", "tubemq"],
)
def test_every_column_is_documented_with_its_types(page: str, heading: str, there: Any) -> None:
    section = f"\n{page}".partition(f"\n{heading}\n")[2].partition("<!-- options")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", section, re.MULTILINE))
    assert shown.keys() == there.keys()
    for name, kinds in there.items():
        first = next(iter(kinds))
        assert first in shown[name], name


def test_further_columns_are_documented() -> None:
    for name in columns.FURTHER_COLUMNS:
        assert f"`{name} " in PAGE


def test_every_job_is_in_the_table_of_jobs() -> None:
    section = PAGE.partition("\n## Jobs\n")[2].partition("\n### ")[0]
    assert set(re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE)) == set(JOBS)
