"""A replica set with an acting slave, and another broker of the cluster, under a name server: all
in this process, on free ports.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from mq.daemons.broker.app import Broker
from mq.daemons.namesrv.app import NameServer
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.message import StoredMessage, decode_records
from mq.protocol.names import MASTER_ID
from tests.daemons.broker.failover.membership import sets as membership
from tests.daemons.broker.replication.pair import caught_up, settings_of
from tests.daemons.peer import Peer
from tests.waiting import until

SET = "broker-a"
OTHER = "broker-b"
TOPIC = "Orders"
ACTS = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "slaveReadEnable": "true",
    "brokerHeartbeatInterval": "200",
    "syncBrokerMemberGroupPeriod": "100",
}
# Settings of a master that must stop before it delivers anything, however slow the machine is. With
# shorter levels its messages are due at once.
LONG = {"messageDelayLevel": "1h 2h 3h"}


def name_server(root: Path) -> AbstractAsyncContextManager[NameServer]:
    """A name server that shows slaves as masters, and reports the lowest id."""
    shows = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
    return membership.name_server(root, **shows)


class Cluster:
    """Creates the brokers, each with a store below ``root``."""

    def __init__(self, root: Path, names: NameServer) -> None:
        self.root = root
        self.names = names

    def master(self, **settings: str) -> Broker:
        return self._broker("master", {**ACTS, **settings})

    def slave(self, number: int = 1, **settings: str) -> Broker:
        role = {"brokerRole": "SLAVE", "brokerId": str(number)}
        return self._broker(f"slave-{number}", {**ACTS, **role, **settings})

    def other(self, **settings: str) -> Broker:
        """A broker of another replica set."""
        return self._broker("other", {"brokerName": OTHER, **settings})

    def _broker(self, store: str, settings: Mapping[str, str]) -> Broker:
        namesrv = f"127.0.0.1:{self.names.port}"
        fixed = {"brokerName": SET, "haListenPort": "0", "namesrvAddr": namesrv}
        return Broker(settings_of(self.root / store, **{**fixed, **settings}))

    async def shows(self, broker: Broker, number: int = MASTER_ID, name: str = SET) -> None:
        """Wait until the name server knows a broker by an id."""
        brokers = self.names.routes.brokers
        await until(
            lambda: name in brokers and brokers[name].broker_addrs.get(number) == broker.address
        )


@asynccontextmanager
async def cluster(root: Path) -> AsyncIterator[Cluster]:
    async with name_server(root) as names:
        yield Cluster(root, names)


async def is_copied(slave: Broker, master: Broker) -> None:
    """Wait until a slave has the log of its master, and the other data of the master."""
    await caught_up(slave, master)
    synchronize = slave.metadata.synchronize
    assert synchronize is not None
    await synchronize.round(master.address)
    await until(lambda: slave.delivery.delayed.is_known)


async def sees(slave: Broker, *others: Broker) -> None:
    """Wait until a slave knows that these brokers are alive, and no others."""
    members = slave.acting.members
    assert members is not None
    wanted = {one.settings.broker.broker_id: one.address for one in (slave, *others)}
    await until(lambda: members.known == wanted)


async def acts(slave: Broker) -> None:
    await until(lambda: slave.acting.is_acting)


async def acts_no_more(slave: Broker) -> None:
    await until(lambda: not slave.acting.is_acting)


async def send(
    broker: Broker, body: bytes, topic: str = TOPIC, queue_id: int = 0, **properties: str
) -> None:
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    fields = {
        **{"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0"},
        **{"g": "1700000000000", "h": "0", "i": text, "j": "0", "k": "false", "m": "false"},
    }
    if properties.get("TRAN_MSG") == "true":
        fields["f"] = "4"
    async with Peer(broker.port) as peer:
        reply = await peer.ask(RequestCode.SEND_MESSAGE_V2, fields, body)
    assert reply.code == ResponseCode.SUCCESS, reply


def stored(broker: Broker, topic: str = TOPIC) -> list[StoredMessage]:
    """All messages in the queues of a topic."""
    store, found = broker.stores.messages, []
    for queue in store.queues:
        if queue.topic == topic:
            for index in range(queue.minimum, queue.readable):
                entry = store.entries.at(topic, queue.queue_id, index)
                assert entry is not None
                record = store.record_at(entry[0])
                assert record is not None
                found += decode_records(bytes(record))
    return found


def bodies(broker: Broker, topic: str = TOPIC) -> list[bytes]:
    return sorted(message.body for message in stored(broker, topic))


async def have(broker: Broker, count: int, topic: str = TOPIC) -> list[bytes]:
    """Wait until a broker has this many messages of a topic."""
    await until(lambda: len(bodies(broker, topic)) >= count)
    return bodies(broker, topic)
