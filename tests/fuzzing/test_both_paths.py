"""The runner that gives both paths the same bytes: it finds what differs, and finds nothing."""

from collections import Counter
from typing import Any

import pytest

from mq.daemons.broker.send.native_sends import NativeSends
from mq.daemons.broker.store.log.append import Appender
from mq.daemons.broker.transactions.native_halves import NativeHalves
from mq.protocol.native import native
from tests.daemons.broker.native_pair import counting, stand_still
from tests.fuzzing.both_paths import Cases, Failure, run_seed

pytestmark = pytest.mark.skipif(native is None, reason="the native path is not built")


@pytest.fixture(autouse=True)
def _stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_still(monkeypatch.setattr)


def test_a_seed_gives_the_same_buffers_each_time() -> None:
    assert [Cases(7).case() for _ in range(2)] == [Cases(7).case()] * 2
    assert Cases(7).case() != Cases(8).case()


@pytest.mark.parametrize("seed", [1, 2])
def test_both_paths_store_and_answer_the_same(seed: int) -> None:
    result = run_seed(seed, 200)
    assert not isinstance(result, Failure), result.text
    assert result[0] == 200 and result[1] > 60


def test_halves_are_prepared_and_committed_on_both_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: Counter[str] = Counter()
    for name in ("prepare", "commit"):
        monkeypatch.setattr(NativeHalves, name, counting(name, taken))
    assert not isinstance(run_seed(3, 200), Failure)
    assert min(taken["prepare"], taken["commit"]) > 3, taken


@pytest.mark.long
@pytest.mark.parametrize("first", range(1001, 1041, 10))
def test_both_paths_store_and_answer_the_same_for_long(first: int) -> None:
    for seed in range(first, first + 10):
        result = run_seed(seed)
        assert not isinstance(result, Failure), f"seed {seed}: {result.text}"


@pytest.mark.parametrize("part", ["records", "items"])
def test_a_path_that_stores_something_else_is_found(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    real = Appender.append_packed

    def damaged(appender: Appender, packed: Any, timestamp: int) -> None:
        size, touched, items, messages = packed
        if part == "records":
            memory = appender._memory
            assert memory is not None
            memory[appender._used + size - 1] ^= 1
        elif items:
            items = bytes((items[0] ^ 1,)) + items[1:]
        real(appender, (size, touched, items, messages), timestamp)

    monkeypatch.setattr(Appender, "append_packed", damaged)
    result = run_seed(1, 50)
    assert isinstance(result, Failure) and result.seed == 1


def test_a_path_that_takes_what_comes_together_out_of_its_order_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = NativeSends.settle

    def reversed_(sends: NativeSends) -> None:
        sends._alone = dict(reversed(sends._alone.items()))
        real(sends)

    monkeypatch.setattr(NativeSends, "settle", reversed_)
    assert isinstance(run_seed(1, 200), Failure)


def test_a_path_that_fails_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would leave all to Python, and nothing would differ."""

    def fail(*_: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(Appender, "append_packed", fail)
    assert isinstance(run_seed(1, 50), Failure)
