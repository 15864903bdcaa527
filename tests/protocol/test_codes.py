import pytest

from mq.protocol.codes import (
    CURRENT_VERSION,
    ONLY_4,
    SINCE_5,
    LanguageCode,
    RequestCode,
    ResponseCode,
    version_name,
    version_number,
)


@pytest.mark.parametrize(
    ("code", "name"),
    [(10, "SEND_MESSAGE"), (310, "SEND_MESSAGE_V2"), (53, "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG")],
)
def test_request_codes_have_the_numbers_of_java(code: int, name: str) -> None:
    assert RequestCode(code).name == name
    assert RequestCode[name] == code


def test_codes_know_their_releases() -> None:
    assert RequestCode.SEND_MESSAGE.release == ""
    assert RequestCode.UPDATE_AND_CREATE_ACL_CONFIG.release == ONLY_4
    assert RequestCode.POP_MESSAGE.release == SINCE_5


def test_response_codes_with_two_meanings_have_both_names() -> None:
    assert ResponseCode(209).name == "UPDATE_AND_CREATE_ACL_CONFIG_FAILED"
    assert ResponseCode["POLLING_FULL"] is ResponseCode(209)
    assert int(ResponseCode.POLLING_TIMEOUT) == 210
    assert int(ResponseCode.BROKER_NOT_EXIST) == 211
    assert int(ResponseCode.SUCCESS) == 0
    assert int(ResponseCode.RPC_TIME_OUT) == -1006


def test_language_codes_have_the_numbers_of_java() -> None:
    assert (LanguageCode.JAVA, LanguageCode.PYTHON, LanguageCode.NODE_JS) == (0, 3, 13)


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
