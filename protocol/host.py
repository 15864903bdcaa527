"""Network addresses as records and ids hold them: 4 or 16 bytes and a port of 4."""

import struct
from functools import lru_cache

_PORT = struct.Struct(">i")


@lru_cache(maxsize=4096)
def pack_host(host: str) -> bytes:
    """The 4 bytes of an IPv4 address or the 16 of an IPv6 address.

    Raises:
        ValueError: not an address in figures.
    """
    if ":" not in host:
        parts = host.split(".")
        if len(parts) == 4 and all(part.isdecimal() and part.isascii() for part in parts):
            numbers = [int(part) for part in parts]
            if max(numbers) < 256:
                return bytes(numbers)
        raise ValueError(f"{host!r} is not an IP address")
    import ipaddress  # 3 ms, which only those who use IPv6 shall pay

    return ipaddress.IPv6Address(host.partition("%")[0]).packed


@lru_cache(maxsize=4096)
def host_text(packed: bytes) -> str:
    """An address of 4 or 16 bytes in figures, IPv6 in its short form without brackets.

    Raises:
        ValueError: neither 4 nor 16 bytes.
    """
    if len(packed) == 4:
        return ".".join(map(str, packed))
    import ipaddress

    return str(ipaddress.IPv6Address(packed))


def pack_address(host: str, port: int) -> bytes:
    """An address in figures and a port as records hold them.

    Raises:
        ValueError: not an address in figures.
    """
    return pack_host(host) + _PORT.pack(port)


def unpack_address(packed: bytes) -> tuple[str, int]:
    """The same, read.

    Raises:
        ValueError: not as long as one.
    """
    host, port = split_address(packed)
    return host_text(host), port


def split_address(packed: bytes) -> tuple[bytes, int]:
    """The same with the 4 or 16 bytes of the address as they are. Raises ValueError, too."""
    if len(packed) <= _PORT.size:
        raise ValueError(f"{len(packed)} bytes are no address and port")
    host = packed[: -_PORT.size]
    return host, _PORT.unpack_from(packed, len(host))[0]


def address_text(address: tuple[str, int]) -> str:
    """Host and port as RocketMQ writes them: `10.0.0.1:10911`, `[::1]:10911`."""
    name, port = address
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
