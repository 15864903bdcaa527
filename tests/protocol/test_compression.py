import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol.compression import CompressionType, compress, decompress
from mq.protocol.errors import RemoteProtocolError


def test_the_sys_flag_says_the_codec() -> None:
    flags = [kind.sys_flag for kind in CompressionType]
    assert flags == [0x101, 0x201, 0x301]


def test_old_clients_have_no_bits_for_zlib() -> None:
    assert decompress(zlib.compress(b"old"), 0x1) == b"old"


def test_a_body_without_the_bit_is_left_alone() -> None:
    body = b"plain"
    assert decompress(body, 0x300) is body


@given(st.sampled_from(CompressionType), st.binary())
def test_what_is_compressed_is_restored(kind: CompressionType, body: bytes) -> None:
    assert decompress(memoryview(compress(memoryview(body), kind)), kind.sys_flag) == body


@pytest.mark.parametrize("kind", CompressionType)
def test_a_bomb_is_refused(kind: CompressionType) -> None:
    bomb = compress(b"\0" * 1_000_000, kind)
    assert len(decompress(bomb, kind.sys_flag, limit=1_000_000)) == 1_000_000
    with pytest.raises(RemoteProtocolError, match="larger than 999999 bytes"):
        decompress(bomb, kind.sys_flag, limit=999_999)


def zstd_stream(body: bytes) -> bytes:
    """A frame that does not say the size of its content, as Java's stream writes it."""
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return stream.compress(body) + stream.flush()


def test_a_zstd_stream_of_unknown_size_is_restored_within_the_limit() -> None:
    stream = zstd_stream(b"y" * 500_000)
    assert decompress(stream, 0x201) == b"y" * 500_000
    with pytest.raises(RemoteProtocolError, match="larger than 499999 bytes"):
        decompress(stream, 0x201, limit=499_999)
    with pytest.raises(RemoteProtocolError, match="cut off"):
        decompress(stream[:-1], 0x201)


@pytest.mark.parametrize("kind", CompressionType)
@pytest.mark.parametrize("body", [b"", b"x" * 1000])
def test_a_body_cut_anywhere_is_refused(kind: CompressionType, body: bytes) -> None:
    packed = compress(body, kind)
    for length in range(len(packed)):
        with pytest.raises(RemoteProtocolError, match=r"cut off|damaged"):
            decompress(packed[:length], kind.sys_flag)


@pytest.mark.parametrize("flag", [0x401, 0x501, 0x601, 0x701])
def test_an_unknown_codec_is_refused(flag: int) -> None:
    with pytest.raises(RemoteProtocolError, match="is unknown"):
        decompress(b"", flag)


_SHORT_OF_MEMORY = """
import resource, sys
from pathlib import Path

from mq.protocol.compression import compress, decompress
from mq.protocol.errors import NoMemoryForBody
for kind in (1, 2, 3):  # what is loaded when first used is there
    decompress(compress(b"x", kind), 0x1 | kind << 8)
packed, flag = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
endless = resource.RLIM_INFINITY
for kilobytes in range(0, 4000, 400):
    resource.setrlimit(resource.RLIMIT_AS, (used + kilobytes * 1024, endless))
    raised = None
    try:
        decompress(packed, flag)
    except (MemoryError, NoMemoryForBody) as error:
        raised = error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (endless, endless))
    print(type(raised).__name__)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("codec", ["zlib", "LZ4", "zstd", "zstd as a stream"])
def test_a_whole_body_that_there_is_no_memory_for_is_not_called_damaged(
    codec: str, tmp_path: Path
) -> None:
    body = bytes(range(256)) * 4000
    kind = CompressionType[codec.split()[0].upper()]
    packed = zstd_stream(body) if "stream" in codec else compress(body, kind)
    (tmp_path / "body").write_bytes(packed)
    command = [sys.executable, "-c", _SHORT_OF_MEMORY, str(tmp_path / "body"), str(kind.sys_flag)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "NoMemoryForBody" in ended.stdout
