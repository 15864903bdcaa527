"""Commands for several brokers: each gets a request, a dead one is reported and delays no other."""

from collections.abc import Iterator

import pytest

from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import RegisterBrokerBody
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers import RegisterBrokerRequestHeader
from tests.cli.support import Mq

DEAD = "127.0.0.1:1"


@pytest.fixture
def half_dead(standalone: Standalone, cluster: Mq) -> Iterator[Mq]:
    """The cluster of our broker, and of one more that is registered and dead."""
    header = RegisterBrokerRequestHeader(
        broker_name="broker-dead",
        broker_addr=DEAD,
        cluster_name="DefaultCluster",
        ha_server_addr="127.0.0.1:2",
        broker_id=0,
        compressed=False,
        body_crc32=0,
    )
    request = Command(
        RequestCode.REGISTER_BROKER, header.encode(), RegisterBrokerBody().encode(standard=True)
    )
    # The name server forgets the broker when the connection that registered it closes.
    with BlockingSession(standalone.name_server_address) as session:
        run(session.call_name_server(request))
        yield cluster


READS = [
    ("brokerStatus", "-c", "DefaultCluster"),
    ("getBrokerConfig", "-c", "DefaultCluster"),
    ("clusterList",),
    ("updateTopic", "-c", "DefaultCluster", "-t", "HalfMade"),
    ("updateSubGroup", "-c", "DefaultCluster", "-g", "HalfMade"),
]


@pytest.mark.parametrize("arguments", READS, ids=lambda arguments: str(arguments[0]))
def test_a_command_that_reached_some_brokers_is_partly_done(
    half_dead: Mq, standalone: Standalone, arguments: tuple[str, ...]
) -> None:
    finished = half_dead(*arguments, "--output", "json")
    assert finished.status == 1
    document = finished.json
    assert document["status"] == 1
    assert document["failures"] == [f"{DEAD}: Connection refused"]
    assert finished.err == f"mq {arguments[0]}: {DEAD}: Connection refused\n"
    assert standalone.broker.address in finished.out


def test_a_topic_that_a_broker_still_has_keeps_its_route(half_dead: Mq) -> None:
    half_dead("updateTopic", "-c", "DefaultCluster", "-t", "HalfGone")
    finished = half_dead("deleteTopic", "-c", "DefaultCluster", "-t", "HalfGone")
    assert (finished.status, finished.out) == (1, "")


def test_a_broker_that_does_not_answer_has_an_empty_row(half_dead: Mq) -> None:
    finished = half_dead("clusterList")
    assert finished.status == 1
    (row,) = [line for line in finished.out.splitlines() if "broker-dead" in line]
    assert row.split() == [
        "DefaultCluster", "broker-dead", "0", DEAD, "0.00(,ms)", "0.00(,ms)", "0.00", "0.0000"
    ]  # fmt: skip


def test_a_dry_run_sends_a_change_to_none_of_several_brokers(half_dead: Mq) -> None:
    settings = ("updateSubGroup", "-c", "DefaultCluster", "-g", "dry-at-several")
    shown = half_dead(*settings, "--dry-run")
    assert (shown.status, shown.err) == (0, "")  # the dead one causes no delay: it got no request
    assert shown.out.count("UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200) to ") == 2
