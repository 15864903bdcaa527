"""How many processors a process may use."""

import os
from pathlib import Path

import pytest

from mq.client.machine.processors import available


@pytest.fixture(autouse=True)
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


@pytest.mark.parametrize(
    ("groups", "files", "count"),
    [
        ("0::/", {}, 8),
        ("0::/a/b", {"a/b/cpu.max": "max 100000\n"}, 8),
        ("0::/a/b", {"a/b/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/a/b", {"a/cpu.max": "50000 100000", "a/b/cpu.max": "max 100000"}, 0.5),
        ("0::/a/b", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "200000 100000"}, 2),
        (
            "0::/",
            {"cpu.max": "100000 100000"},
            1,
        ),  # a container that sees its own group as the root
        ("0::/of/its/host", {"cpu.max": "100000 100000"}, 1),  # and one that sees its host's path
        ("0::/../other", {"cpu.max": "100000 100000"}, 1),
        ("0::/a", {"a/cpu.max": "1600000 100000"}, 8),  # more than it may run on
        (
            "4:cpu,cpuacct:/a\n0::/",
            {
                "cpu,cpuacct/a/cpu.cfs_quota_us": "50000",
                "cpu,cpuacct/a/cpu.cfs_period_us": "100000",
            },
            0.5,
        ),
        ("1:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("3:cpuset:/a", {"cpuset/a/cpu.cfs_quota_us": "1", "cpuset/a/cpu.cfs_period_us": "9"}, 8),
        ("0::/a", {"a/cpu.max": "what is this"}, 8),
        ("0::/a", {"a/cpu.max": "100000 0"}, 8),
        ("nothing that is known", {"cpu.max": "100000 100000"}, 8),
        ("", {}, 8),
    ],
)
def test_a_quota_of_a_group_or_of_one_around_it_counts(
    groups: str, files: dict[str, str], count: float, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    (tmp_path / "cgroup").write_text(groups)
    assert available(tmp_path / "cgroup", tree) == count


def test_without_control_groups_those_count_that_it_may_run_on(tmp_path: Path) -> None:
    assert available(tmp_path / "none", tmp_path) == 8


def test_this_process_may_use_as_many_as_it_may_run_on_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    assert 0 < available() <= len(os.sched_getaffinity(0))
