import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.signature import MAX_NONCE, BrokerToken, broker_token, sign, verify

SIGNATURE = "wG8%2FZ%2F84%2BkK4Tm%2Fqf2HcD%2FLlW5k%3D"


def test_a_signature_is_that_of_the_original() -> None:
    assert sign("user", "pwd", 1600000000000, 12345) == SIGNATURE


def test_a_token_has_four_words() -> None:
    token = broker_token("user", "pwd", 1600000000000, 12345)
    assert token == f"user 1600000000000 12345 {SIGNATURE}"
    assert BrokerToken.parse(token) == ("user", 1600000000000, 12345, SIGNATURE)


@given(st.text(max_size=20), st.text(max_size=20), st.integers(0, 2**41), st.integers(0, MAX_NONCE))
def test_only_the_same_four_have_the_same_signature(
    user: str, password: str, timestamp: int, nonce: int
) -> None:
    signature = sign(user, password, timestamp, nonce)
    assert verify(user, password, timestamp, nonce, signature)
    assert not verify(user, password + "x", timestamp, nonce, signature)
    assert not verify(user, password, timestamp + 1, nonce, signature)
    assert not verify(user, password, timestamp, nonce, signature + "\udcff")


@pytest.mark.parametrize(
    "text", ["", "a b", "a 1 2", "a x 2 s", "a 1 -2 s", "a 1 2 s t", "a 1 " + "9" * 5000 + " s"]
)
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(MalformedText):
        BrokerToken.parse(text)
