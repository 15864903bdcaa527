"""Errors by their codes."""

import pytest

from mq.client.tube.errors import (
    ConfirmTimeout,
    GroupDiffers,
    GroupForbidden,
    NotAuthenticated,
    NothingToRead,
    NotRegistered,
    TubeError,
    for_code,
)
from mq.protocol.tube.codes import Code


@pytest.mark.parametrize(
    ("code", "kind", "retriable"),
    [
        (404, NothingToRead, True),
        (405, NothingToRead, True),
        (406, NothingToRead, True),
        (407, NothingToRead, True),
        (408, NothingToRead, True),
        (411, NotRegistered, True),
        (415, NotAuthenticated, False),
        *((code, GroupDiffers, False) for code in range(424, 431)),
        (450, GroupForbidden, False),
        (455, GroupForbidden, False),
        (452, TubeError, True),
        (503, TubeError, True),
        (2004, ConfirmTimeout, False),
        (777, TubeError, False),
    ],
)
def test_a_code_has_its_error_which_says_whether_to_try_again(
    code: int, kind: type[TubeError], retriable: bool
) -> None:
    error = for_code(code, "why", "10.0.0.1:8123")
    assert type(error) is kind
    assert error.retriable is retriable


def test_an_error_says_who_said_what() -> None:
    assert str(for_code(Code.NOT_FOUND, "no more", "10.0.0.1:8123")) == (
        "10.0.0.1:8123: NOT_FOUND: no more"
    )
    assert str(for_code(777, "")) == "code 777: no reason given"
