import pytest

from mq.protocol.codes import ONLY_4, SINCE_5, LanguageCode, RequestCode, ResponseCode


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
