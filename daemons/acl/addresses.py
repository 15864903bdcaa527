"""The address patterns of ACL files (RemoteAddressStrategyFactory of 4.9.8).

  *                                any address; also *.*.*.* and *:*:*:*:*:*:*:*
  192.168.1.7, 2001:db8::1         one address
  10.0.0.1,10.0.0.2                several
  10.0.0.{1,2}                     several that differ in their last part
  192.168.*.*, 192.168.1-100.*     ranges of any part except the first
  2001:db8::1:*, 2001:db8::1-200:* the same in IPv6, hexadecimal, only at the end

Java evaluates only the first range of an IPv4 pattern and treats the following parts as `*`; here
every part counts.
"""

import ipaddress
from collections.abc import Callable
from functools import lru_cache

from mq.daemons.acl.errors import AclError

_ANY = frozenset(("*", "*.*.*.*", "*:*:*:*:*:*:*:*"))
_IPV4_PARTS = 4
_IPV6_PARTS = 8

Parts = tuple[int, ...]
Ranges = tuple[tuple[int, int], ...]
# Whether an address in the form of `parts_of` matches.
Matcher = Callable[[Parts | None], bool]


@lru_cache(maxsize=4096)  # each request of a connection checks its address
def parts_of(host: str) -> Parts | None:
    """The four or eight numbers of an address; None if the text is not an address.

    An IPv4 address in IPv6 form, as on a socket of both families, counts as IPv4.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            packed = address.packed
            return tuple(packed[i] << 8 | packed[i + 1] for i in range(0, 16, 2))
        address = address.ipv4_mapped
    return tuple(address.packed)


def matcher(pattern: str | None) -> Matcher:
    """The matcher of a pattern; an empty one matches nothing. Raises AclError if invalid."""
    text = (pattern or "").strip()
    if not text:
        return lambda parts: False
    if text in _ANY:
        return lambda parts: True
    if text.endswith("}"):
        return _several(_expand(text))
    if "," in text:
        return _several([part.strip() for part in text.split(",") if part.strip()])
    if "*" in text or "-" in text:
        return _in_ranges(_ranges(text))
    return _several([text])


def _several(addresses: list[str]) -> Matcher:
    wanted = set()
    for address in addresses:
        parts = parts_of(address)
        if parts is None:
            raise AclError(f"Netaddress examine Exception netaddress is {address}")
        wanted.add(parts)
    return lambda parts: parts in wanted


def _expand(text: str) -> list[str]:
    """Expand `10.0.0.{1,2}` to its addresses."""
    head, brace, tail = text[:-1].partition("{")
    endings = [ending.strip() for ending in tail.split(",") if ending.strip()]
    if not brace or head[-1:] not in (".", ":") or not endings:
        raise _wrong(text)
    return [head + ending for ending in endings]


def _in_ranges(ranges: Ranges) -> Matcher:
    size = len(ranges)

    def matches(parts: Parts | None) -> bool:
        return (
            parts is not None
            and len(parts) == size
            and all(low <= part <= high for part, (low, high) in zip(parts, ranges, strict=True))
        )

    return matches


def _ranges(text: str) -> Ranges:
    if ":" in text:
        return _ipv6_ranges(text)
    parts = [part.strip() for part in text.split(".")]
    if len(parts) != _IPV4_PARTS or not parts[0].isdecimal():
        raise _wrong(text)
    return tuple(_range(text, part, 10, 255) for part in parts)


def _ipv6_ranges(text: str) -> Ranges:
    head, gap, tail = text.partition("::")
    before = [part for part in head.split(":") if part]
    after = [part for part in tail.split(":") if part]
    missing = _IPV6_PARTS - len(before) - len(after)
    if missing < (1 if gap else 0) or (missing and not gap) or "::" in tail:
        raise _wrong(text)
    parts = [*before, *["0"] * missing, *after]
    # A `*` is the last part; a range is the last one, or the one before a final `*`
    # (AclUtils.IPv6AddressCheck).
    fixed = parts[: _IPV6_PARTS - (2 if parts[-1] == "*" else 1)]
    if any("*" in part or "-" in part for part in fixed) or parts[-2] == "*":
        raise _wrong(text)
    return tuple(_range(text, part, 16, 0xFFFF) for part in parts)


def _range(text: str, part: str, base: int, most: int) -> tuple[int, int]:
    if part == "*":
        return 0, most
    low, minus, high = part.partition("-")
    try:
        numbers = int(low, base), int(high if minus else low, base)
    except ValueError:
        raise _wrong(text) from None
    if not 0 <= numbers[0] <= numbers[1] <= most:
        raise _wrong(text)
    return numbers


def _wrong(text: str) -> AclError:
    return AclError(f"Netaddress examine scope Exception netaddress is {text}")
