"""TubeMQ's unmodified Java clients produce and consume with our master and broker."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.interop.jvm import require_java
from tests.interop.tube.peers import RELEASES, JavaFailed, TubeClient
from tests.interop.tube.servers import TubeBroker, TubeMaster, cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[TubeMaster, TubeBroker]]:
    """Shared: each test has its own topics and groups."""
    require_java()
    with cluster(tmp_path_factory.mktemp("tube")) as both:
        yield both


@pytest.fixture(params=RELEASES)
def client(
    request: pytest.FixtureRequest, servers: tuple[TubeMaster, TubeBroker], tmp_path: Path
) -> Iterator[TubeClient]:
    with TubeClient(request.param, servers[0].address, tmp_path) as java:
        yield java


def name_of(client: TubeClient, topic: str) -> str:
    return f"{topic}_{client.release.replace('.', '_').replace('-', '_')}"


def test_a_hundred_thousand_messages_arrive_and_filters_select_theirs(
    client: TubeClient, servers: tuple[TubeMaster, TubeBroker]
) -> None:
    topic, count = name_of(client, "many"), 100_000
    servers[0].create_topic(topic, 4)
    client("publish", "p", topic)
    assert client.send(topic, count, items="a,b,c") == 0
    client("consume", "all", name_of(client, "all"), topic, "-", "first")
    client("consume", "some", name_of(client, "some"), topic, "a,c", "first")
    wait_until(lambda: client.got("all")[0] >= count, what="all messages")
    assert client.got("all") == (count, set(range(count)))
    wanted = {number for number in range(count) if number % 3 != 1}
    wait_until(
        lambda: client.got("some")[0] >= len(wanted), what="those that a filter lets through"
    )
    assert client.got("some") == (len(wanted), wanted)


def test_two_consumers_share_the_partitions_as_they_join_and_leave(
    client: TubeClient, servers: tuple[TubeMaster, TubeBroker]
) -> None:
    topic, group, step = name_of(client, "shared"), name_of(client, "sharers"), 2_000
    servers[0].create_topic(topic, 6)
    every = {f"1:{topic}:{number}" for number in range(6)}
    client("publish", "p", topic)
    client("consume", "one", group, topic, "-", "first")
    wait_until(lambda: client.partitions("one") == every, what="all partitions at one")
    client.send(topic, step)
    client("consume", "two", group, topic, "-", "first")
    client.send(topic, step, first=step)
    wait_until(lambda: _is_even(client, every), what="three partitions at each")
    client.send(topic, step, first=2 * step)
    wait_until(lambda: _both(client) == set(range(3 * step)), what="all messages at both")
    assert client.got("two")[0] > 0
    client("stop", "two")
    wait_until(lambda: client.partitions("one") == every, what="all partitions at one again")
    client.send(topic, step, first=3 * step)
    wait_until(lambda: _both(client) == set(range(4 * step)), what="all messages")


def _is_even(client: TubeClient, every: set[str]) -> bool:
    one, two = client.partitions("one"), client.partitions("two")
    return len(one) == len(two) == 3 and one | two == every


def _both(client: TubeClient) -> set[int]:
    return client.got("one")[1] | client.got("two")[1]


@pytest.mark.parametrize(
    "release", ["1.7.0", pytest.param("0.8.0-incubating", marks=pytest.mark.long)]
)
def test_nothing_is_lost_when_the_broker_is_killed_and_restarted(
    release: str, tmp_path: Path
) -> None:
    require_java()
    count = 60_000
    with (
        cluster(tmp_path) as (master, broker),
        TubeClient(release, master.address, tmp_path) as producer,
        TubeClient(release, master.address, tmp_path) as consumer,
        ThreadPoolExecutor() as threads,
    ):
        master.create_topic("kept", 3)
        producer("publish", "p", "kept")
        consumer("consume", "c", "keepers", "kept", "-", "first")
        sending = threads.submit(producer.send, "kept", count, size=500)
        wait_until(lambda: consumer.got("c")[0] > 1_000, what="messages before the kill")
        broker.kill()
        broker.start()
        sending.result()
        wait_until(
            lambda: consumer.got("c")[1] == set(range(count)), what="every message that was taken"
        )


def test_clients_with_an_account_stay_registered_and_others_are_refused(
    client: TubeClient, tmp_path: Path
) -> None:
    """A client signs its registration only, so its heartbeats depend on the master's token.

    Consumers of 1.7.0 do not sign even that (RmtDataCache.markAndGetAuthStatus).
    """
    accounts = tmp_path / "accounts"
    accounts.write_text("ann=secret\n", encoding="utf-8")
    asks = {
        "accountsFile": accounts,
        "startProduceAuthenticate": "true",
        "startConsumeAuthenticate": client.release != "1.7.0",
        "startVisitTokenCheck": "true",
        "startConsumeAuthorize": "true",
        "needBrokerVisitAuth": "true",
        "visitName": "broker",
        "visitPassword": "pw",
        # Without heartbeats the master would evict a client during the test.
        "producerHeartbeatTimeoutMs": 2500,
        "consumerHeartbeatTimeoutMs": 2500,
    }
    signs = {"visitMasterAuth": "true", "visitName": "broker", "visitPassword": "pw"}
    with (
        cluster(tmp_path, asks, **signs) as (master, _),
        TubeClient(client.release, master.address, tmp_path, "ann", "secret") as ann,
        TubeClient(client.release, master.address, tmp_path, "ann", "wrong") as other,
    ):
        master.create_topic("kept", 2)
        ann("publish", "p", "kept")
        ann("consume", "c", "readers", "kept", "-", "first")
        end = time.monotonic() + 4
        sent = 0
        while time.monotonic() < end:
            assert ann.send("kept", 100, first=sent) == 0
            sent += 100
        wait_until(lambda: ann.got("c")[1] == set(range(sent)), what="all messages")
        registered = [line for line in master.lines if "registers from" in line]
        assert len(registered) == 2, "a client had to register again"
        with pytest.raises(JavaFailed):
            other("publish", "p", "kept")
