"""The same seed gives the same trace, byte for byte."""

from tests.simulation.running import checks


def test_a_seed_gives_the_same_trace_twice_behind_others_and_in_another_process() -> None:
    one, other = checks("twice"), checks("behind_others")
    first, second = one["twice"]
    assert first == second
    assert first == other["behind_others"]
    assert len(first) > 20  # and it is a story
