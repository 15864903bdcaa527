"""Templates of replies write what the general writer writes."""

import pytest

from mq.protocol.command import RESPONSE, Command
from mq.protocol.frame import PREFIX, decode, encode
from mq.protocol.reply_template import ReplyTemplate

OPAQUES = [0, 7, 2_147_483_647, -2_147_483_648, -2_147_483_647]


@pytest.mark.parametrize("opaque", OPAQUES)
@pytest.mark.parametrize(
    "remark", [None, "FOUND", 'a "quoted" 100%d text\n', 'from "opaque":-2147483647']
)
def test_a_template_writes_the_same_bytes_as_the_general_writer(
    opaque: int, remark: str | None
) -> None:
    template = ReplyTemplate(19, {"nextBeginOffset": "%d", "id": "0A%016X", "of": "%s"}, remark)
    fields = {"nextBeginOffset": "5", "id": "0A00000000000000FF", "of": "x,y"}
    reply = Command(19, fields, flag=RESPONSE, opaque=opaque, remark=remark)
    assert template.frame(5, 255, b"x,y", opaque) == encode(reply)


def test_the_length_of_a_frame_counts_the_body_that_follows() -> None:
    body = bytes(1000)
    frame = ReplyTemplate(0).frame(3, body_size=len(body)) + body
    assert PREFIX.unpack_from(frame)[0] == len(frame) - 4
    assert decode(frame[4:]).body == body


@pytest.mark.parametrize("remark", ["broker busy", "over 100% of %d"])
def test_what_lies_around_the_opaque_is_the_rest_of_the_header(remark: str) -> None:
    start, end = ReplyTemplate(2, remark=remark).around_opaque()
    reply = Command(2, flag=RESPONSE, opaque=12, remark=remark)
    assert start + b"12" + end == encode(reply)[PREFIX.size :]
