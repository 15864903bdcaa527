"""Addresses as records hold them."""

import pytest

from mq.protocol.host import pack_address, unpack_address
from mq.protocol.record import IPV4_HOST, IPV6_HOST


@pytest.mark.parametrize(
    ("address", "packed"),
    [
        (("10.0.0.1", 10911), "0a00000100002a9f"),
        (("2001:db8::1", 7), "20010db8000000000000000000000001" + "00000007"),
    ],
)
def test_an_address_is_packed_and_read_again(address: tuple[str, int], packed: str) -> None:
    assert pack_address(*address).hex() == packed
    assert unpack_address(bytes.fromhex(packed)) == address
    assert len(pack_address(*address)) in (IPV4_HOST, IPV6_HOST)


def test_a_name_is_no_address() -> None:
    with pytest.raises(ValueError, match="'localhost' is not an IP address"):
        pack_address("localhost", 7)


@pytest.mark.parametrize("size", [0, 5, 19])
def test_what_is_not_as_long_as_an_address_is_refused(size: int) -> None:
    with pytest.raises(ValueError):
        unpack_address(bytes(size))
