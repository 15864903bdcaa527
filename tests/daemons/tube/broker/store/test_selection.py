"""Which records of the index are chosen, by Python and by the native library."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.daemons.tube.broker.store.layout import INDEX, INDEX_SIZE, MAX_RECORD
from mq.daemons.tube.broker.store.selection import (
    Selection,
    select_in_python,
    select_natively,
)
from mq.protocol.native import native

Select = Callable[..., Selection]

BOTH = [
    select_in_python,
    pytest.param(
        select_natively, marks=pytest.mark.skipif(native is None, reason="it is not built")
    ),
]


def entries(*records: tuple[int, int, int, int]) -> bytes:
    """Records of the index: partition, offset, size, key code."""
    return b"".join(INDEX.pack(*record, 0) for record in records)


@pytest.mark.parametrize("select", BOTH)
def test_records_in_a_row_are_one_run(select: Select) -> None:
    piece = entries((1, 0, 60, -1), (1, 60, 70, -1), (2, 130, 60, -1), (1, 190, 60, -1))
    found = select(piece, 1, None, (0, 250), 10_000)
    apart = select(piece, 1, None, (0, 250), 10_000, (59, 1000))
    assert found == Selection(4 * INDEX_SIZE, 250, 190, False, 3, [(0, 250)], 0)
    assert apart.runs == [(0, 130), (190, 60)]
    longest = select(piece, 1, None, (0, 250), 10_000, (60, 129))
    assert longest.runs == [(0, 60), (60, 70), (190, 60)]


@pytest.mark.parametrize("select", BOTH)
def test_the_record_that_reaches_the_limit_is_the_last(select: Select) -> None:
    piece = entries((1, 0, 60, -1), (1, 60, 60, -1), (1, 120, 60, -1))
    assert select(piece, 1, None, (0, 180), 61) == Selection(56, 120, 120, True, 2, [(0, 120)], 0)


@pytest.mark.parametrize("select", BOTH)
def test_filters_pass_over_other_codes(select: Select) -> None:
    piece = entries((1, 0, 60, 7), (1, 60, 60, -8), (1, 120, 60, -1))
    assert select(piece, 1, {-8}, (0, 180), 999) == Selection(84, 180, 60, False, 1, [(60, 60)], 0)


@pytest.mark.parametrize("select", BOTH)
@pytest.mark.parametrize("at", [121, 1 << 62, (1 << 63) - 1])
def test_what_points_behind_the_end_keeps_nobody_from_what_follows(select: Select, at: int) -> None:
    piece = entries((1, 0, 60, 7), (1, at, 60, 7), (1, 120, 60, 7))
    found = select(piece, 1, None, (0, 180), 999)
    assert (found.scanned, found.records, found.bad) == (84, 2, 1)


@pytest.mark.parametrize("select", BOTH)
@pytest.mark.parametrize(
    ("record", "bad"),
    [
        ((1, -1, 60, 7), 1),
        ((1, 0, 0, 7), 1),
        ((1, 0, -3, 7), 1),
        ((1, 0, MAX_RECORD + 1, 7), 1),
        ((1, 5, 60, 7), 0),
    ],
)
def test_what_is_no_record_or_has_gone_is_passed_over(
    select: Select, record: tuple[int, int, int, int], bad: int
) -> None:
    piece = entries(record, (1, 60, 60, 7))
    assert select(piece, 1, None, (60, 1 << 40), 999) == Selection(
        56, 120, 60, False, 1, [(60, 60)], bad
    )


@pytest.mark.skipif(native is None, reason="it is not built")
@given(
    records=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(-5, 40) | st.integers(-(1 << 63), (1 << 63) - 1),
            st.integers(-2, 30) | st.integers(-(1 << 31), (1 << 31) - 1),
            st.integers(-3, 3),
        ),
        max_size=12,
    ),
    tail=st.binary(max_size=27),
    codes=st.none() | st.sets(st.integers(-3, 3)),
    least=st.integers(0, 20),
    most=st.integers(0, 80) | st.just((1 << 63) - 1),
    limit=st.integers(1, 60),
    joins=st.tuples(st.integers(-1, 20), st.integers(0, 60)),
)
def test_both_choose_the_same(
    records: list[tuple[int, int, int, int]],
    tail: bytes,
    codes: set[int] | None,
    least: int,
    most: int,
    limit: int,
    joins: tuple[int, int],
) -> None:
    given_ = (entries(*records) + tail, 1, codes, (least, most), limit, joins)
    assert select_in_python(*given_) == select_natively(*given_)
