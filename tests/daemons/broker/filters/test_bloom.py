"""Bits of groups; the literals were printed by Java 4.9.7's BloomFilter."""

import pytest

from mq.daemons.broker.filters.bloom import BloomFilter, has_bits


@pytest.mark.parametrize(
    ("rate", "groups", "text", "bits", "positions"),
    [
        (20, 32, "g#t", 112, (22, 87, 58)),
        (20, 32, "please_rename_unique_group_name_4#TopicTest", 112, (63, 14, 51)),
        (10, 128, "gé#topic", 616, (341, 76, 433, 600)),
        (1, 1, "", 16, (0, 0, 0, 0, 0, 0, 0)),
        (20, 64, "CID_0123456789#0123456789abcdef", 216, (89, 56, 23)),
    ],
)
def test_the_bits_of_a_text_are_those_of_java(
    rate: int, groups: int, text: str, bits: int, positions: tuple[int, ...]
) -> None:
    bloom = BloomFilter(rate, groups)
    assert (bloom.bits, bloom.hashes) == (bits, len(positions))
    assert bloom.positions(text) == positions


def test_a_map_has_the_bits_that_were_put_into_it() -> None:
    bit_map = BloomFilter(20, 32).map_of((22, 87, 58))
    assert bit_map == bytes.fromhex("0000400000000004000080000000")
    assert has_bits(bit_map, (22, 87, 58))
    assert not has_bits(bit_map, (22, 87, 59))


@pytest.mark.parametrize(("rate", "groups"), [(0, 32), (100, 32), (20, 0)])
def test_an_invalid_filter_is_refused(rate: int, groups: int) -> None:
    with pytest.raises(ValueError, match=r"error rate|groups"):
        BloomFilter(rate, groups)
