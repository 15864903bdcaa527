import asyncio
import io
import os
from collections.abc import Callable, Iterator

import pytest

from mq.client.operations.messages.line_source import AHEAD, LineSource, reader_of
from tests.client.scenarios import in_a_loop


def chunks(*parts: bytes) -> Callable[[int], bytes]:
    rest: Iterator[bytes] = iter(parts)
    return lambda size: next(rest, b"")


async def lines_of(read: Callable[[int], bytes], longest: int = 100) -> list[bytes]:
    with LineSource(read, longest=longest) as source:
        return [line async for lines in source for line in lines]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((b"a\nb\n",), [b"a", b"b"]),
        ((b"a\nb",), [b"a", b"b"]),
        ((b"a", b"b\n", b"\nc"), [b"ab", b"", b"c"]),
        ((b"\n\n",), [b"", b""]),
        ((b"a\r\n",), [b"a\r"]),
        ((), []),
    ],
)
@in_a_loop
async def test_lines_are_cut_out_of_chunks(parts: tuple[bytes, ...], expected: list[bytes]) -> None:
    assert await lines_of(chunks(*parts)) == expected


@in_a_loop
async def test_a_line_that_is_too_long_is_cut_and_the_next_one_is_whole() -> None:
    read = chunks(b"short\n" + b"x" * 8, b"x" * 8, b"x" * 8 + b"\nnext\n", b"y" * 30)
    assert await lines_of(read, longest=10) == [b"short", b"x" * 11, b"next", b"y" * 11]


@in_a_loop
async def test_an_empty_list_says_that_no_more_is_there_now() -> None:
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as pipe, LineSource(reader_of(pipe), longest=100) as source:
        found = aiter(source)
        assert await anext(found) == []
        os.write(theirs, b"one\ntw")
        assert await anext(found) == [b"one"]
        assert await anext(found) == []
        os.write(theirs, b"o\n")
        os.close(theirs)
        rest = [line async for lines in found for line in lines]
    assert rest == [b"two"]


@in_a_loop
async def test_no_more_is_read_ahead_than_a_few_chunks() -> None:
    read, held = 0, asyncio.Event()
    loop = asyncio.get_running_loop()

    def endless(size: int) -> bytes:
        nonlocal read
        read += 1
        if read == AHEAD:
            loop.call_soon_threadsafe(held.set)
        return b"line\n"

    with LineSource(endless, longest=100) as source:
        await held.wait()
        taken = 0
        async for lines in source:
            taken += len(lines)
            assert read <= taken + AHEAD + 1
            if taken == 100:
                break


@in_a_loop
async def test_end_wakes_readers_of_lines() -> None:
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as pipe, LineSource(reader_of(pipe), longest=100) as source:

        async def all_lines() -> list[list[bytes]]:
            return [lines async for lines in source]

        waiting = asyncio.ensure_future(all_lines())
        await asyncio.sleep(0)
        source.end()
        assert await waiting == [[]]
        os.close(theirs)


@in_a_loop
async def test_a_read_error_is_raised_after_the_lines() -> None:
    parts = iter([b"one\n"])

    def read(size: int) -> bytes:
        try:
            return next(parts)
        except StopIteration:
            raise OSError(5, "Input/output error") from None

    found: list[bytes] = []
    with LineSource(read, longest=100) as source:
        with pytest.raises(OSError, match="Input/output error"):
            async for lines in source:
                found += lines
    assert found == [b"one"]


@in_a_loop
async def test_text_without_a_descriptor_is_read_too() -> None:
    assert await lines_of(reader_of(io.StringIO("Grüße\nx"))) == ["Grüße".encode(), b"x"]
