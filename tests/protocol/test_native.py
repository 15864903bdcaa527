"""Which library is taken for the native path, and how one takes the place of another."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from mq.protocol.native import absent, load, native

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "protocol" / "native"
IS_BUILT = (FOLDER / "_native.abi3.so").exists() and os.environ.get("MQ_NATIVE") != "0"

built = pytest.mark.skipif(not IS_BUILT, reason="the native path is not built")


@built
def test_a_library_that_is_there_is_of_the_sources_beside_it() -> None:
    assert native is not None and absent == ""
    assert [name for name, _ in native.SOURCES] == sorted(
        path.name for path in (FOLDER / "src").iterdir()
    )


@built
def test_a_library_of_other_sources_is_not_taken(tmp_path: Path) -> None:
    sources = tmp_path / "src"
    shutil.copytree(FOLDER / "src", sources)
    assert load(sources) == (native, "")
    with (sources / "record.rs").open("a") as file:
        file.write("// changed\n")
    assert load(sources) == (None, "it is of other sources: run `make native`")
    (sources / "record.rs").unlink()
    assert load(sources) == (None, "it is of other sources: run `make native`")


@built
def test_an_installed_library_has_no_sources_beside_it_and_is_taken(tmp_path: Path) -> None:
    assert load(tmp_path / "src") == (native, "")


def test_none_is_taken_where_it_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQ_NATIVE", "0")
    assert load(FOLDER / "src") == (None, "MQ_NATIVE=0 turns it off")


@built
@pytest.mark.skipif(shutil.which("cargo") is None, reason="no Rust compiler")
def test_a_new_library_leaves_the_one_that_processes_have_mapped_as_it_was(tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(b"mapped")
    with library.open("rb") as mapped:
        made = subprocess.run(
            ["make", "--always-make", f"NATIVE={library}", "native"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        assert library.read_bytes().startswith(b"\x7fELF")
        assert mapped.read() == b"mapped"
    assert list(tmp_path.iterdir()) == [library]
