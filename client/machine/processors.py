"""The number of processors that this process may use at once."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_GROUPS = Path("/proc/self/cgroup")
_TREE = Path("/sys/fs/cgroup")


def available(groups: Path = _GROUPS, tree: Path = _TREE) -> float:
    """Return the processors that this process may run on, limited by the quota of its control
    groups: `CPUQuota=` of systemd, `--cpus` of a container, `limits` of Kubernetes.

    ``groups`` is the file that lists its groups, and ``tree`` is where they are mounted.
    """
    return min((_allowed(), *_quotas(groups, tree)))


def _allowed() -> float:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def _quotas(groups: Path, tree: Path) -> Iterator[float]:
    """Yield the quotas of its groups and their parent groups, in processors."""
    for line in _text(groups).splitlines():
        hierarchy, controllers, path = [*line.split(":", 2), "", ""][:3]
        if hierarchy == "0":  # version 2
            for folder in _and_above(tree, path):
                yield from _quota(_text(folder / "cpu.max"))
        elif "cpu" in controllers.split(","):
            for folder in _and_above(tree / controllers, path):
                files = (folder / f"cpu.cfs_{name}_us" for name in ("quota", "period"))
                yield from _quota(" ".join(map(_text, files)))


def _and_above(mounted: Path, path: str) -> Iterator[Path]:
    """Yield a group's folder and its parents. In a container the path may be that of the host,
    while the container's own group is mounted.
    """
    inside = PurePosixPath(path.lstrip("/"))
    for one in (inside, *inside.parents):
        if ".." not in one.parts:
            yield mounted / one


def _quota(text: str) -> Iterator[float]:
    """Yield the processors of a quota in microseconds per period; "max" and -1 mean no quota."""
    quota, period, *_ = (*text.split(), "", "")
    if quota.isdecimal() and period.isdecimal() and int(period):
        yield int(quota) / int(period)


def _text(file: Path) -> str:
    """Return the content of a kernel file; empty if it cannot be read."""
    try:
        return file.read_text()
    except (OSError, ValueError):
        return ""
