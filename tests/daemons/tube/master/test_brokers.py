"""Brokers at a master: admission, their settings, and visibility for clients."""

from pathlib import Path
from typing import Any

import pytest

from mq.daemons.tube.master.broker_run import Assignment, BrokerRun, Report, Step, Waits
from mq.daemons.tube.master.records import ManageStatus
from mq.daemons.tube.master.views import Views
from mq.protocol.tube import messages as m
from mq.protocol.tube.codes import Method
from mq.protocol.tube.settings import BrokerDefaults, TopicSettings, checksum
from mq.protocol.tube.strings import BrokerInfo
from tests.daemons.tube.loops import in_loop
from tests.daemons.tube.master.masters import Masters, running
from tests.waiting import until


async def prepared(cluster: Masters) -> None:
    ip: dict[str, object] = {"brokerId": 1, "brokerIp": "127.0.0.1", "brokerPort": 9001}
    await cluster.changed("admin_add_broker_configure", **ip)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"clientId": "2:127.0.0.1:9001:1.0"}, "Not found broker configure info"),
        ({"clientId": "1:127.0.0.2:9001:1.0"}, "1:127.0.0.1:9001"),
        ({"clientId": "1:127.0.0.1:9009:1.0"}, "Inconsistent broker configure"),
        ({"tlsPort": 9999}, "Inconsistent TLS configure"),
        ({"clientId": "nonsense"}, "brokerId:host:port"),
        ({"clientId": ""}, "clientId"),
    ],
)
@in_loop
async def test_a_broker_that_is_not_set_up_just_so_is_refused(
    tmp_path: Path, fields: dict[str, Any], text: str
) -> None:
    async with running(tmp_path) as cluster:
        await prepared(cluster)
        await cluster.changed("admin_online_broker_configure", brokerId=1)
        answer = await cluster.register_broker(1, **fields)
        assert (answer.success, answer.errCode) == (False, 400)
        assert text in answer.errMsg
        assert not cluster.core.brokers.runs


@in_loop
async def test_a_broker_that_is_a_draft_is_refused_until_it_is_online(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await prepared(cluster)
        refused = await cluster.register_broker()
        assert "please online configure first" in refused.errMsg
        await cluster.changed("admin_online_broker_configure", brokerId=1)
        answer = await cluster.register_broker()
        assert answer.success
        assert answer.takeConfInfo
        assert answer.brokerDefaultConfInfo == "1:true:true:1000:10000: :delete,168h:1:0:3:10:20000"
        assert list(answer.brokerTopicSetConfInfo) == [
            "__offset_history__:10: : : : : : : :0: : : : : "
        ]
        topics = list(answer.brokerTopicSetConfInfo)
        assert answer.confCheckSumId == checksum(answer.brokerDefaultConfInfo, topics)
        assert not answer.enableBrokerInfo.enableVisitTokenCheck


@in_loop
async def test_settings_go_to_a_broker_until_it_says_that_it_has_them(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        told = await cluster.register_broker()
        heard = await cluster.broker_beat(1, told, curBrokerConfId=1)
        assert heard.takeConfInfo
        assert heard.needReportData
        had = await cluster.broker_beat(1, heard)
        assert not had.takeConfInfo
        assert not had.brokerTopicSetConfInfo


@in_loop
async def test_a_removed_topic_is_told_until_the_broker_has_removed_it(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        which: dict[str, object] = {"brokerId": 1, "topicName": "demo"}
        refused = await cluster.web("admin_delete_topic_info", **which)
        assert refused["data"][0]["errCode"] == 406  # it accepts messages still
        closed = {"acceptPublish": "false", "acceptSubscribe": "false"}
        await cluster.changed("admin_modify_topic_info", **which, **closed)
        refused = await cluster.web("admin_remove_topic_info", **which)
        assert refused["data"][0]["errCode"] == 406  # it is not deleted
        await cluster.changed("admin_delete_topic_info", **which)
        await cluster.changed("admin_remove_topic_info", **which)
        told = await cluster.register_broker()
        heard = await cluster.broker_beat(1, told)
        assert [text.split(":")[0] for text in heard.removeTopicConfInfo] == ["demo"]
        assert "demo" in cluster.core.catalog.deployed_topics()
        # Only those that it was to remove.
        gone = ["demo", "__offset_history__"]
        await cluster.broker_beat(1, heard, takeRemovedTopicInfo=True, removedTopicsInfo=gone)
        await until(lambda: "demo" not in cluster.core.catalog.deployed_topics())
        assert cluster.core.catalog.deployed_topics() == {"__offset_history__"}
        again = await cluster.broker_beat(1, heard)
        assert not again.removeTopicConfInfo


@in_loop
async def test_a_broker_that_is_silent_or_closes_takes_its_topics_with_it(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        views = cluster.core.brokers.views
        assert views.partitions(["demo"])
        now = cluster.core.now
        cluster.core.now = lambda: now() + 31  # type: ignore[method-assign]
        cluster.core.expire()
        assert not views.partitions(["demo"])
        told = m.HeartResponseM2B(curBrokerConfId=1, confCheckSumId=1)
        assert (await cluster.broker_beat(1, told)).errCode == 411
        await cluster.serve()
        assert views.partitions(["demo"])
        close = m.CloseRequestB2M(brokerId="1")
        assert (await cluster.peer.ask(Method.BROKER_CLOSE_B2M, close)).success
        assert not views.partitions(["demo"])
        assert (await cluster.peer.ask(Method.BROKER_CLOSE_B2M, close)).errCode == 411


@pytest.mark.parametrize("text", ["", "x", "-1", "99999999999"])
@in_loop
async def test_a_heartbeat_of_no_broker_is_refused(tmp_path: Path, text: str) -> None:
    async with running(tmp_path) as cluster:
        answer = await cluster.peer.ask(Method.BROKER_CLOSE_B2M, m.CloseRequestB2M(brokerId=text))
        assert answer.errCode == 400


@in_loop
async def test_a_broker_that_cannot_write_is_shown(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        told = await cluster.register_broker()
        await cluster.broker_beat(1, told, writeStatusRpt=1)
        [row] = (await cluster.web("admin_query_broker_run_status", onlyAbnormal="true"))["data"]
        assert row["isRepAbnormal"]
        await cluster.broker_beat(1, told)
        assert not (await cluster.web("admin_query_broker_run_status", onlyAbnormal="true"))["data"]


# the steps of a start, by a clock of the test's ------------------------------------------------

DEFAULTS = str(BrokerDefaults())


class Clocked:
    """A broker that applies its settings, and a clock."""

    def __init__(self, *topics: str) -> None:
        self.now = 0.0
        self.views = Views()
        self.wanted = self.of(*topics)
        self.ids = iter(range(2, 100))
        self.run = BrokerRun(
            BrokerInfo(1, "h"), self.wanted, config_id=1, waits=Waits(), now=self.now
        )

    def of(self, *topics: str) -> Assignment:
        texts = tuple(sorted(str(TopicSettings(t, partitions=2)) for t in topics))
        return Assignment(ManageStatus.ONLINE, DEFAULTS, texts)

    def report(self, *, online: bool = True) -> Report:
        """Report all settings as in force."""
        told = self.run.to_send() or self.wanted
        return Report(online, self.run.config_id, self.run.checksum, told.defaults, told.topics)

    def beat(self, seconds: float = 8.0, *, online: bool = True) -> Step:
        self.now += seconds
        report = self.report(online=online)
        self.run.heard(report, self.views, self.now, lambda: self.wanted, lambda: next(self.ids))
        return self.run.step

    def seen(self) -> tuple[list[str], list[str]]:
        """Return the topics that consumers see, and producers."""
        names = ["one", "two"]
        consumed = [n for n in names if self.views.partitions([n])]
        return consumed, [n for n in names if self.views.for_producers({n: 1})]


def test_a_new_broker_is_seen_by_consumers_and_half_a_minute_later_by_producers() -> None:
    broker = Clocked("one")
    broker.run.registered(Report(False, -2, -2, "", ()), broker.views, 0.0)
    assert broker.run.step is Step.WAIT_ONLINE
    assert broker.run.to_send() is not None
    assert broker.beat(online=False) is Step.WAIT_ONLINE
    assert broker.seen() == ([], [])
    assert broker.beat() is Step.WAIT_SUB
    assert broker.seen() == (["one"], [])
    assert broker.beat(29) is Step.WAIT_SUB
    assert broker.seen() == (["one"], [])
    assert broker.beat(2) is Step.WAIT_PUB
    assert broker.seen() == (["one"], ["one"])
    assert broker.beat(4) is Step.WAIT_PUB
    assert broker.beat(2) is Step.IDLE
    assert broker.run.config_loaded


def idle(*topics: str) -> Clocked:
    broker = Clocked(*topics)
    broker.run.registered(Report(True, -2, -2, "", ()), broker.views, 0.0)
    while broker.beat(60) is not Step.IDLE:
        pass
    return broker


def test_a_new_topic_of_a_broker_waits_and_those_it_has_go_on() -> None:
    broker = idle("one")
    broker.wanted = broker.of("one", "two")
    broker.run.changed()
    assert broker.run.config_changed
    broker.beat(1)
    assert broker.run.to_send() == broker.wanted
    assert broker.beat(1) is Step.WAIT_SUB
    assert broker.seen() == (["one", "two"], ["one"])
    broker.beat(31)
    assert broker.seen() == (["one", "two"], ["one", "two"])
    assert broker.beat(6) is Step.IDLE


def test_a_topic_that_goes_is_gone_at_once() -> None:
    broker = idle("one", "two")
    broker.wanted = broker.of("one")
    broker.run.changed()
    broker.beat(1)
    assert broker.beat(1) is Step.WAIT_PUB
    assert broker.seen() == (["one"], ["one"])


def test_settings_that_are_touched_and_stay_the_same_do_nothing() -> None:
    broker = idle("one")
    before = broker.run.config_id
    broker.run.changed()
    assert broker.beat(1) is Step.IDLE
    assert broker.run.config_id == before
    assert not broker.run.config_changed


def test_each_two_hours_a_broker_is_told_all_again() -> None:
    broker = idle("one")
    before = broker.run.config_id
    broker.beat(7300)
    assert broker.run.config_id != before
    assert broker.run.to_send() is not None
    assert broker.seen() == (["one"], ["one"])


def test_settings_that_change_while_others_are_brought_in_come_afterwards() -> None:
    broker = Clocked("one")
    broker.run.registered(Report(True, -2, -2, "", ()), broker.views, 0.0)
    broker.wanted = broker.of("two")
    broker.run.changed()
    while not broker.run.config_loaded:
        assert broker.now < 1000
        broker.beat()
    assert broker.seen() == (["two"], ["two"])


def test_a_broker_that_cannot_take_its_settings_is_told_of_better_ones() -> None:
    broker = Clocked("one")
    broker.run.registered(Report(True, -2, -2, "", ()), broker.views, 0.0)
    cannot = Report(True, -2, -2)

    def beat() -> None:
        broker.now += 8.0
        wanted, ids = broker.wanted, broker.ids
        broker.run.heard(cannot, broker.views, broker.now, lambda: wanted, lambda: next(ids))

    beat()
    assert broker.run.step is Step.WAIT_SYNC
    broker.wanted = broker.of("two")
    broker.run.changed()
    beat()
    assert broker.run.to_send() == broker.wanted
    assert broker.beat() is Step.WAIT_SUB
    assert broker.seen()[0] == ["two"]


def test_a_broker_that_registers_again_with_what_it_had_is_there_at_once() -> None:
    broker = Clocked("one")
    broker.run.registered(Report(True, -2, -2, DEFAULTS, broker.wanted.topics), broker.views, 0.0)
    assert broker.seen() == (["one"], ["one"])


@pytest.mark.parametrize(
    "text", ["nonsense", "one:x: : : : : : : :0: : : : : ", "one:99999: : : : : : : :0: : : : : "]
)
@in_loop
async def test_a_report_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        topics = {"brokerDefaultConfInfo": DEFAULTS, "brokerTopicSetConfInfo": [text]}
        answer = await cluster.register_broker(1, brokerOnline=True, **topics)
        assert (answer.success, answer.errCode) == (False, 400)
