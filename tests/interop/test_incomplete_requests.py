"""Requests that lack a field, or have a value in an unusual form: our responses and those of 4.9.7.

The decoder of 4.9.7 enforces @CFNotNull only in the headers of pulls and of SEND_MESSAGE_V2. In any
other header a missing or non-numeric field stays null, and the handler decides. We refuse a request
that Java serves only if Java would act on the name "null", or do nothing.
"""

import asyncio
import json
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.protocol.codes import RequestCode as Code
from tests.interop.incomplete import REQUESTS, TOPIC, outcome_of_header, outcomes, set_up
from tests.interop.jvm import require_java
from tests.interop.tools import java_daemons, our_daemons

pytestmark = pytest.mark.java

RELEASE = "4.9.7"

#: Java serves these requests and we refuse them: what Java does.
REFUSED = {
    **dict.fromkeys(
        [
            (Code.UPDATE_CONSUMER_OFFSET, "consumerGroup"),
            (Code.UPDATE_CONSUMER_OFFSET, "topic"),
            (Code.QUERY_CONSUMER_OFFSET, "consumerGroup"),
            (Code.QUERY_CONSUMER_OFFSET, "topic"),
            (Code.QUERY_CORRECTION_OFFSET, "compareGroup"),
            (Code.CLONE_GROUP_OFFSET, "destGroup"),
        ],
        'uses the offsets of a group or topic "null"',
    ),
    **dict.fromkeys(
        [
            (Code.REGISTER_BROKER, "brokerName"),
            (Code.REGISTER_BROKER, "brokerAddr"),
            (Code.REGISTER_BROKER, "clusterName"),
            (Code.QUERY_DATA_VERSION, "brokerAddr"),
            (Code.PUT_KV_CONFIG, "value"),
        ],
        "keeps null, which clients cannot read",
    ),
    **dict.fromkeys(
        [
            (Code.UNREGISTER_BROKER, "brokerName"),
            (Code.UNREGISTER_BROKER, "brokerAddr"),
            (Code.UNREGISTER_BROKER, "clusterName"),
            (Code.WIPE_WRITE_PERM_OF_BROKER, "brokerName"),
            (Code.ADD_WRITE_PERM_OF_BROKER, "brokerName"),
            (Code.DELETE_KV_CONFIG, "namespace"),
            (Code.DELETE_KV_CONFIG, "key"),
            (Code.DELETE_TOPIC_IN_NAMESRV, "topic"),
            (Code.GET_TOPICS_BY_CLUSTER, "cluster"),
        ],
        "answers with success and does nothing",
    ),
}


def test_requests_without_a_field_have_the_same_outcome_as_with_java(
    tmp_path: Path,
) -> None:
    require_java()
    with java_daemons(tmp_path / "java", RELEASE) as daemons:
        java = asyncio.run(outcomes(*daemons))
    with our_daemons(tmp_path / "ours") as daemons:
        ours = asyncio.run(outcomes(*daemons))
    different = {case: (java[case], ours[case]) for case in java if java[case] != ours[case]}
    assert different == dict.fromkeys(REFUSED, ("served", "refused"))
    assert ours[Code.END_TRANSACTION, "msgId"] == "served"
    assert ours[Code.END_TRANSACTION, "-"] == "refused"


#: Forms of a value in JSON.
FORMS = [
    *("0", "1.5", "true", "false", "null", "[0]", '{"a":1}', "99999999999", "[]", "1e2"),
    *('"0"', '"+0"', '"00"', '"-0"', '"TRUE"', '"True"', '"null"'),
]
#: Fields of requests that get each form.
FIELDS = [
    (Code.GET_MAX_OFFSET, "queueId"),
    (Code.PULL_MESSAGE, "queueId"),
    (Code.SEND_MESSAGE, "queueId"),
    *((Code.SEND_MESSAGE_V2, letter) for letter in "eijkm"),
]
#: Values of the header itself.
HEADERS = [
    *('"code":"30"', '"code":30.0', '"code":null', '"opaque":"7"', '"opaque":7.5'),
    *('"opaque":null', '"flag":"0"', '"flag":null', '"flag":false', '"version":"399"'),
    *('"version":null', '"version":true', '"remark":5', '"remark":{"a":1}', '"language":12'),
    *('"language":null', '"language":"NONE"', '"serializeTypeCurrentRPC":null'),
]


def header(code: Code, values: dict[str, str], top: str = "") -> str:
    """The JSON text of a request's header; `top` replaces one of its own values."""
    own = {"code": str(int(code)), "language": '"JAVA"', "version": "399"}
    own |= {"opaque": "7", "flag": "0"}
    name, _, value = top.partition(":")
    if name:
        own[json.loads(name)] = value
    own["extFields"] = "{" + ",".join(f'"{key}":{text}' for key, text in values.items()) + "}"
    return "{" + ",".join(f'"{key}":{text}' for key, text in own.items()) + "}"


async def outcomes_of_forms(namesrv: str, broker: str) -> dict[tuple[str, str, str], str]:
    async with Session(namesrv) as session:
        await set_up(session, broker)
    found = {}
    for code, name in FIELDS:
        fields, body = REQUESTS[code]
        for form in FORMS:
            values = {key: json.dumps(value) for key, value in fields.items()} | {name: form}
            text = header(code, values)
            found[code.name, name, form] = await outcome_of_header(broker, text, body)
    queue = {"topic": json.dumps(TOPIC), "queueId": '"0"'}
    for top in HEADERS:
        text = header(Code.GET_MAX_OFFSET, queue, top)
        found["header", "", top] = await outcome_of_header(broker, text, b"")
    return found


def test_values_in_all_forms_have_the_same_outcome_as_with_java(tmp_path: Path) -> None:
    require_java()
    with java_daemons(tmp_path / "java", RELEASE) as daemons:
        java = asyncio.run(outcomes_of_forms(*daemons))
    with our_daemons(tmp_path / "ours") as daemons:
        ours = asyncio.run(outcomes_of_forms(*daemons))
    assert {case: (java[case], ours[case]) for case in java if java[case] != ours[case]} == {}
    assert ours["header", "", '"code":"30"'] == "served"
