"""Network addresses in records and ids: 4 or 16 bytes and a port of 4 bytes."""

import struct
from functools import lru_cache

_PORT = struct.Struct(">i")


@lru_cache(maxsize=4096)
def pack_host(host: str) -> bytes:
    """Return the 4 bytes of an IPv4 address or the 16 of an IPv6 address.

    Raises:
        ValueError: not a numeric address.
    """
    if ":" not in host:
        parts = host.split(".")
        if len(parts) == 4 and all(part.isdecimal() and part.isascii() for part in parts):
            numbers = [int(part) for part in parts]
            if max(numbers) < 256:
                return bytes(numbers)
        raise ValueError(f"{host!r} is not an IP address")
    import ipaddress  # takes 3 ms to import, and only IPv6 needs it

    return ipaddress.IPv6Address(host.partition("%")[0]).packed


@lru_cache(maxsize=4096)
def host_text(packed: bytes) -> str:
    """Format an address of 4 or 16 bytes, IPv6 in its short form without brackets.

    Raises:
        ValueError: neither 4 nor 16 bytes.
    """
    if len(packed) == 4:
        return ".".join(map(str, packed))
    import ipaddress

    return str(ipaddress.IPv6Address(packed))


def pack_address(host: str, port: int) -> bytes:
    """Pack a numeric address and a port as in records.

    Raises:
        ValueError: not a numeric address.
    """
    return pack_host(host) + _PORT.pack(port)


def unpack_address(packed: bytes) -> tuple[str, int]:
    """Unpack an address and a port.

    Raises:
        ValueError: invalid length.
    """
    host, port = split_address(packed)
    return host_text(host), port


def split_address(packed: bytes) -> tuple[bytes, int]:
    """Unpack an address as 4 or 16 bytes, and a port. Raises what `unpack_address` raises."""
    if len(packed) <= _PORT.size:
        raise ValueError(f"{len(packed)} bytes are no address and port")
    host = packed[: -_PORT.size]
    return host, _PORT.unpack_from(packed, len(host))[0]


def address_text(address: tuple[str, int]) -> str:
    """Format host and port as RocketMQ does: `10.0.0.1:10911`, `[::1]:10911`."""
    name, port = address
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
