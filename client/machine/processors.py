"""How many processors this process may use at once."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_GROUPS = Path("/proc/self/cgroup")
_TREE = Path("/sys/fs/cgroup")


def available(groups: Path = _GROUPS, tree: Path = _TREE) -> float:
    """The processors that this process may run on, or fewer, where its control groups have a quota:
    `CPUQuota=` of systemd, `--cpus` of a container, `limits` of Kubernetes.

    ``groups`` is the file that names its groups, and ``tree`` where they are mounted.
    """
    return min((_allowed(), *_quotas(groups, tree)))


def _allowed() -> float:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def _quotas(groups: Path, tree: Path) -> Iterator[float]:
    """Those of its groups and of the groups around them, in processors."""
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
    """A group's folder and those above it. In a container the path may be one of its host, where
    its own group is what is mounted."""
    inside = PurePosixPath(path.lstrip("/"))
    for one in (inside, *inside.parents):
        if ".." not in one.parts:
            yield mounted / one


def _quota(text: str) -> Iterator[float]:
    """Of so many microseconds in a period; there is none that is "max", or -1."""
    quota, period, *_ = (*text.split(), "", "")
    if quota.isdecimal() and period.isdecimal() and int(period):
        yield int(quota) / int(period)


def _text(file: Path) -> str:
    """What stands in a file of the kernel; nothing where there is none that can be read."""
    try:
        return file.read_text()
    except (OSError, ValueError):
        return ""
