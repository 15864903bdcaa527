from pathlib import Path

import pytest

from mq.client.credentials import AccessKey, read_access_key
from mq.client.errors import ClientError
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command

KEY = AccessKey("rocketmq2", "hidden_secret")


def test_a_request_gets_the_access_key_and_a_signature_over_it() -> None:
    command = Command(RequestCode.SEND_MESSAGE_V2, {"b": "T", "a": "g"}, b"body")
    KEY.sign(command)
    assert command.fields == {
        "a": "g",
        "b": "T",
        "AccessKey": "rocketmq2",
        # printf 'rocketmq2gTbody' | openssl dgst -sha1 -hmac hidden_secret -binary | base64
        "Signature": "6grUEjKgNO6aAKwxNjSoy+J4OZA=",
    }


def test_signing_again_replaces_the_signature() -> None:
    command = Command(RequestCode.SEND_MESSAGE_V2, {"b": "T"}, b"body")
    KEY.sign(command)
    once = dict(command.fields)
    KEY.sign(command)
    assert command.fields == once


def test_a_security_token_is_signed_too() -> None:
    command = Command(RequestCode.SEND_MESSAGE_V2, {"b": "T"})
    KEY.sign(command)
    other = Command(RequestCode.SEND_MESSAGE_V2, {"b": "T"})
    AccessKey("rocketmq2", "hidden_secret", "token").sign(other)
    assert other.fields["SecurityToken"] == "token"
    assert other.fields["Signature"] != command.fields["Signature"]


def test_a_query_by_unique_key_has_a_version_that_all_brokers_sign_alike() -> None:
    command = Command(RequestCode.QUERY_MESSAGE, {"topic": "T", "_UNIQUE_KEY_QUERY": "true"})
    KEY.sign(command)
    assert command.version == 399  # V4_9_3


def test_secrets_are_not_printed() -> None:
    command = Command(RequestCode.SEND_MESSAGE_V2, {"secretKey": "hidden_secret"})
    AccessKey("rocketmq2", "hidden_secret", "hidden_token").sign(command)
    for text in (repr(KEY), repr(AccessKey("a", "b", "hidden_token")), repr(command)):
        assert "hidden" not in text
    assert command.fields["Signature"] not in repr(command)


def test_a_file_of_java_tools_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tools.yml"
    path.write_text("# comment\naccessKey: rocketmq2\nsecretKey: 12345678\n\n")
    assert read_access_key(path) == AccessKey("rocketmq2", "12345678")


@pytest.mark.parametrize(
    "content", ["", "accessKey: a\n", "accessKey: ''\nsecretKey: b\n", "- a\n", "a: [", "7\n"]
)
def test_a_file_without_an_access_key_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tools.yml"
    path.write_text(content)
    with pytest.raises(ClientError, match=r"tools\.yml"):
        read_access_key(path)
    with pytest.raises(ClientError, match="cannot be read"):
        read_access_key(tmp_path / "nowhere.yml")


@pytest.mark.parametrize("values", [("", "secret"), ("key", ""), (" ", "secret")])
def test_an_empty_key_is_refused(values: tuple[str, str]) -> None:
    with pytest.raises(ClientError, match="must not be empty"):
        AccessKey(*values)
