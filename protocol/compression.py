"""Compressed bodies: zlib, LZ4 frames and zstd, distinguished by bits of the sysFlag.

Sources: org.apache.rocketmq.common.compression. The libraries are loaded on first use.
"""

from enum import IntEnum

from mq.protocol.errors import NoMemoryForBody, RemoteProtocolError
from mq.protocol.flags import SysFlag

# A producer refuses bodies over 4 MiB before it compresses them (maxMessageSize); a broker sees
# only the compressed ones. Sixteen times the default leaves room for raised limits, and is still
# far below the gigabytes that four crafted megabytes can grow to.
MAX_DECOMPRESSED = 64 * 1024 * 1024

_PIECE = 256 * 1024

# How zlib, zstd and LZ4 report a lack of memory, if not as MemoryError.
_NO_MEMORY = ("Error -4 ", "not enough memory", "allocation_failed")


class CompressionType(IntEnum):
    """The codec of a body. Wire values, in bits 0x700 of the sysFlag."""

    # 0 is zlib, from clients that know no other codec
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The bits that mark a body compressed with this codec."""
        return SysFlag.COMPRESSED | self << SysFlag.COMPRESSION_SHIFT


def compress(
    body: bytes | memoryview, kind: CompressionType = CompressionType.ZLIB, level: int = 5
) -> bytes:
    """Compress a body. LZ4 has no levels here, as in Java; the others take 0 to 9."""
    if kind == CompressionType.ZLIB:
        import zlib

        return zlib.compress(body, level)
    if kind == CompressionType.LZ4:
        import lz4.frame

        packed: bytes = lz4.frame.compress(body)
        return packed
    import zstandard

    return zstandard.ZstdCompressor(level=level).compress(body)


def decompress(
    body: bytes | memoryview, sys_flag: int, *, limit: int = MAX_DECOMPRESSED
) -> bytes | memoryview:
    """Return the body as its producer gave it; `body` itself if the sysFlag marks it as
    uncompressed.

    Raises:
        RemoteProtocolError: the body is damaged, of an unknown codec or larger than `limit` bytes;
            its subclass NoMemoryForBody if memory is lacking and the body may be intact.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    kind = (sys_flag & SysFlag.COMPRESSION_MASK) >> SysFlag.COMPRESSION_SHIFT
    if kind in (0, CompressionType.ZLIB):
        return _decompress_zlib(body, limit)
    if kind == CompressionType.LZ4:
        return _decompress_lz4(body, limit)
    if kind == CompressionType.ZSTD:
        return _decompress_zstd(body, limit)
    raise RemoteProtocolError(f"compression type {kind} is unknown")


def _decompress_zlib(body: bytes | memoryview, limit: int) -> bytes:
    import zlib

    decompressor = zlib.decompressobj()
    try:
        plain = decompressor.decompress(body, limit + 1)
    except (zlib.error, MemoryError) as error:
        raise _damaged("zlib", error) from None
    return _checked("zlib", plain, decompressor.eof, limit)


def _decompress_lz4(body: bytes | memoryview, limit: int) -> bytes:
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    try:
        plain = decompressor.decompress(body, limit + 1)
    except (RuntimeError, ValueError, MemoryError) as error:
        raise _damaged("LZ4", error) from None
    return _checked("LZ4", plain, decompressor.eof, limit)


def _decompress_zstd(body: bytes | memoryview, limit: int) -> bytes:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_DECOMPRESSED)
    try:
        size = zstandard.frame_content_size(body)
        if size > limit:
            raise _too_large("zstd", limit)
        if size > 0:
            return decompressor.decompress(body, allow_extra_data=False)
        # The frame does not have its size: check first whether it is within the limit.
        left = limit + 1
        with decompressor.stream_reader(body) as reader:
            while left > 0 and (piece := reader.read(min(_PIECE, left))):
                left -= len(piece)
        if left <= 0:
            raise _too_large("zstd", limit)
        stream = decompressor.decompressobj()
        plain = stream.decompress(body)
    except (zstandard.ZstdError, MemoryError) as error:
        raise _damaged("zstd", error) from None
    return _checked("zstd", plain, stream.eof, limit)


def _checked(codec: str, plain: bytes, whole: bool, limit: int) -> bytes:
    if len(plain) > limit:
        raise _too_large(codec, limit)
    if not whole:
        raise RemoteProtocolError(f"the {codec} body is cut off")
    return plain


def _too_large(codec: str, limit: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"the {codec} body is larger than {limit} bytes when decompressed")


def _damaged(codec: str, error: Exception) -> RemoteProtocolError:
    if isinstance(error, MemoryError) or any(sign in str(error) for sign in _NO_MEMORY):
        return NoMemoryForBody(f"there is no memory to decompress the {codec} body")
    return RemoteProtocolError(f"the {codec} body is damaged: {error}")
