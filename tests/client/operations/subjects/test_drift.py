"""Settings side by side."""

from mq.client.operations.subjects.drift import SettingRow, compare


def test_what_all_say_does_not_differ() -> None:
    assert compare({"a": {"perm": 6}, "b": {"perm": 6}}) == (
        SettingRow("perm", ("6", "6"), "6", differs=False),
    )


def test_what_one_says_otherwise_or_not_at_all_differs_from_what_most_say() -> None:
    rows = compare({"a": {"n": 4, "x": True}, "b": {"n": 8}, "c": {"n": 8, "x": True}})
    assert rows == (
        SettingRow("n", ("4", "8", "8"), "8", differs=True),
        SettingRow("x", ("true", None, "true"), "true", differs=True),
    )


def test_lists_and_maps_have_no_order() -> None:
    rows = compare(
        {
            "a": {"p": ["x", "y"], "m": {"k": 1, "l": 2}},
            "b": {"p": ["y", "x"], "m": {"l": 2, "k": 1}},
        }
    )
    assert [(row.values[0], row.differs) for row in rows] == [("x, y", False), ("k=1, l=2", False)]


def test_no_broker_has_no_settings() -> None:
    assert compare({}) == ()
