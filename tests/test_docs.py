"""Every document that shows commands, run against real daemons: see docs/runner."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from docs.runner.__main__ import ROOT, pages
from docs.runner.comparison import matched
from docs.runner.forker import Forker
from docs.runner.notebook import SparkSetup
from docs.runner.page import read
from docs.runner.play import Play
from tests.daemons.controller.etcd_server import require_etcd
from tests.pipeline.conftest import SPARK_IMPATIENT, require_spark
from tests.pipeline.jvm import jvm_options, spark_home
from tests.processes import running

# Each needs at least 20 s of a core for Spark; replica sets that lose their masters need nearly as
# much. docs/pipeline.md always runs; other tests cover the others.
LONG = (
    "docs/jobs/change-a-pair.md",
    "docs/jobs/elect-masters.md",
    "docs/jobs/exactly-once-checkpoints.md",
    "docs/jobs/web-logs-in-spark.md",
)
PAGES = [
    pytest.param(page, marks=pytest.mark.long) if page in LONG else page
    for page in (str(path.relative_to(ROOT)) for path in pages())
]


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    with Forker() as started:
        yield started


@pytest.fixture(scope="module")
def plays(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, forker: Forker
) -> Iterator[dict[str, "Future[Play]"]]:
    """The pages tested here, run concurrently, because most of the time is spent in other
    processes.
    """
    chosen = {
        str(item.callspec.params["page"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        if "page" in item.callspec.params
    }

    def play(page: str, folder: Path) -> Play:
        return Play(read(ROOT / page), folder / "run", forker, spark_setup(page))

    with ThreadPoolExecutor(3) as pool:
        yield {
            page: pool.submit(play, page, tmp_path_factory.mktemp("page"))
            for page in sorted(chosen)
        }


def has_cells(page: str) -> bool:
    return any(step.is_cell for step in read(ROOT / page).steps)


def spark_setup(page: str) -> SparkSetup:
    """The setup of the pipeline's tests, if cells are to be run and Spark is installed."""
    with suppress(ImportError):
        if has_cells(page) and shutil.which("java"):
            return SparkSetup(spark_home(), jvm_options())
    return SparkSetup()


@pytest.mark.timeout(480)  # one page starts Spark, and waits for the processes of others
@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_its_commands_print(
    page: str, plays: dict[str, "Future[Play]"], forker: Forker, tmp_path: Path
) -> None:
    if has_cells(page):
        require_spark()
    if "etcd" in read(ROOT / page).brokers:
        require_etcd()
    problems = plays[page].result().problems
    if any(SPARK_IMPATIENT in problem for problem in problems):  # not caused by the page
        play = Play(read(ROOT / page), tmp_path / "run", forker, spark_setup(page))
        problems = play.problems
    assert not problems, "\n".join(problems)


def test_every_link_of_a_document_leads_somewhere() -> None:
    for path in (ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")):
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text("utf-8")):
            if not link.startswith("http"):
                assert (path.parent / link).exists(), f"{path.name} links to {link}"


def test_the_map_of_the_documents_names_each_of_them() -> None:
    map_of_all = (ROOT / "docs" / "README.md").read_text("utf-8")
    linked = {(ROOT / "docs" / link).resolve() for link in re.findall(r"\]\(([^)#]+)", map_of_all)}
    there = {path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "decisions"}
    assert there - linked - {ROOT / "docs" / "README.md"} == set()


UUID = "8603a49b-f1a4-4068-be85-639612d04e3c"
PAGE = """\
<!-- cluster: -->
```console
$ echo one 2026-01-01T00:00:00Z
one 2025-12-31T23:59:59Z
$ echo two
three
$ false
```
"""


def test_an_outdated_page_is_reported_and_rewritten(tmp_path: Path, forker: Forker) -> None:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    play = Play(read(path), tmp_path / "run", forker)
    said, status = play.problems
    assert said.startswith("page.md:5: `echo two` prints something else")
    assert "    -three\n    +two" in said
    assert status == "page.md:7: `false` ends with status 1, which the page does not show"
    rewritten = play.rewritten()
    assert rewritten == PAGE.replace("three", "two").replace(
        "2025-12-31T23:59:59Z", "2026-01-01T00:00:00Z"
    )


def test_later_commands_get_the_ids_of_the_run(tmp_path: Path, forker: Forker) -> None:
    old, new = "0" * 31 + "A", "0" * 31 + "B"
    path = tmp_path / "page.md"
    path.write_text(
        f"<!-- cluster: -->\n```console\n$ tr A B <<< {old}\n{old}\n$ echo {old}\nx\n```\n"
    )
    play = Play(read(path), tmp_path / "run", forker)
    assert play.played[1].printed == [new]
    assert play.rewritten() == path.read_text().replace("\nx\n", f"\n{new}\n").replace(old, new)


def test_cells_run_in_one_python_and_their_output_is_compared(
    tmp_path: Path, forker: Forker
) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "<!-- cluster: -->\n```python\n# [1]\nfound = 1\n```\n"
        "```python\n# [2]\nprint('found', found + 1)\n```\n\n```text\nfound 3\n```\n"
        "```python\n# [3]\nprint('late')\nraise ValueError('why')\n```\n"
    )
    play = Play(read(path), tmp_path / "run", forker)
    compared, status, unseen = play.problems
    assert compared.startswith("page.md:7: `# [2]` prints something else")
    assert status.endswith(" ends with status 1, which the page does not show")
    assert "+ValueError: why" in unseen
    assert play.rewritten() == path.read_text().replace("found 3", "found 2")


def test_a_status_is_compared_even_if_other_figures_vary(tmp_path: Path, forker: Forker) -> None:
    path = tmp_path / "page.md"
    commands = "$ echo 12\n34\n$ echo $?\n1\n"
    path.write_text(f"<!-- cluster: -->\n<!-- figures vary -->\n```console\n{commands}```\n")
    (said,) = Play(read(path), tmp_path / "run", forker).problems
    assert "`echo $?` prints something else" in said


@contextmanager
def name_server(forker: Forker, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A running name server, started as pages start commands."""
    settings = folder / "namesrv.conf"
    settings.write_text(f"kvConfigPath={folder}/kv.json\nlistenPort=0\n")
    command = [*forker.command("mq"), "namesrv", "-c", str(settings)]
    with running(command, stderr=subprocess.STDOUT, env={"PYTHONUTF8": "1"}) as process:
        assert process.stdout is not None
        assert any("boot success" in line for line in process.stdout)
        yield process


def test_a_command_of_a_page_can_be_terminated_and_returns_its_own_status(
    tmp_path: Path, forker: Forker
) -> None:
    with name_server(forker, tmp_path) as process:
        process.terminate()
        assert process.wait() == 0
    refused = subprocess.run([*forker.command("mq"), "topicLis"], capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (64, "")
    assert "no command 'topicLis'" in refused.stderr


def test_a_killed_command_of_a_page_leaves_no_process(tmp_path: Path, forker: Forker) -> None:
    with name_server(forker, tmp_path) as process:
        process.kill()
        assert process.stdout is not None
        process.stdout.read()  # returns when all processes that have it open have ended


@pytest.mark.parametrize(
    ("shown", "printed", "options", "same"),
    [
        (["a  1", "..."], ["a 1", "b"], {}, True),
        (["..."], ["a", "b"], {}, True),
        (["...", "c"], ["a", "b", "c"], {}, True),
        (["...", "c"], ["a", "c", "b"], {}, False),
        (["a 1"], ["a 2"], {}, False),
        (["a 1"], ["a 2"], {"figures_vary": True}, True),
        (["a", "b"], ["b", "a"], {}, False),
        (["a", "b"], ["b", "a"], {"order_varies": True}, True),
        (["a", "..."], ["b", "c", "a"], {"order_varies": True}, True),
        (["a 0.25 s", "b 3 ms"], ["a 11.00 s", "b 4 ms"], {}, True),
        (["127.0.0.1:10911 to 127.0.0.1:40000"], ["127.0.0.1:10911 to 127.0.0.1:1"], {}, True),
        (["127.0.0.1:10911"], ["127.0.0.1:10912"], {}, False),
        ([f"a {UUID}"], [f"a {UUID.replace('8603', '86fe')}"], {}, True),
        ([f"a {UUID}"], [f"b {UUID}"], {}, False),
        (["V4_9_8"], ["V4_9_7"], {}, False),
    ],
)
def test_only_variable_figures_are_not_compared(
    shown: list[str], printed: list[str], options: dict[str, bool], same: bool
) -> None:
    chosen = {"figures_vary": False, "order_varies": False, **options}
    assert (matched(shown, printed, **chosen) is not None) == same
