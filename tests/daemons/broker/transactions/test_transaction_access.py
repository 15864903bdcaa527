"""Which clients may end a transaction with access control."""

import asyncio
from pathlib import Path

import pytest

from mq.client.credentials import AccessKey
from mq.client.transport.session import Session
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.transaction import ENDED
from tests.daemons.broker.running import broker_on
from tests.daemons.broker.transactions.batches import end, message, places_of, send
from tests.daemons.broker.transactions.producers import COMMIT, ROLLBACK, TransactionPeer

ACCOUNTS = """\
accounts:
  - accessKey: owner-key
    secretKey: owner-secret
    defaultTopicPerm: DENY
    topicPerms:
      - Orders=PUB|SUB
  - accessKey: other-key
    secretKey: other-secret
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - Orders=SUB
      - Others=PUB
"""


def session(who: str) -> Session:
    key = AccessKey(f"{who}-key", f"{who}-secret")
    return Session("127.0.0.1:1", credentials=key)


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
def test_only_a_client_that_may_send_to_the_topic_of_a_half_ends_it(
    tmp_path: Path, how: int
) -> None:
    async def script() -> None:
        broker = broker_on(tmp_path / "store", aclEnable="true", rocketmqHome=str(tmp_path))
        async with broker, session("owner") as own, session("other") as foreign:
            owner = TransactionPeer(own, broker.address)
            other = TransactionPeer(foreign, broker.address)
            half = await owner.prepare(b"x")
            refused = await other.end(half, how)
            assert refused.code == ResponseCode.NO_PERMISSION
            assert "Orders" in (refused.remark or "")
            assert broker.delivery.transactions.ledger.offsets() == [0]
            assert (await owner.end(half, COMMIT)).code == 0
            assert broker.stores.messages.max_offset("Orders", 2) == 1

    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    asyncio.run(script())


def test_a_request_for_many_halves_needs_permission_for_each_topic(tmp_path: Path) -> None:
    """A half that may not be ended stops the request."""

    async def script() -> None:
        broker = broker_on(tmp_path / "store", aclEnable="true", rocketmqHome=str(tmp_path))
        async with broker, session("owner") as own, session("other") as foreign:
            owner = TransactionPeer(own, broker.address)
            other = TransactionPeer(foreign, broker.address)
            assert (await send(other, message(b"x"))).code == ResponseCode.NO_PERMISSION
            theirs = places_of(await send(owner, message(b"x"), message(b"y")))
            mine = places_of(await send(other, message(b"z"), topic="Others"))
            assert (await end(other, [*mine, *theirs])).fields == {ENDED: "1"}
            assert broker.delivery.transactions.ledger.offsets() == [0, 1]
            refused = await end(other, theirs)
            assert refused.code == ResponseCode.NO_PERMISSION
            assert (await end(owner, theirs)).fields == {ENDED: "2"}

    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    asyncio.run(script())


@pytest.mark.parametrize(
    ("code", "field"),
    [(RequestCode.SEND_REPLY_MESSAGE, "topic"), (RequestCode.SEND_REPLY_MESSAGE_V2, "b")],
)
def test_a_reply_needs_permission_for_its_topic(tmp_path: Path, code: int, field: str) -> None:
    async def script() -> None:
        broker = broker_on(tmp_path / "store", aclEnable="true", rocketmqHome=str(tmp_path))
        async with broker, session("other") as foreign:
            reply = await foreign.invoke(broker.address, Command(code, {field: "Orders"}, b"x"))
            assert reply.code == ResponseCode.NO_PERMISSION

    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    asyncio.run(script())


def test_only_an_administrator_resumes_checks(tmp_path: Path) -> None:
    async def script() -> None:
        broker = broker_on(tmp_path / "store", aclEnable="true", rocketmqHome=str(tmp_path))
        async with broker, session("owner") as own:
            resume = Command(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": "00"})
            assert (await own.invoke(broker.address, resume)).code == ResponseCode.NO_PERMISSION

    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    asyncio.run(script())
