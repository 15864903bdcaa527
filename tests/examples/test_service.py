"""The web service of examples/, called over HTTP."""

import json
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from mq.testing import RunningBroker, free_ports
from tests.examples.programs import running, wait_for


def ask(port: int, method: str, path: str, content: Any = None) -> tuple[int, dict[str, Any], str]:
    """Status, content and Location of an answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        body = None if content is None else json.dumps(content)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), answer.getheader("Location", "")
    finally:
        connection.close()


def wait_until(port: int, path: str, content: dict[str, str]) -> None:
    """Repeat a request until this is the answer. The test's own timeout ends the wait."""
    while ask(port, "GET", path)[1] != content:
        time.sleep(0.05)


def test_an_order_is_taken_sent_and_seen_to_be_billed(
    mq_broker: RunningBroker, tmp_path: Path
) -> None:
    for topic in ("Orders", "Bills"):
        mq_broker.create_topic(topic, 2)
    port, _ = free_ports()
    serve = ["-m", "uvicorn", "service:app", "--port", str(port)]
    with running(serve, mq_broker.name_server, tmp_path) as service:
        wait_for(service, "Uvicorn running")
        assert ask(port, "GET", "/orders/order-1")[0] == 404
        assert ask(port, "POST", "/orders", {"id": "a b", "euro": 0})[0] == 422
        status, content, location = ask(port, "POST", "/orders", {"id": "order-1", "euro": 40})
        assert (status, location) == (202, "/orders/order-1")
        (message,) = mq_broker.messages("Orders")
        assert (message.message_id, message.keys) == (content["messageId"], ("order-1",))
        assert json.loads(message.body) == {"id": "order-1", "euro": 40}
        wait_until(port, location, {"id": "order-1", "status": "ordered"})
        mq_broker.send("Bills", b"what is this", keys=("order-1",))
        mq_broker.send("Bills", b'{"order": "order-1", "euro": 40}', keys=("order-1",))
        wait_until(port, location, {"id": "order-1", "status": "billed"})
        service.terminate()
        wait_for(service, "Application shutdown complete")
    # Another process reads everything from the beginning.
    with running(serve, mq_broker.name_server, tmp_path) as service:
        wait_for(service, "Uvicorn running")
        wait_until(port, location, {"id": "order-1", "status": "billed"})
