"""A master and its slave, one of Java's and one of ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.peers import JavaBroker
from tests.interop.ports import free_port
from tests.system.daemon import BrokerProcess, NameServerProcess

SLAVE = {"brokerRole": "SLAVE", "brokerId": 1}
NAME = "broker-a"
FILE_SIZE = 64 << 20


@contextmanager
def namesrv(tmp: Path) -> Iterator[str]:
    with NameServerProcess(tmp / "names") as server:
        yield server.address


def ours(tmp: Path, names: str, **settings: object) -> BrokerProcess:
    given = {
        "brokerName": NAME,
        "listenPort": free_port(),
        "namesrvAddr": names,
        "mappedFileSizeCommitLog": FILE_SIZE,
        "diskMaxUsedSpaceRatio": 95,
        **settings,
    }
    return BrokerProcess(tmp, {name: str(value) for name, value in given.items()})


def java(release: str, tmp: Path, names: str, store: Path, **settings: object) -> JavaBroker:
    given = {"brokerName": NAME, "slaveReadEnable": "true", **settings}
    return JavaBroker(release, tmp, names, given, store=store)
