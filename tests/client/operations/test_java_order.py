"""Expected orders were printed by OpenJDK 17."""

import pytest

from mq.client.operations import java_order
from mq.protocol.bodies import MessageQueue

HASH_SETS = {
    6: "7919 31676 15838 0 39595 23757",
    13: "79190 7919 87109 95028 47514 39595 23757 71271 31676 55433 15838 0 63352",
    26: "7919 87109 95028 23757 134623 126704 31676 190056 79190 182137 110866 150461 47514 39595 "
    "118785 71271 174218 102947 197975 55433 166299 15838 0 63352 142542 158380",
}
PROPERTIES = {
    6: "3 1 5 0 2 4",
    13: "8 10 3 0 4 7 11 1 5 2 9 6 12",
    26: "15 10 23 3 14 16 19 11 25 5 6 24 8 22 0 17 4 7 20 18 1 2 13 9 21 12",
}

MERGED_MAPS = {
    (3, 0): "a2 a1 a0",
    (12, 0): "a10 a9 a11 a6 a5 a8 a7 a2 a1 a4 a3 a0",
    (3, 7): "b6 a2 b3 a1 b2 b5 b4 a0 b1 b0",
    (12, 7): "a10 a9 a11 a6 a5 b6 a8 a7 a2 b3 a1 b2 a4 b5 a3 b4 a0 b1 b0",
    (1, 12): "b11 b10 b7 b6 b9 b8 b3 b2 b5 b4 a0 b1 b0",
}


@pytest.mark.parametrize("size", HASH_SETS)
def test_a_hash_set_is_walked_as_java_walks_it(size: int) -> None:
    names = [f"t{number * 7919}" for number in range(size)]
    assert " ".join(java_order.hash_order(names)).replace("t", "") == HASH_SETS[size]


@pytest.mark.parametrize("size", PROPERTIES)
def test_properties_are_walked_as_java_walks_them(size: int) -> None:
    keys = [f"key{number * 31}Cfg" for number in range(size)]
    order = [str(keys.index(key)) for key in java_order.properties_order(keys)]
    assert " ".join(order) == PROPERTIES[size]


def test_a_smaller_first_table_grows_at_its_own_pace() -> None:
    names = [f"10.0.0.{number}:10911" for number in range(5)]
    ordered = java_order.hash_order(names, capacity=4)
    assert [name[7] for name in ordered] == ["0", "1", "4", "2", "3"]


@pytest.mark.parametrize("sizes", MERGED_MAPS, ids=str)
def test_maps_put_into_one_are_walked_as_java_walks_them(sizes: tuple[int, int]) -> None:
    parts = [
        java_order.hash_order(
            [MessageQueue("AdminTopic", f"broker-{name}", number) for number in range(size)],
            java_order.queue_hash,
        )
        for name, size in zip("ab", sizes, strict=True)
    ]
    merged = java_order.merged_order(parts, java_order.queue_hash)
    assert (
        " ".join(f"{queue.broker_name[-1]}{queue.queue_id}" for queue in merged)
        == (MERGED_MAPS[sizes])
    )
