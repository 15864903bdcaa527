"""Which library becomes the native path, and how a new one replaces another."""

import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.index import index
from mq.protocol import batch, command, frame, record
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.flags import PullSysFlag, SysFlag
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


def sizes_before(fields: Sequence[tuple[str, str]], name: str) -> int:
    names = [one for one, _ in fields]
    return struct.calcsize(">" + "".join(letter for _, letter in fields[: names.index(name)]))


@built
def test_its_numbers_are_those_of_python() -> None:
    """As they are in the library itself: what is compiled, not what a source says."""
    ours = {
        **{f"AT_{name.upper()}": place for name, place in record.AT.items()},
        "HEAD_SIZE": record.HEAD_V4.size,
        "HOST_SIZE": record.IPV4_HOST,
        "SMALLEST_RECORD": record.SMALLEST_RECORD,
        "MAGIC": record.MAGIC_V1,
        "CRC_MASK": record.CRC_MASK,
        "TRANSACTION_COMMIT": SysFlag.TRANSACTION_COMMIT,
        "TRANSACTION_MASK": SysFlag.TRANSACTION_MASK,
        "IPV6_HOSTS": record.IPV6_BITS,
        "ENTRY_SIZE": layout.ENTRY_SIZE,
        "ENTRY_AT_RECORD_SIZE": struct.calcsize(layout.ENTRY.format[:2]),
        "ENTRY_AT_TAGS_CODE": struct.calcsize(layout.ENTRY.format[:3]),
        "FILLER_SIZE": layout.FILLER_SIZE,
        "INDEX_HEADER": layout.INDEX_HEADER.size,
        "INDEX_SLOT": layout.INDEX_SLOT.size,
        "INDEX_ITEM": layout.INDEX_ITEM.size,
        "INDEX_PUT": index.PUT.size,
        "JSON": command.JSON,
        "BINARY": command.ROCKETMQ,
        "SEND_V1": RequestCode.SEND_MESSAGE,
        "BATCH_HEAD": batch.HEAD.size,
        "BATCH_AT_SIZE": sizes_before(batch.HEAD_FIELDS, "size"),
        "BATCH_AT_FLAG": sizes_before(batch.HEAD_FIELDS, "flag"),
        "BATCH_AT_BODY_LENGTH": sizes_before(batch.HEAD_FIELDS, "body_length"),
        "FRAME_PREFIX": frame.PREFIX.size,
        "FRAME_LENGTH": struct.calcsize(frame.PREFIX.format[:2]),
        "HEADER_LENGTH": frame.HEADER_LENGTH,
        "RESPONSE": command.RESPONSE,
        "ONE_WAY": command.ONE_WAY,
        "SEND_V2": RequestCode.SEND_MESSAGE_V2,
        "SEND_BATCH": RequestCode.SEND_BATCH_MESSAGE,
        "SUCCESS": ResponseCode.SUCCESS,
        "PULL": RequestCode.PULL_MESSAGE,
        "COMMIT_OFFSET": PullSysFlag.COMMIT_OFFSET,
    }
    assert native is not None
    assert dict(native.LAYOUT) == ours


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
@pytest.mark.timeout(600)  # it is all compiled where only the library has been put into a checkout
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
