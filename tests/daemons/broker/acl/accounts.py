"""A file of accounts, and requests signed for them."""

from collections.abc import Mapping
from pathlib import Path

from mq.daemons.acl.files import AclFiles
from mq.daemons.broker.acl.access import AccessControl
from mq.protocol.codes import RequestCode
from mq.protocol.headers import HEADERS
from mq.protocol.signature import content, signature

PLAIN = """\
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB
  - accessKey: rocketmq2
    secretKey: "abcdefgh"
    whiteRemoteAddress: 192.168.1.*
    admin: true
"""
USER = ("RocketMQ", b"12345678")
ADMIN = ("rocketmq2", b"abcdefgh")


def home(tmp_path: Path, text: str = PLAIN) -> Path:
    """A folder with conf/plain_acl.yml."""
    (tmp_path / "conf").mkdir(exist_ok=True)
    (tmp_path / "conf" / "plain_acl.yml").write_text(text)
    return tmp_path


def access_control(tmp_path: Path, text: str = PLAIN) -> AccessControl:
    return AccessControl(AclFiles(home(tmp_path, text), "conf/plain_acl.yml"))


def whole(code: int, fields: Mapping[str, str]) -> dict[str, str]:
    """The fields, and a 0 for each other mandatory field of this code."""
    schema = HEADERS.get(RequestCode(code))
    required = [field.wire for field in schema.FIELDS if field.required] if schema else []
    return {**dict.fromkeys(required, "0"), **fields}


def signed(
    who: tuple[str, bytes], fields: Mapping[str, str] | None = None, body: bytes = b""
) -> dict[str, str]:
    """The fields with an access key and a signature."""
    key, secret = who
    full = {**(fields or {}), "AccessKey": key}
    return {**full, "Signature": signature(secret, content(full, body))}
