"""The rows of mq.protocol.codes name the daemon that answers each code, and each has a test."""

import asyncio
import re
from functools import cache
from pathlib import Path

import pytest

from mq.client.consumer.consumer import Consumer
from mq.client.producer.request_reply import Replies
from mq.client.producer.transactions import TransactionCheck, TransactionProducer, TransactionState
from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.controller.app import Controller
from mq.daemons.controller.config import ControllerSettings
from mq.daemons.filtersrv.app import FilterServer
from mq.daemons.filtersrv.config import FiltersrvSettings
from mq.daemons.listener import Listener
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.snode.app import Snode
from mq.protocol.codes import AnyCode, Dialect, answered_by
from mq.protocol.requests import (
    BROKER,
    CLIENT,
    CONTROLLER,
    FILTER_SERVER,
    NAME_SERVER,
    SNODE,
    Role,
)
from tests import answered
from tests.client.brokers import served
from tests.daemons.snode.world import snode_settings

ROOT = Path(__file__).parents[1]
SHOWN = answered.tables()
NAMED = sorted({item for table in SHOWN.values() for item in table.items()})


def codes(listener: Listener) -> set[int]:
    return {
        code
        for code in (*listener.dispatcher.handlers, *listener.dispatcher.direct)
        if isinstance(code, int)
    }


def rows(role: Role) -> set[int]:
    return set(map(int, answered_by(role)))


def test_a_broker_answers_the_codes_of_its_rows_and_each_has_a_test(tmp_path: Path) -> None:
    async def ask() -> set[int]:
        fixed = {"listenPort": "0", "brokerIP1": "127.0.0.1", "storePathRootDir": str(tmp_path)}
        async with Broker(BrokerSettings.load(None, fixed)) as broker:
            assert codes(broker.fast_listener) <= codes(broker.listener)
            of_snodes = {code for _, code in broker.listener.dispatcher.in_dialect}
            assert of_snodes == set(SHOWN["by_broker_of_snodes"])
            assert of_snodes == set(map(int, answered_by(BROKER, Dialect.SNODE)))
            return codes(broker.listener)

    assert asyncio.run(ask()) == rows(BROKER) == set(SHOWN["by_broker"])


def test_a_name_server_answers_the_codes_of_its_rows_and_each_has_a_test(tmp_path: Path) -> None:
    async def ask() -> set[int]:
        fixed = {"listenPort": "0", "kvConfigPath": str(tmp_path / "kvConfig.json")}
        async with NameServer(NamesrvSettings.load(None, fixed)) as name_server:
            return codes(name_server.listener)

    assert asyncio.run(ask()) == rows(NAME_SERVER) == set(SHOWN["by_name_server"])


def test_a_controller_answers_the_codes_of_its_rows_and_each_has_a_test() -> None:
    async def ask() -> set[int]:
        fixed = {"listenPort": "0", "etcdEndpoints": "http://127.0.0.1:1"}
        async with Controller(ControllerSettings.load(None, fixed)) as controller:
            return codes(controller.listener)

    assert asyncio.run(ask()) == rows(CONTROLLER) == set(SHOWN["by_controller"])


def test_a_filter_server_answers_the_codes_of_its_rows_and_each_has_a_test() -> None:
    async def ask() -> set[int]:
        nowhere = {"connectWhichBroker": "127.0.0.1:1"}
        async with FilterServer(FiltersrvSettings.load(None, nowhere)) as server:
            return codes(server.listener)

    assert asyncio.run(ask()) == rows(FILTER_SERVER) == set(SHOWN["by_filter_server"])


def test_a_snode_answers_the_codes_of_its_rows_and_each_has_a_test() -> None:
    async def ask() -> set[int]:
        async with Snode(snode_settings("127.0.0.1:1")) as snode:
            return codes(snode.listener)

    assert asyncio.run(ask()) == rows(SNODE) == set(SHOWN["by_snode"])


def test_clients_answer_the_codes_of_their_rows(tmp_path: Path) -> None:
    async def unknown(question: TransactionCheck) -> TransactionState:
        return TransactionState.UNKNOWN

    async def ask() -> set[int]:
        async with served(tmp_path) as at, Session(at.namesrv) as session:
            Replies(session)
            async with (
                TransactionProducer(session, "g", unknown),
                Consumer(session, "g", {"T": "*"}),
            ):
                return set(session._handlers)

    # A client with a push session also answers 352: see tests/client/consumer/push.
    assert asyncio.run(ask()) == set(map(int, answered_by(CLIENT, Dialect.ORDINARY)))


@pytest.mark.parametrize(("code", "test"), NAMED)
def test_a_declared_test_sends_its_request(code: AnyCode, test: str) -> None:
    path, _, _ = test.partition("::")
    source = (ROOT / "tests" / path).read_text()
    beside = re.sub(r"^@answered\.\w+\([^)]*\)", "", source, flags=re.M)
    mentioned = code.name in beside or f"{int(code)}" in beside
    assert mentioned or any(code.name in module for module in helpers(ROOT / "tests" / path))


@cache
def helpers(path: Path) -> list[str]:
    """The sources of the test modules and client modules that a test imports."""
    modules = re.findall(r"^from (tests[\w.]*|mq\.client[\w.]*) import", path.read_text(), re.M)
    found = []
    for module in modules:
        place = ROOT.joinpath(*module.removeprefix("mq.").split("."))
        if place.is_dir():
            found += [file.read_text() for file in place.glob("*.py")]
        else:
            found.append(place.with_suffix(".py").read_text())
    return found


def test_the_document_has_the_generated_tables() -> None:
    document = (ROOT / answered.PATH).read_text(encoding="utf-8")
    _, _, rest = document.partition(answered.START)
    part, end, _ = rest.partition(answered.END)
    assert end
    assert part == answered.text() + "\n", "stale: run python -m tests.answered"
