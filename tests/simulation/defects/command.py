"""`python -m tests.simulation planted`: put past defects back, one at a time, and look for them.

Each patch of this folder is applied to a copy of the tree, and there seeds are run, or crash
points, until one fails. A seed that fails on the unchanged tree, too, does not count.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent
_ROOT = _FOLDER.parents[2]
_CODE = ("mq", "cli", "client", "daemons", "pipeline", "protocol", "systemd", "tests")
_FAILED = re.compile(r"^seed (\d+) failed: (.*)$", re.MULTILINE)
_MODULE = (sys.executable, "-m", "tests.simulation")


class Stale(Exception):
    """A patch does not fit the code any more."""


@dataclass(frozen=True)
class Defect:
    """A patch. ``find`` is "seeds", with the first of them, or "points", with a workload."""

    name: str
    fix: str
    defect: str
    find: tuple[str, ...]

    @property
    def path(self) -> Path:
        return _FOLDER / f"{self.name}.patch"


@dataclass(frozen=True)
class Outcome:
    """``where`` is the seed or the command that failed, "" if none did in time."""

    where: str
    tried: str
    problem: str
    seconds: float


def read_all() -> list[Defect]:
    return [_read(path) for path in sorted(_FOLDER.glob("*.patch"))]


def _read(path: Path) -> Defect:
    head: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if line.startswith("diff "):
            break
        name, _, value = line.partition(": ")
        head[name] = value
    return Defect(path.stem, head["Fix"], head["Defect"], tuple(head["Find"].split()))


def _git_apply(defect: Defect, tree: Path, *options: str) -> str:
    """Apply a patch. Returns git's error, or ""."""
    done = subprocess.run(
        ("git", "apply", *options, str(defect.path)),
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stderr.strip() if done.returncode else ""


def is_stale(defect: Defect, tree: Path = _ROOT) -> str:
    """Return the error if a patch does not fit a tree, otherwise ""."""
    error = _git_apply(defect, tree, "--check")
    return f"{defect.path.name} does not fit the code any more: {error}" if error else ""


@contextmanager
def planted(defect: Defect) -> Iterator[Path]:
    """A copy of the tree with a defect in it. Raises Stale."""
    with tempfile.TemporaryDirectory(prefix=f"mq-{defect.name}-") as name:
        copy = Path(name)
        for part in _CODE:
            shutil.copytree(_ROOT / part, copy / part, symlinks=True,
                            ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip
        if text := is_stale(defect, copy):
            raise Stale(text)
        _git_apply(defect, copy)
        yield copy


def find(defect: Defect, seconds: float, processes: int) -> Outcome:
    """Look for a defect for so long at most. Raises Stale."""
    began = time.monotonic()
    with planted(defect) as copy:
        if defect.find[0] == "points":
            return _find_point(defect, copy, began, seconds)
        return _find_seed(defect, copy, began, seconds, processes)


def _find_seed(defect: Defect, copy: Path, began: float, seconds: float, processes: int) -> Outcome:
    first = start = int(defect.find[1])
    while (left := seconds - (time.monotonic() - began)) > 0:
        out = _run(copy, left, "--first", str(start), "--seeds", "1000000", "--no-shrink",
                   "--until-failure", "--processes", str(processes))  # fmt: skip
        found = _FAILED.search(out)
        if found is None:
            break
        seed, elapsed = int(found[1]), time.monotonic() - began
        if not _FAILED.search(
            _run(_ROOT, 60.0, "--first", str(seed), "--seeds", "1", "--no-shrink")
        ):
            return Outcome(f"seed {seed}", f"{seed - first + 1} seeds", found[2], elapsed)
        start = seed + 1
    return Outcome("", f"seeds from {first} on", "", time.monotonic() - began)


def _find_point(defect: Defect, copy: Path, began: float, seconds: float) -> Outcome:
    arguments = ("points", "--workload", *defect.find[1:], "--until-failure")
    out = _run(copy, seconds, *arguments)
    elapsed = time.monotonic() - began
    found = re.search(r"^(python -m tests\.simulation points .*)\n +(.*)$", out, re.MULTILINE)
    starts = re.search(r"(\d+) subsets, (\d+) starts; again \d+ points, (\d+) starts", out)
    tried = f"{int(starts[2]) + int(starts[3])} starts" if starts else ""
    if found is None:
        return Outcome("", tried, "", elapsed)
    return Outcome(" ".join(found[1].split()[4:]), tried, found[2], elapsed)


def _run(tree: Path, seconds: float, *arguments: str) -> str:
    """What a run of the simulation in a tree prints, up to its end or the end of its time."""
    process = subprocess.Popen(
        (*_MODULE, *arguments), cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        process_group=0,
    )  # fmt: skip
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        return process.communicate()[0]


def main(arguments: list[str]) -> int:
    """Returns the exit status: 1 if one was not found, 2 if a patch is stale."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation planted",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help="of patches; none: all")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each at most")
    parser.add_argument("--processes", type=int, default=1, help="for seeds")
    given = parser.parse_args(arguments)
    status = 0
    for defect in read_all():
        if given.names and defect.name not in given.names:
            continue
        try:
            outcome = find(defect, given.seconds, given.processes)
        except Stale as error:
            print(f"STALE      {error}", flush=True)
            status = 2
            continue
        mark = "found" if outcome.where else "NOT FOUND"
        print(f"{mark:<10} {defect.name}: {outcome.where or 'nothing fails'}, {outcome.tried}, "
              f"{outcome.seconds:.0f} s. {outcome.problem}", flush=True)  # fmt: skip
        if not outcome.where:
            status = max(status, 1)
    return status
