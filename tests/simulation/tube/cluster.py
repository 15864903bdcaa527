"""A simulated TubeMQ cluster: masters, brokers and clients, each on a machine of its own."""

from dataclasses import dataclass, field

from mq.daemons.tube.broker.app import Broker
from mq.daemons.tube.broker.config import BrokerSettings
from mq.daemons.tube.master.app import Master
from mq.daemons.tube.master.config import MasterSettings
from tests.simulation import etcd
from tests.simulation.cluster import Cluster, Daemon
from tests.simulation.world import Machine

MASTER_PORT, WEB_PORT, BROKER_PORT = 8715, 8080, 8123
TOKEN = "simulated"

# Masters and brokers evict a peer that is silent for this long, ms.
SILENCE_MS = 6000
#: Between two saves of offsets, ms.
SAVES_MS = 2000

_MASTER = {
    "port": str(MASTER_PORT),
    "webPort": str(WEB_PORT),
    "confModAuthToken": TOKEN,
    "consumerBalancePeriodMs": "1000",
    "consumerHeartbeatTimeoutMs": str(SILENCE_MS),
    "producerHeartbeatTimeoutMs": str(SILENCE_MS),
    "brokerHeartbeatTimeoutMs": str(SILENCE_MS),
    "subscribeWaitMs": "1000",
    "publishWaitMs": "500",
}
# Files so small that they are rolled in every run, and work that is done often.
_BROKER = {
    "port": str(BROKER_PORT),
    "webPort": "-1",
    "maxSegmentSize": "8192",
    "maxIndexSegmentSize": str(28 * 20),
    "heartbeatPeriodMs": "500",
    "rpcReadTimeoutMs": "2000",
    "consumerRegTimeoutMs": str(SILENCE_MS),
    "offsetStgFileSyncMs": str(SAVES_MS),
    "ioExcptStatsDurationMs": "5000",
}


@dataclass
class TubeCluster(Cluster):
    """All machines of a world that has TubeMQ."""

    masters: list[Daemon] = field(default_factory=list)

    @property
    def daemons(self) -> list[Daemon]:
        return self.masters + self.keepers + self.brokers

    def circles(self) -> list[tuple[str, list[Machine]]]:
        masters = [one.machine for one in self.masters]
        keepers = [one.machine for one in self.keepers]
        brokers = [one.machine for one in self.brokers]
        clients = [one.machine for one in self.clients]
        found = [
            ("everybody", [*masters, *keepers, *brokers, *clients]),
            ("the masters", masters),
            ("the brokers", brokers),
            ("the clients", clients),
        ]
        return [*found, ("etcd", keepers)] if keepers else found

    @property
    def master_list(self) -> str:
        """As clients and brokers are given it."""
        return ",".join(f"{one.address}:{MASTER_PORT}" for one in self.masters)

    def add_master(self, endpoints: list[Daemon]) -> Daemon:
        """A master; of a set, where there are members of etcd."""
        name = f"master-{len(self.masters) + 1}"
        machine = self._machine(name)
        given = {
            **_MASTER,
            "hostName": machine.address,
            "bindAddress": machine.address,
            "metaDataPath": f"/sim/{name}/metadata",
        }
        if endpoints:
            given |= {
                "masterGroup": "tube",
                "etcdEndpoints": ";".join(f"http://{one.address}:{etcd.PORT}" for one in endpoints),
            }
        daemon = Daemon(machine, name, lambda: Master(MasterSettings.load(None, given)))
        self.masters.append(daemon)
        return daemon

    def add_tube_broker(self, flush_mode: str) -> Daemon:
        """A broker; its number is its place among them, from 1 on. Masters are there before."""
        number = len(self.brokers) + 1
        name = f"tube-{number}"
        machine = self._machine(name)
        given = {
            **_BROKER,
            "hostName": machine.address,
            "bindAddress": machine.address,
            "brokerId": str(number),
            "masterAddressList": self.master_list,
            "primaryPath": f"/sim/{name}/messages",
            "flushMode": flush_mode,
        }
        daemon = Daemon(machine, name, lambda: Broker(BrokerSettings.load(None, given)))
        self.brokers.append(daemon)
        return daemon
