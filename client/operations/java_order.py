"""The order in which Java walks sets and maps.

mqadmin does and prints things as it walks them, so the order of its lines is the order of Java's
hash tables. Scripts see that order; we give the same.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from mq.protocol.tags import java_hash

T = TypeVar("T")

_INT = 0xFFFFFFFF


def queue_hash(queue: Any) -> int:
    """MessageQueue.hashCode in Java."""
    value = 1
    for part in (java_hash(queue.broker_name), queue.queue_id, java_hash(queue.topic)):
        value = (31 * value + part) & _INT
    return value


def hash_order(
    items: Iterable[T],
    hash: Callable[[Any], int] = java_hash,
    capacity: int = 16,
    load: float = 0.75,
) -> list[T]:
    """The items in the order in which a java.util.HashSet or HashMap walks them.

    `items` come in the order of insertion, `capacity` is the table's first size. The table doubles
    when more than `load` of it is taken; a bucket keeps the order of insertion.
    """
    unique = list(dict.fromkeys(items))
    while len(unique) > int(capacity * load):
        capacity *= 2

    def bucket(item: T) -> int:
        value = hash(item) & _INT
        return (value ^ (value >> 16)) & (capacity - 1)

    return sorted(unique, key=bucket)


def properties_order(keys: Iterable[str]) -> list[str]:
    """The keys in the order in which java.util.Properties walks them.

    Properties is a ConcurrentHashMap of 16 buckets. It doubles as soon as it is three quarters
    full, and a bucket that is split keeps its tail and turns round what comes before
    (ConcurrentHashMap.transfer).
    """
    table: list[list[str]] = [[] for _ in range(16)]
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            continue
        seen.add(key)
        table[_spread(key) & (len(table) - 1)].append(key)
        if len(seen) >= len(table) * 3 // 4:
            table = _split(table)
    return [key for bucket in table for key in bucket]


def _spread(key: str) -> int:
    value = java_hash(key) & _INT
    return (value ^ (value >> 16)) & 0x7FFFFFFF


def _split(table: list[list[str]]) -> list[list[str]]:
    size = len(table)
    wider: list[list[str]] = [[] for _ in range(2 * size)]
    for index, bucket in enumerate(table):
        if not bucket:
            continue
        sides = [_spread(key) & size for key in bucket]
        tail = len(bucket) - 1  # where the last run of one side begins
        while tail and sides[tail - 1] == sides[tail]:
            tail -= 1
        halves: dict[int, list[str]] = {0: [], size: []}
        halves[sides[-1]] = bucket[tail:]
        for key, side in zip(bucket[:tail], sides, strict=False):
            halves[side].insert(0, key)
        wider[index], wider[index + size] = halves[0], halves[size]
    return wider


def merged_order(parts: Iterable[Iterable[T]], hash: Callable[[Any], int] = java_hash) -> list[T]:
    """The order of a HashMap that whole maps were put into one after the other (HashMap.putAll).

    Each of `parts` are the keys of a map in its own order. putAll makes room beforehand, so that
    the table may be smaller or larger than one that grew by single keys.
    """
    merged: list[T] = []
    capacity = 0
    for part in parts:
        keys = list(part)
        if not keys:
            continue
        if capacity == 0:
            capacity = 1 << int(len(keys) / 0.75).bit_length()
        while len(keys) > capacity * 3 // 4:
            capacity *= 2
        merged += keys
        while len(set(merged)) > capacity * 3 // 4:
            capacity *= 2
    return hash_order(merged, hash, capacity or 16)
