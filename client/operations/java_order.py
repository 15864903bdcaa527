"""The iteration order of Java's sets and maps.

mqadmin processes and prints items in the order in which it iterates over Java's hash tables.
Scripts depend on that order, so this project reproduces it.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from mq.protocol.tags import java_hash

T = TypeVar("T")

_INT = 0xFFFFFFFF


def queue_hash(queue: Any) -> int:
    """Return MessageQueue.hashCode of Java."""
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
    """Return the items in the order in which a java.util.HashSet or HashMap iterates over them.

    `items` are in the order of insertion, `capacity` is the table's initial size. The table doubles
    when more than `load` of it is used; a bucket keeps the order of insertion.
    """
    unique = list(dict.fromkeys(items))
    while len(unique) > int(capacity * load):
        capacity *= 2

    def bucket(item: T) -> int:
        value = hash(item) & _INT
        return (value ^ (value >> 16)) & (capacity - 1)

    return sorted(unique, key=bucket)


def properties_order(keys: Iterable[str]) -> list[str]:
    """Return the keys in the order in which java.util.Properties iterates over them.

    Properties is a ConcurrentHashMap of 16 buckets. It doubles as soon as it is three quarters
    full, and splitting a bucket keeps its tail and reverses the items before it
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
        tail = len(bucket) - 1  # start of the last run of one side
        while tail and sides[tail - 1] == sides[tail]:
            tail -= 1
        halves: dict[int, list[str]] = {0: [], size: []}
        halves[sides[-1]] = bucket[tail:]
        for key, side in zip(bucket[:tail], sides, strict=False):
            halves[side].insert(0, key)
        wider[index], wider[index + size] = halves[0], halves[size]
    return wider


def merged_order(parts: Iterable[Iterable[T]], hash: Callable[[Any], int] = java_hash) -> list[T]:
    """Return the order of a HashMap into which whole maps were put one after the other
    (HashMap.putAll).

    Each of `parts` holds the keys of a map in its own order. putAll grows the table in advance, so
    it may be smaller or larger than one that grew by single keys.
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
