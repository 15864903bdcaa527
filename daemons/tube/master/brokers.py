"""The brokers that have registered with this master."""

import logging
from collections.abc import Iterator
from typing import NamedTuple

from mq.daemons.tube.master.broker_assignment import wanted
from mq.daemons.tube.master.broker_run import BrokerRun, Report, Waits
from mq.daemons.tube.master.catalog import Catalog
from mq.daemons.tube.master.groups import Refused
from mq.daemons.tube.master.records import BrokerConf, ManageStatus
from mq.daemons.tube.master.storage import Changes
from mq.daemons.tube.master.views import Views
from mq.protocol.tube.codes import BROKER_TLS_PORT, Code
from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.strings import BrokerClientId, BrokerInfo

log = logging.getLogger(__name__)

# Settings of these kinds are sent to brokers.
_SENT = frozenset({"broker", "topic", "topic-control", "cluster"})


class Abnormal(NamedTuple):
    """A broker that has reported that it cannot read, or write."""

    read_status: int
    write_status: int


class Brokers:
    """The live brokers, with the views of their topics; and the list of all configured ones, which
    clients get by a checksum."""

    def __init__(self, catalog: Catalog, waits: Waits) -> None:
        self._catalog = catalog
        self._waits = waits
        self.views = Views()
        self.runs: dict[int, BrokerRun] = {}
        self.abnormal: dict[int, Abnormal] = {}
        self._heard: set[int] = set()  # registered since `clear`
        self.list_id = catalog.next_serial()
        self._plain: list[str] = []
        self._tls: list[str] = []
        self.from_catalog({})

    def infos(self, *, over_tls: bool) -> list[str]:
        """Return all configured ones, in the form for clients."""
        return self._tls if over_tls else self._plain

    def from_catalog(self, changes: Changes) -> None:
        """Process changed records: notify brokers and clients."""
        self._list()
        touched: set[int] = set()
        for (kind, key), _ in changes.items():
            if kind in ("broker", "topic"):
                touched.add(int(key.partition("-")[0]))
            elif kind in _SENT:
                touched.update(self.runs)
        for broker_id in touched & self.runs.keys():
            if self._catalog.broker(broker_id) is None:
                self.remove(broker_id)
            else:
                self.runs[broker_id].changed()

    def reload(self, broker_id: int) -> None:
        """Send a broker its settings again (admin_reload_broker_configure)."""
        run = self.runs.get(broker_id)
        if run is not None:
            run.changed()

    def register(
        self,
        client_id: str,
        report: Report,
        *,
        tls_port: int | None,
        offers_tls: bool,
        over_tls: bool,
        now: float,
    ) -> BrokerRun:
        """Register a broker, possibly again. Raises Refused if it is not set up in this way."""
        try:
            broker = BrokerClientId.parse(client_id).broker
        except MalformedText as error:
            raise Refused(Code.BAD_REQUEST, str(error)) from None
        conf = self._admitted(client_id, broker, tls_port)
        to_have = wanted(self._catalog, broker.broker_id)
        assert to_have is not None  # it is set up
        begun = BrokerRun(
            broker,
            to_have,
            config_id=self._catalog.next_serial(),
            waits=self._waits,
            now=now,
            tls_port=conf.tls_port if offers_tls else 0,
            over_tls=over_tls,
        )
        try:
            begun.registered(report, self.views, now)
        except MalformedText as error:
            raise Refused(Code.BAD_REQUEST, str(error)) from None
        self.runs[broker.broker_id] = begun
        self._heard.add(broker.broker_id)
        log.info("broker %s registers", client_id)
        return begun

    def heartbeat(self, broker_id: int, report: Report, now: float) -> BrokerRun:
        """Process a heartbeat. Raises Refused: it must register, or its report is invalid."""
        run = self.runs.get(broker_id)
        if run is None:
            raise unknown(broker_id)
        try:
            run.heard(
                report,
                self.views,
                now,
                lambda: wanted(self._catalog, broker_id),
                self._catalog.next_serial,
            )
        except MalformedText as error:
            raise Refused(Code.BAD_REQUEST, str(error)) from None
        return run

    def remove(self, broker_id: int) -> bool:
        """Remove a broker; return whether it was known."""
        self.views.remove(broker_id)
        self.abnormal.pop(broker_id, None)
        return self.runs.pop(broker_id, None) is not None

    def clear(self) -> None:
        """Remove all: another master has them now."""
        for broker_id in list(self.runs):
            self.remove(broker_id)
        self._heard.clear()

    def awaited(self) -> set[int]:
        """Return brokers with consumable topics that have not registered since `clear`."""
        return {
            one.broker_id
            for one in self._catalog.brokers()
            if one.status.subscribes and one.broker_id not in self._heard
        }

    def alive(self) -> Iterator[BrokerRun]:
        """Yield all registered ones, by id."""
        yield from (self.runs[broker_id] for broker_id in sorted(self.runs))

    def book_status(self, broker_id: int, read_status: int, write_status: int) -> None:
        """Record the disk status of a broker: 0 is healthy."""
        if read_status == write_status == 0:
            if self.abnormal.pop(broker_id, None) is not None:
                log.warning("broker %d has recovered", broker_id)
        elif self.abnormal.get(broker_id) != (read_status, write_status):
            self.abnormal[broker_id] = Abnormal(read_status, write_status)
            log.warning("broker %d says: read %d, write %d", broker_id, read_status, write_status)

    def _admitted(self, client_id: str, broker: BrokerInfo, tls_port: int | None) -> BrokerConf:
        """Raises Refused (DefBrokerRunManager.brokerRegister2M)."""
        who = f" the connecting client id is:{client_id}"
        conf = self._catalog.broker(broker.broker_id)
        if conf is None:
            text = f"Not found broker configure info, please create first!{who}"
        elif (broker.host, broker.port) != (conf.ip, conf.port):
            text = (
                f"Inconsistent broker configure,please confirm first!{who}, the configured broker "
                f"address by brokerId is:{conf.broker_id}:{conf.ip}:{conf.port}"
            )
        elif (tls_port or self._catalog.cluster.broker_tls_port) != conf.tls_port:
            text = (
                f"Inconsistent TLS configure, please confirm first!{who}, the configured TLS port "
                f"is:{conf.tls_port}, the broker reported TLS port is {tls_port}"
            )
        elif conf.status is ManageStatus.DRAFT:
            text = f"Broker's configure not online, please online configure first!{who}"
        else:
            return conf
        raise Refused(Code.BAD_REQUEST, text)

    def _list(self) -> None:
        """Rebuild the list of brokers; its id changes with its content."""
        plain = [
            BrokerInfo(one.broker_id, one.ip, one.port).simple for one in self._catalog.brokers()
        ]
        tls = [
            f"{one.broker_id}:{one.ip}: "
            if one.tls_port == BROKER_TLS_PORT
            else f"{one.broker_id}:{one.ip}:{one.tls_port}"
            for one in self._catalog.brokers()
        ]
        if (plain, tls) != (self._plain, self._tls):
            self._plain, self._tls = plain, tls
            self.list_id = self._catalog.next_serial()


def unknown(broker_id: int) -> Refused:
    """Return the refusal for a broker that must register."""
    return Refused(
        Code.HB_NO_NODE,
        "Not found Broker run status info, please register broker first! the connecting client id "
        f"is:{broker_id}",
    )
