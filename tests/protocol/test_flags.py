import pytest

from mq.protocol.flags import Permission, permission_text


@pytest.mark.parametrize(
    ("permission", "text"), [(0, "---"), (2, "-W-"), (4, "R--"), (6, "RW-"), (7, "RWX"), (8, "---")]
)
def test_permission_text_is_that_of_java(permission: int, text: str) -> None:
    assert permission_text(permission) == text


def test_permissions_have_the_bits_of_java() -> None:
    assert Permission.READ | Permission.WRITE == 6
