"""Which snode a request goes to."""

from collections import Counter

from mq.client.snode.session import ReachableSnodes

ADDRESSES = ["10.0.0.3:1", "10.0.0.1:1", "10.0.0.2:1"]


def ways(heard: set[str]) -> ReachableSnodes:
    made = ReachableSnodes(heard.__contains__)
    made.replace(ADDRESSES)
    return made


def send(number: int) -> dict[str, str]:
    return {"b": "T", "e": str(number)}


def test_queues_are_dealt_out_in_turn_and_all_that_concerns_one_meets() -> None:
    one, other = ways(set()), ReachableSnodes(set().__contains__)
    other.replace(sorted(ADDRESSES))
    chosen = [one.choose("a", send(number)) for number in range(12)]
    assert Counter(chosen) == dict.fromkeys(ADDRESSES, 4)
    assert chosen[0] != chosen[1] != chosen[2]
    assert chosen == [other.choose("a", send(number)) for number in range(12)]
    assert chosen == [
        other.choose("a", {"topic": "T", "queueId": str(number)}) for number in range(12)
    ]


def test_the_next_one_has_the_queues_of_a_snode_that_is_lost_until_it_is_heard() -> None:
    heard: set[str] = set()
    some = ways(heard)
    before = [some.choose("a", send(number)) for number in range(6)]
    lost = before[0]
    assert lost is not None
    some.lose(lost)
    after = [some.choose("a", send(number)) for number in range(6)]
    assert lost not in after
    assert [a for b, a in zip(before, after, strict=True) if b != lost] == [
        b for b in before if b != lost
    ]
    assert some.any_left
    heard.add(lost)
    assert [some.choose("a", send(number)) for number in range(6)] == before


def test_with_all_lost_it_is_the_one_that_it_would_be() -> None:
    some = ways(set())
    before = some.choose("a", send(0))
    for address in ADDRESSES:
        some.lose(address)
    assert not some.any_left
    assert some.choose("a", send(0)) == before


def test_without_snodes_there_is_no_way() -> None:
    none = ReachableSnodes(set().__contains__)
    assert none.choose("a", send(0)) is None
    assert not none.any_left


def test_an_address_that_is_no_snode_cannot_be_lost() -> None:
    some = ways(set())
    some.lose("10.0.0.9:1")
    some.replace([*ADDRESSES, "10.0.0.9:1"])
    assert some.has("10.0.0.9:1")
