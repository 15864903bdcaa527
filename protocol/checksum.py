"""CRC-32 as records carry it: ISA-L's where there is a build of it, ten times as fast as zlib's."""

try:
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this processor
    from zlib import crc32

__all__ = ["crc32"]
