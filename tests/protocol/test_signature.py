import base64
import hashlib
import hmac

from mq.protocol.signature import content, signature


def test_values_are_joined_in_the_order_of_their_names_before_the_body() -> None:
    fields = {"topic": "T", "AccessKey": "rocketmq2", "b": "2", "Signature": "old"}
    assert content(fields, b"body") == b"rocketmq22Tbody"


def test_the_flag_of_a_query_is_signed_only_where_asked_for() -> None:
    fields = {"_UNIQUE_KEY_QUERY": "true", "topic": "T"}
    assert content(fields, b"") == b"T"
    assert content(fields, b"", with_unique_key_query=True) == b"trueT"


def test_text_is_signed_as_utf_8() -> None:
    assert content({"a": "ü"}, b"\x00") == b"\xc3\xbc\x00"


def test_the_signature_is_that_of_rfc_2202() -> None:
    # test case 1 of the RFC for HMAC-SHA1, in base64
    digest = bytes.fromhex("b617318655057264e28bc0b6fb378c8ef146be00")
    assert signature(b"\x0b" * 20, b"Hi There") == base64.b64encode(digest).decode()


def test_the_signature_agrees_with_the_standard_library() -> None:
    expected = base64.b64encode(hmac.new(b"12345678", b"x" * 5000, hashlib.sha1).digest())
    assert signature(b"12345678", b"x" * 5000) == expected.decode()
