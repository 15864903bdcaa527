"""Bodies of many megabytes in TubeMQ: commands hold the pending ones, and no multiple of them."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands.tube_pair import admin_of, running
from tests.cli.peaks import peak_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells of memory")

SIZE = 8 * 1024 * 1024  # of a body
COUNT = 12  # together more than the client lets wait for one broker


@pytest.fixture(scope="module")
def pair() -> Iterator[Any]:
    with running({"small": 1, "large": 1}) as pair:
        name = "admin_set_cluster_default_setting"
        admin_of(pair).change(name, maxMsgSizeInMB=20, createUser="mq")
        yield pair


@pytest.fixture(scope="module")
def variables(pair: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("mq")
    return {"MQ_TUBE_MASTERS": pair.master_address, "MQ_CONFIG_DIR": str(folder / "config")}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lines") / "lines"
    with path.open("wb") as lines:
        for number in range(COUNT):
            lines.write(b"%x" % number * SIZE + b"\n")
    return path


@pytest.fixture(scope="module")
def floor(variables: dict[str, str]) -> int:
    """The memory of sending almost nothing, in bytes."""
    peak = peak_of(["tube", "send", "small", "x"], variables)
    assert (peak.status, peak.err) == (0, "")
    return peak.bytes


@pytest.fixture(scope="module")
def sent(variables: dict[str, str], file: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """The memory of sending all of them, in bytes."""
    out = tmp_path_factory.mktemp("out") / "sent.csv"
    words = ["tube", "send", "large", "--lines", str(file), "-o", "csv"]
    peak = peak_of(words, variables, out=out)
    assert (peak.status, peak.err) == (0, "")
    assert len(out.read_text().splitlines()) == 1 + COUNT
    return peak.bytes


def test_a_file_is_sent_that_is_larger_than_what_may_be_under_way(sent: int, floor: int) -> None:
    assert sent - floor < COUNT * SIZE


@pytest.mark.parametrize("layout", ["plain", "json", "csv", "table"])
def test_one_reply_is_held_at_a_time(
    variables: dict[str, str], sent: int, floor: int, layout: str
) -> None:
    group = f"readers_{layout}"
    words = ["tube", "consume", "large", group, "--first", "--limit", "5", "-o", layout]
    peak = peak_of(words, variables)
    assert (peak.status, peak.err) == (0, "")
    assert peak.bytes - floor < 6 * SIZE


def test_who_sends_too_large_a_body_is_told_how_large_it_may_be(
    variables: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"x" * (21 * 1024 * 1024))
    peak = peak_of(["tube", "send", "large", "--lines", str(file)], variables)
    assert peak.status == 69
    assert peak.err.startswith("mq tube send: message 1: PARAMETER_MSG_OVER_MAX_LENGTH: ")
    assert peak.err.endswith(" bytes: 20971520 are allowed (maxMsgSizeInMB)")
