"""The handle of a message that can be taken back."""

import pytest

from mq.protocol.recall import RecallHandle

# RecallMessageHandle.HandleV1.buildHandle("topic", "broker-a", "1700000000001", "00AA")
TEXT = "djEgdG9waWMgYnJva2VyLWEgMTcwMDAwMDAwMDAwMSAwMEFB"
HANDLE = RecallHandle("topic", "broker-a", 1700000000001, "00AA")


def test_a_handle_is_written_and_read_as_by_rocketmq_5() -> None:
    assert HANDLE.encode() == TEXT
    assert RecallHandle.decode(TEXT) == HANDLE


def test_a_time_that_is_no_number_has_long_passed() -> None:
    assert RecallHandle.decode("djEgdCBiIHNvb24gaWQ=") == RecallHandle("t", "b", -1, "id")


@pytest.mark.parametrize("text", ["", "x", "v1 t b 1 id", "djI gdCBiIDEgaWQ=", "djIgdCBiIDEgaWQ=",
                                  "djEgdCBi", "_w==", "dj\u00e9"])  # fmt: skip
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="recall handle is invalid"):
        RecallHandle.decode(text)
