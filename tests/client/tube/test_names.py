"""The names of masters."""

import asyncio

import pytest

from mq.client.tube.service import Names, is_name, resolve_ipv4


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("master-1", True),
        ("tube.example", True),
        ("10.0.0.1", False),
        ("fe80::1", False),
        ("", False),
    ],
)
def test_a_name_begins_with_a_letter(host: str, expected: bool) -> None:
    assert is_name(host) is expected


def test_names_are_looked_up_when_they_are_new_and_again() -> None:
    asked: list[str] = []
    meaning = {"a": "10.0.0.1"}

    async def resolve(name: str) -> str | None:
        asked.append(name)
        return meaning.get(name)

    async def scenario() -> None:
        names = Names(resolve)
        await names.watch(["a", "10.0.0.9", "b", "a"])
        assert asked == ["a", "b"]
        assert [names.address(host) for host in ("a", "b", "10.0.0.9")] == [
            *("10.0.0.1", "b", "10.0.0.9"),
        ]
        await names.watch(["a"])
        assert asked == ["a", "b"]
        meaning.update(a="10.0.0.2", b="10.0.0.3")
        await names.look_up()
        assert (names.address("a"), names.address("b")) == ("10.0.0.2", "10.0.0.3")
        meaning.clear()
        await names.look_up()
        assert names.address("a") == "10.0.0.2"

    asyncio.run(scenario())


def test_the_system_is_asked_for_ipv4_addresses() -> None:
    assert asyncio.run(resolve_ipv4("localhost")) == "127.0.0.1"
    assert asyncio.run(resolve_ipv4("no-such-host.invalid")) is None
    assert asyncio.run(resolve_ipv4("x" * 64 + ".invalid")) is None
