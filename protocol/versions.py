"""Releases by their numbers on the wire (org.apache.rocketmq.common.MQVersion)."""

from functools import lru_cache

CURRENT_VERSION = 409  # MQVersion.Version.V4_9_8, the release that this project follows


def version_name(version: int) -> str:
    """Return the name of a release from its number on the wire: 409 is "V4_9_8".

    Numbers past the list return "HIGHER_VERSION", as in MQVersion.getVersionDesc, and so do
    negative ones, for which Java throws.
    """
    names = _version_names()
    return names[version] if 0 <= version < len(names) else names[-1]


def version_number(name: str) -> int:
    """Return the number of a release from its name.

    Raises:
        ValueError: there is no such release.
    """
    return _version_names().index(name)


@lru_cache(maxsize=1)
def _version_names() -> tuple[str, ...]:
    """Return the names in the order of MQVersion.Version: except for the first, each release
    follows its SNAPSHOT.
    """
    names = ["V3_0_0_SNAPSHOT", "V3_0_0_ALPHA1"]
    names += [f"V3_0_0_BETA{n}" for n in range(1, 6)]
    for n in range(6, 10):
        names += [f"V3_0_0_BETA{n}_SNAPSHOT", f"V3_0_0_BETA{n}"]
    names.append("V3_0_0_FINAL")
    patches = [("V3_0", range(1, 16)), ("V3_1", range(10)), ("V3_2", range(10))]
    patches += [(f"V3_{minor}", range(1, 10)) for minor in range(3, 10)]  # no V3_3_0 … V3_9_0
    patches += [(f"V{major}_{minor}", range(10)) for major in (4, 5) for minor in range(10)]
    for series, numbers in patches:
        for patch in numbers:
            names += [f"{series}_{patch}_SNAPSHOT", f"{series}_{patch}"]
    return (*names, "HIGHER_VERSION")
