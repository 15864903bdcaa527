"""The broker that replies to pulls suggest for the next pull."""

from pathlib import Path

import pytest

from mq.protocol.bodies import SubscriptionGroupConfig
from tests.daemons.broker.pulls import PullBroker, bodies, pull, request, serve
from tests.daemons.peer import Peer

BODY = b"x" * 500


async def fill(broker: PullBroker) -> None:
    for _ in range(20):
        await broker.put(BODY)


def narrow(broker: PullBroker) -> None:
    """As if, by Java's rule, only the last few messages were in memory."""
    broker.services.pulls._suggestions._warm_bytes = 2000


@pytest.mark.parametrize(
    ("enabled", "group", "first", "last"),
    [
        ("false", SubscriptionGroupConfig(group_name="g"), "0", "0"),
        ("true", SubscriptionGroupConfig(group_name="g"), "1", "0"),
        (
            "true",
            SubscriptionGroupConfig(
                group_name="g", broker_id=3, which_broker_when_consume_slowly=2
            ),
            "2",
            "3",
        ),
        (
            "false",
            SubscriptionGroupConfig(
                group_name="g", broker_id=3, which_broker_when_consume_slowly=2
            ),
            "0",
            "0",
        ),
    ],
)
def test_with_a_large_lag_a_slave_is_suggested_if_slaves_may_be_read(
    tmp_path: Path, enabled: str, group: SubscriptionGroupConfig, first: str, last: str
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.stores.groups.update(group)
        await fill(broker)
        narrow(broker)
        for offset, suggested in ((0, first), (19, last)):
            reply = await pull(peer, request(offset, most=1))
            assert bodies(reply) == [BODY]
            assert reply.fields["suggestWhichBrokerId"] == suggested
        reply = await pull(peer, request(20))
        assert reply.fields["suggestWhichBrokerId"] == last

    serve(tmp_path, script, slaveReadEnable=enabled)


def test_messages_that_a_filter_excludes_count_as_lag_too(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await fill(broker)
        narrow(broker)
        store = broker.settings.store
        broker.settings.store = store.replace(max_transfer_count_on_message_in_memory=1)
        reply = await pull(peer, request(0, tags="none", most=1))
        assert reply.fields["suggestWhichBrokerId"] == "0"  # it read all entries, to the end

    serve(tmp_path, script, slaveReadEnable="true")
