"""master.ini and broker.ini."""

from pathlib import Path

import pytest

from mq.daemons.config import ConfigError
from mq.daemons.tube.ini import parse_ini, read_ini


def test_sections_pairs_and_comments_are_told_apart() -> None:
    text = "a=1\n; one\n# other\n\n[master]\n port = 8715 \nlist=a:1;b=2\n[ x ]\npath: C:\\tmp\n"
    assert parse_ini(text) == {
        "": {"a": "1"},
        "master": {"port": "8715", "list": "a:1;b=2"},
        "x": {"path": "C:\\tmp"},
    }


def test_a_section_that_comes_twice_is_one() -> None:
    assert parse_ini("[a]\nx=1\ny=1\n[b]\n[a]\nx=2")["a"] == {"x": "2", "y": "1"}


@pytest.mark.parametrize("line", ["port", "=1", "[a", "[]"])
def test_any_other_line_is_refused_by_its_number(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        parse_ini(f"a=1\n{line}\n")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.ini: No such file"):
        read_ini(tmp_path / "none.ini")
    (tmp_path / "x.ini").write_bytes(b"\xff\xff")
    with pytest.raises(ConfigError, match=r"x\.ini"):
        read_ini(tmp_path / "x.ini")
    (tmp_path / "bom.ini").write_bytes(b"\xef\xbb\xbf[a]\nx=1")
    assert read_ini(tmp_path / "bom.ini")["a"] == {"x": "1"}
