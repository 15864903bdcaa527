"""Parsing of controllers' answers about a set, including incomplete ones."""

import pytest

from mq.daemons.broker.failover.membership.replica_set import ReplicaSet
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError

MASTER = {"masterBrokerId": "2", "masterAddress": "10.0.0.2:10911", "masterEpoch": "3"}


def answer(fields: dict[str, str], body: bytes = b"") -> Command:
    return Command(0, fields, body)


def test_the_three_answers_are_read_as_java_writes_them() -> None:
    members = b'{"syncStateSet":[1,2],"syncStateSetEpoch":7}'
    expected = ReplicaSet(2, "10.0.0.2:10911", 3, frozenset({1, 2}), 7)
    more = {"clusterName": "c", "brokerName": "b", "syncStateSetEpoch": "7"}
    assert ReplicaSet.registered(answer(MASTER | more, members)) == expected
    assert ReplicaSet.looked_up(answer(MASTER, members)) == expected
    elected = b'{"brokerMemberGroup":{"brokerAddrs":{1:"10.0.0.1:1"}},"syncStateSet":[1,2]}'
    assert ReplicaSet.elected(answer(MASTER | {"syncStateSetEpoch": "7"}, elected)) == expected
    assert expected.has_master


def test_a_set_without_a_master_has_none() -> None:
    members = b'{"syncStateSet":[1],"syncStateSetEpoch":4}'
    nobody = ReplicaSet.registered(answer({"clusterName": "c", "brokerName": "b"}, members))
    assert (nobody.has_master, nobody.master_epoch, nobody.members_epoch) == (False, -1, 4)
    deposed = ReplicaSet.looked_up(answer({"masterEpoch": "9"}))
    assert (deposed.has_master, deposed.master_epoch, deposed.members) == (False, 9, frozenset())


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({**MASTER, "masterEpoch": "x"}, b""),
        ({**MASTER, "masterAddress": "nowhere"}, b""),
        (MASTER, b"not json"),
        (MASTER, b'{"syncStateSet":"all"}'),
    ],
)
def test_an_invalid_answer_is_refused(fields: dict[str, str], body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        ReplicaSet.looked_up(answer(fields, body))
