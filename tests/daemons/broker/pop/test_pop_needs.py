"""The permissions for pops: to read the topic and to consume as the group."""

import pytest

from mq.daemons.acl.accounts import SUB
from mq.daemons.acl.errors import AclError
from mq.daemons.broker.acl.required_permissions import OPEN, Need, needs
from mq.protocol.bodies.pop import (
    BatchAck,
    BatchAckMessageRequestBody,
    QueryAssignmentRequestBody,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from tests.daemons.broker.acl.accounts import whole

WANTED = [("Popped", SUB), ("%RETRY%G", SUB)]


def _needs(code: RequestCode, topic: str) -> list[Need]:
    return needs(Command(code, whole(code, {"topic": topic, "consumerGroup": "G"})))


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.POP_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
        RequestCode.ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    ],
)
def test_a_pop_and_what_follows_needs_topic_and_group(code: RequestCode) -> None:
    assert _needs(code, "Popped") == WANTED
    assert _needs(code, "%RETRY%Other_Popped") == [("%RETRY%Other_Popped", SUB), WANTED[1]]
    # Messages that become visible again are in the retry topic of group and topic: acknowledging
    # them needs the same permissions. By name alone it could also be the retry topic of the group
    # G_Popped.
    acknowledges = code in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
    alone = [("%RETRY%G_Popped", SUB), WANTED[1]]
    assert _needs(code, "%RETRY%G_Popped") == (WANTED if acknowledges else alone)


def test_a_batch_needs_them_for_each_of_its_parts() -> None:
    acks = [BatchAck(consumer_group="G", topic="Popped", retry="1"), BatchAck(topic="B")]
    body = BatchAckMessageRequestBody(acks=acks).encode()
    found = needs(Command(RequestCode.BATCH_ACK_MESSAGE, {}, body))
    assert found == [*WANTED, ("B", SUB), ("%RETRY%", SUB)]
    with pytest.raises(AclError):
        needs(Command(RequestCode.BATCH_ACK_MESSAGE, {}, b"{"))


def test_an_assignment_needs_them_and_a_request_mode_an_administrator() -> None:
    body = QueryAssignmentRequestBody(topic="Popped", consumer_group="G").encode()
    assert needs(Command(RequestCode.QUERY_ASSIGNMENT, {}, body)) == WANTED
    own_retries = QueryAssignmentRequestBody(topic="%RETRY%G", consumer_group="G").encode()
    assert needs(Command(RequestCode.QUERY_ASSIGNMENT, {}, own_retries)) == WANTED[1:]
    assert RequestCode.SET_MESSAGE_REQUEST_MODE not in OPEN
