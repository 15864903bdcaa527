"""The lists of answered requests are those of the daemons, and of tests that are there."""

import ast
import asyncio
import re
from functools import cache
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.listener import Listener
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.protocol.codes import RequestCode
from tests import answered

ROOT = Path(__file__).parents[1]
NAMED = sorted({**answered.BROKER, **answered.NAME_SERVER}.items())


def codes(listener: Listener) -> set[int]:
    return {
        code
        for code in (*listener.dispatcher.handlers, *listener.dispatcher.direct)
        if isinstance(code, int)
    }


def test_every_request_that_a_broker_answers_has_its_test(tmp_path: Path) -> None:
    async def ask() -> set[int]:
        fixed = {"listenPort": "0", "brokerIP1": "127.0.0.1", "storePathRootDir": str(tmp_path)}
        async with Broker(BrokerSettings.load(None, fixed)) as broker:
            return codes(broker.listener)

    assert asyncio.run(ask()) == set(answered.BROKER)


def test_every_request_that_a_name_server_answers_has_its_test(tmp_path: Path) -> None:
    async def ask() -> set[int]:
        fixed = {"listenPort": "0", "kvConfigPath": str(tmp_path / "kvConfig.json")}
        async with NameServer(NamesrvSettings.load(None, fixed)) as name_server:
            return codes(name_server.listener)

    assert asyncio.run(ask()) == set(answered.NAME_SERVER)


@pytest.mark.parametrize(("code", "test"), NAMED)
def test_a_test_that_is_named_is_there_and_knows_the_request(code: RequestCode, test: str) -> None:
    path, _, name = test.partition("::")
    source = (ROOT / "tests" / path).read_text()
    functions = {
        node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)
    }
    assert name in functions
    mentioned = code.name in source or f"{int(code)}" in source
    assert mentioned or any(code.name in module for module in helpers(ROOT / "tests" / path))


@cache
def helpers(path: Path) -> list[str]:
    """The sources of what a test imports from this project's tests and its client."""
    modules = re.findall(r"^from (tests[\w.]*|mq\.client[\w.]*) import", path.read_text(), re.M)
    found = []
    for module in modules:
        place = ROOT.joinpath(*module.removeprefix("mq.").split("."))
        if place.is_dir():
            found += [file.read_text() for file in place.glob("*.py")]
        else:
            found.append(place.with_suffix(".py").read_text())
    return found


def test_the_document_has_the_lists() -> None:
    document = (ROOT / answered.PATH).read_text(encoding="utf-8")
    _, _, rest = document.partition(answered.START)
    part, end, _ = rest.partition(answered.END)
    assert end
    assert part == answered.text() + "\n", "stale: run python -m tests.answered"
