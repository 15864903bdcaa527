"""The bloom filter in a queue's extension: which groups' filters a message may match.

Each group with a filter on a topic has a few bits of a map; the map of a message has the bits of
all groups whose filter it matched when it was stored. Source: filter.util.BloomFilter of Java.
"""

import math
import struct
from collections.abc import Iterable

_MASK = (1 << 64) - 1
_FIRST = 0x87C37B91114253D5
_SECOND = 0x4CF5AD432745937F


class BloomFilter:
    """A filter for `groups` groups, with a rate of false matches of `error_rate` percent.

    Attributes:
        bits: the length of a map, a multiple of 8.
        hashes: the number of bits of a group.

    Raises ValueError for a rate outside 1..99 or fewer groups than 1.
    """

    __slots__ = ("bits", "hashes")

    def __init__(self, error_rate: int, groups: int) -> None:
        if not 1 <= error_rate <= 99:
            raise ValueError(f"an error rate of {error_rate} % is not in 1..99")
        if groups < 1:
            raise ValueError(f"{groups} groups: at least 1 is needed")
        # Logarithms are divided as in Java: rounding up must see the same last bit.
        rate = error_rate / 100.0
        self.hashes = math.ceil(_logarithm(0.5, rate))
        bits = math.ceil(groups * _logarithm(2, 1 / rate) * _logarithm(2, math.e))
        self.bits = 8 * math.ceil(bits / 8)

    def positions(self, text: str) -> tuple[int, ...]:
        """The bits of a text; that of a group and a topic is `group#topic`."""
        value = murmur3_64(text.encode("utf-8", "replace"))
        low, high = value & 0xFFFFFFFF, value >> 32
        positions = []
        for turn in range(1, self.hashes + 1):
            combined = (low + turn * high) & 0xFFFFFFFF
            if combined & 0x8000_0000:
                combined ^= 0xFFFFFFFF
            positions.append(combined % self.bits)
        return tuple(positions)

    def map_of(self, positions: Iterable[int]) -> bytes:
        """The map with these bits: bit p is bit p % 8 of byte p // 8."""
        raw = bytearray(self.bits // 8)
        for position in positions:
            raw[position >> 3] |= 1 << (position & 7)
        return bytes(raw)


def has_bits(bit_map: bytes, positions: Iterable[int]) -> bool:
    """Whether a map has all these bits."""
    return all(bit_map[position >> 3] & 1 << (position & 7) for position in positions)


def _logarithm(base: float, value: float) -> float:
    return math.log(value) / math.log(base)


def murmur3_64(data: bytes) -> int:
    """The first 64 bits of murmur3_128 with seed 0, as returned by Guava's HashCode.asLong."""
    first = second = 0
    whole = len(data) & ~15
    for low, high in struct.iter_unpack("<QQ", data[:whole]):
        first ^= _mix_first(low)
        first = (_rotate(first, 27) + second) * 5 + 0x52DCE729 & _MASK
        second ^= _mix_second(high)
        second = (_rotate(second, 31) + first) * 5 + 0x38495AB5 & _MASK
    low, high = struct.unpack("<QQ", data[whole:].ljust(16, b"\0"))
    first ^= _mix_first(low) ^ len(data)
    second ^= _mix_second(high) ^ len(data)
    first = first + second & _MASK
    second = second + first & _MASK
    return _finish(first) + _finish(second) & _MASK


def _mix_first(word: int) -> int:
    return _rotate(word * _FIRST & _MASK, 31) * _SECOND & _MASK


def _mix_second(word: int) -> int:
    return _rotate(word * _SECOND & _MASK, 33) * _FIRST & _MASK


def _rotate(word: int, by: int) -> int:
    return (word << by | word >> (64 - by)) & _MASK


def _finish(word: int) -> int:
    word ^= word >> 33
    word = word * 0xFF51AFD7ED558CCD & _MASK
    word ^= word >> 33
    word = word * 0xC4CEB9FE1A85EC53 & _MASK
    return word ^ word >> 33
