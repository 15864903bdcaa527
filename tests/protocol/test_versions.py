import pytest

from mq.protocol.versions import CURRENT_VERSION, version_name, version_number


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (0, "V3_0_0_SNAPSHOT"),
        (28, "V3_0_7_SNAPSHOT"),
        (37, "V3_0_11"),
        (63, "V3_1_8"),
        (79, "V3_2_6"),
        (137, "V3_5_8"),
        (212, "V4_0_0_SNAPSHOT"),
        (233, "V4_1_0"),
        (353, "V4_7_0"),
        (CURRENT_VERSION, "V4_9_8"),
        (413, "V5_0_0"),
        (479, "V5_3_3"),
    ],
)
def test_version_numbers_have_the_names_of_java(number: int, name: str) -> None:
    assert version_name(number) == name
    assert version_number(name) == number


@pytest.mark.parametrize("number", [-1, 100_000])
def test_unknown_versions_are_higher(number: int) -> None:
    assert version_name(number) == "HIGHER_VERSION"
