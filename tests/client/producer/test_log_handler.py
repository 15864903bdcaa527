"""Log records that are sent as messages, with real daemons."""

import asyncio
import logging
import logging.config
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.client.errors import ClientError
from mq.client.producer.log_handler import CLOSE_SECONDS, MAX_BYTES, MessageLogHandler
from mq.protocol.names import IllegalName
from mq.testing import RunningBroker
from tests.interop.ports import free_port

TOPIC = "Logs"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("logs")) as running:
        yield running


@pytest.fixture
def logger(request: pytest.FixtureRequest) -> Iterator[logging.Logger]:
    """Yield a logger that passes records only to the test's handlers; closes them afterwards."""
    found = logging.getLogger(f"test.{request.node.name}")
    found.propagate = False
    found.setLevel(logging.DEBUG)
    yield found
    for handler in list(found.handlers):
        found.removeHandler(handler)
        handler.close()


def test_records_of_all_threads_arrive_formatted_with_tag_and_level(
    broker: RunningBroker, logger: logging.Logger
) -> None:
    handler = MessageLogHandler(broker.name_server, "LogsOfThreads", tag="shop")
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)

    def work(number: int) -> None:
        for count in range(50):
            logger.warning("thread %d says %d, ü", number, count)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handler.close()
    messages = broker.messages("LogsOfThreads")
    expected = {f"WARNING thread {n} says {c}, ü" for n in range(4) for c in range(50)}
    assert sorted(message.body.decode() for message in messages) == sorted(expected)
    assert {message.tags for message in messages} == {"shop"}
    assert {message.properties["level"] for message in messages} == {"WARNING"}
    assert {message.properties["logger"] for message in messages} == {logger.name}
    assert handler.dropped == 0


def test_it_works_in_an_event_loop_and_from_a_logging_dictionary(broker: RunningBroker) -> None:
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "handlers": {
                "mq": {
                    "class": "mq.client.MessageLogHandler",
                    "namesrv": broker.name_server,
                    "topic": "LogsOfLoop",
                    "level": "INFO",
                }
            },
            "loggers": {"test.of.loop": {"handlers": ["mq"], "level": "DEBUG"}},
        }
    )
    found = logging.getLogger("test.of.loop")
    [handler] = found.handlers

    async def scenario() -> None:
        found.info("")
        found.debug("not this")

    asyncio.run(scenario())
    found.removeHandler(handler)
    handler.close()
    [message] = broker.messages("LogsOfLoop")
    assert message.body == b"\n"  # no message may be empty


def test_logging_does_not_wait_and_dropped_records_are_counted_and_reported(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    handler = MessageLogHandler(nowhere, TOPIC, capacity=5, close_timeout=0.3)
    logger.addHandler(handler)
    began = time.monotonic()
    for number in range(1000):
        logger.info("%d", number)
    assert time.monotonic() - began < 15.0  # a thousand records, and no broker takes one
    assert 0 < 1000 - handler.dropped <= 10  # the five waiting records, and those in flight
    began = time.monotonic()
    handler.close()
    assert time.monotonic() - began < CLOSE_SECONDS  # `close_timeout` overrides it
    assert handler.dropped == 1000
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) <= 2
    assert lines[-1].endswith("were dropped: no broker took them in time")
    counts = [int(line.split()[1]) for line in lines]
    assert sum(counts) == 1000


def test_long_records_do_not_fill_the_memory(logger: logging.Logger) -> None:
    handler = MessageLogHandler(f"127.0.0.1:{free_port()}", TOPIC, close_timeout=0.1)
    logger.addHandler(handler)
    text = "x" * (MAX_BYTES // 4)
    for _ in range(20):
        logger.info(text)
    assert handler.dropped >= 20 - 4 - 1


def test_records_of_its_own_client_are_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    handler = MessageLogHandler(f"127.0.0.1:{free_port()}", TOPIC, close_timeout=0.3)
    # Daemons of other tests may run in this process, and log as well.
    threads = {threading.current_thread().name, "mq-log"}
    handler.addFilter(lambda record: record.threadName in threads)
    root = logging.getLogger()
    seen = threading.Event()

    class Notice(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if threading.current_thread().name == "mq-log":
                seen.set()

    notice = Notice()
    root.addHandler(handler)
    root.addHandler(notice)
    try:
        with caplog.at_level(logging.DEBUG):
            logging.getLogger("test.own").info("one")
            assert seen.wait(10)  # its client has logged something by now
            handler.close()
    finally:
        root.removeHandler(handler)
        root.removeHandler(notice)
    assert handler.dropped == 1


def test_records_wait_for_a_broker_that_comes_later(tmp_path: Path, logger: logging.Logger) -> None:
    with RunningBroker(tmp_path) as running:
        running.stop()
        handler = MessageLogHandler(running.name_server, TOPIC, close_timeout=20)
        logger.addHandler(handler)
        logger.info("early")
        running.start()
        handler.flush()
        assert [message.body for message in running.messages(TOPIC)] == [b"early"]


def test_a_refused_record_does_not_affect_the_others(
    broker: RunningBroker, logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = MessageLogHandler(broker.name_server, "LogsRefused")
    logger.addHandler(handler)
    logger.info("before")
    logger.info("x" * (5 << 20))  # above the brokers' limit
    logger.info("after")
    handler.close()
    assert sorted(m.body for m in broker.messages("LogsRefused")) == [b"after", b"before"]
    assert handler.dropped == 1
    assert "1 log records for topic LogsRefused were dropped" in capsys.readouterr().err


PROGRAM = """
import logging, os, sys
from mq.client import MessageLogHandler
handler = MessageLogHandler(sys.argv[1], sys.argv[2])
logging.basicConfig(level=logging.DEBUG, handlers=[handler], format='%(message)s')
{body}
"""


@pytest.mark.parametrize(
    ("topic", "body", "expected"),
    [
        ("LogsOfEnd", "logging.info('last words')", ["last words"]),
        ("LogsOfName", "logging.info('last words')", ["last words"]),
        (
            "LogsOfChild",
            "logging.info('parent')\nhandler.flush()\nlogging.info('still')\n"
            "child = os.fork()\nif not child: logging.info('child')\nelse: os.waitpid(child, 0)",
            ["child", "parent", "still"],
        ),
    ],
)
def test_a_program_that_ends_sends_its_records(
    topic: str, body: str, expected: list[str], broker: RunningBroker
) -> None:
    where = broker.name_server
    if topic == "LogsOfName":  # the name must be resolved when no thread can be started any more
        where = where.replace("127.0.0.1", "localhost")
    program = [sys.executable, "-c", PROGRAM.format(body=body), where, topic]
    subprocess.run(program, check=True, timeout=30)
    assert sorted(message.body.decode() for message in broker.messages(topic)) == expected


def test_invalid_arguments_are_refused_at_once() -> None:
    with pytest.raises(ClientError, match="is not host:port"):
        MessageLogHandler("nowhere", TOPIC)
    with pytest.raises(IllegalName):
        MessageLogHandler("127.0.0.1:1", "no topic")
