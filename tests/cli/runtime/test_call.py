"""The selection of the cluster, and the failure if no server answers."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mq.daemons.standalone import Standalone
from tests.cli.support import Mq

DEAD = "127.0.0.1:1"


def test_an_option_beats_the_variable_which_beats_the_current_context(
    mq: Mq, standalone: Standalone
) -> None:
    alive = standalone.name_server_address
    mq("context", "add", "dead", "-n", DEAD)
    assert mq("topicList").status == 69
    assert mq("topicList", NAMESRV_ADDR=alive).status == 0
    assert mq("topicList", "-n", DEAD, NAMESRV_ADDR=alive).status == 69
    assert mq("topicList", "-n", alive).status == 0


def test_a_context_that_is_asked_for_beats_the_variable(mq: Mq, standalone: Standalone) -> None:
    mq("context", "add", "dead", "-n", DEAD)
    mq("context", "add", "live", "-n", standalone.name_server_address)
    assert mq("topicList", "--context", "live", NAMESRV_ADDR=DEAD).status == 0
    assert mq("topicList", MQ_CONTEXT="live", NAMESRV_ADDR=DEAD).status == 0
    assert mq("topicList", "--context", "nope").status == 66


def test_the_next_name_server_is_asked_when_one_is_dead(mq: Mq, standalone: Standalone) -> None:
    finished = mq("topicList", "-n", f"{DEAD};{standalone.name_server_address}")
    assert (finished.status, finished.err) == (0, "")


def test_a_dead_name_server_is_one_line_and_a_hint(mq: Mq) -> None:
    finished = mq("topicList", "-n", DEAD)
    assert (finished.status, finished.out) == (69, "")
    message, hint = finished.err.splitlines()
    assert message == "mq topicList: cannot reach 127.0.0.1:1: Connection refused"
    assert hint == "hint: check that it is running, or give the name server: -n HOST:9876"


@pytest.mark.parametrize(
    "address", ["nonsense", "host", "host:0", "host:99999", ":9876", ";", "h:x"]
)
def test_what_is_no_address_is_refused(address: str, mq: Mq) -> None:
    for finished in (mq("topicList", "-n", address), mq("topicList", NAMESRV_ADDR=address)):
        assert finished.status == 64
        assert "hint: " in finished.err


@pytest.fixture
def address_server() -> Iterator[tuple[str, dict[str, str]]]:
    """A URL with an answer that a test can change."""
    answer = {"text": ""}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer["text"].encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/rocketmq/nsaddr", answer
        server.shutdown()
        thread.join()


def test_the_name_servers_may_be_listed_by_an_address_server(
    address_server: tuple[str, dict[str, str]], mq: Mq, standalone: Standalone
) -> None:
    url, answer = address_server
    answer["text"] = f"{standalone.name_server_address}\n"
    assert mq("topicList", "-n", url).status == 0
    assert mq("topicList", NAMESRV_ADDR=url).status == 0
    answer["text"] = "<html>"
    finished = mq("topicList", "-n", url)
    assert finished.status == 64
    assert f"'<html>' is not an address (from {url})" in finished.err
    finished = mq("topicList", "-n", "http://127.0.0.1:1/x")
    assert finished.status == 69
    assert "no name servers from http://127.0.0.1:1/x: " in finished.err
    assert "hint: " in finished.err


@pytest.fixture
def silent() -> Iterator[str]:
    """A port that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_silence_ends_at_the_timeout(silent: str, mq: Mq) -> None:
    finished = mq("topicList", "-n", silent, "--timeout", "0.05")
    assert finished.status == 75
    assert "no answer to request 206 within 0.05 s" in finished.err
    assert mq("topicList", "-n", silent, MQ_TIMEOUT="0.05").status == 75


def test_a_peer_that_speaks_something_else_is_a_protocol_error(mq: Mq) -> None:
    import threading

    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        finished = mq("topicList", "-n", f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    assert finished.status == 76
    assert finished.err.endswith("hint: check that it is a RocketMQ port\n")


@pytest.mark.parametrize(
    ("variables", "status"),
    [({"MQ_OUTPUT": "xml"}, 78), ({"MQ_TIMEOUT": "soon"}, 78), ({"MQ_TIMEOUT": "-1"}, 64)],
)
def test_a_variable_that_cannot_be_is_named(variables: dict[str, str], status: int, mq: Mq) -> None:
    finished = mq.having(variables)("topicList")
    assert finished.status == status


def test_the_format_is_the_option_s_then_the_variable_s_then_the_terminal_s(cluster: Mq) -> None:
    assert cluster("topicList", MQ_OUTPUT="json").json["command"] == "topicList"
    assert cluster("topicList", "-o", "csv", MQ_OUTPUT="json").out.startswith("topic\n")
    assert "TBW102\n" in cluster("topicList").out
    assert "─" in cluster("topicList", terminal=True).out


def test_options_are_taken_in_java_s_and_in_kebab_spelling(cluster: Mq) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "Spelled")
    for words in (
        ["-tSpelled"],
        ["--topic=Spelled"],
        ["-topic", "Spelled"],
        ["--TOPIC", " Spelled "],
    ):
        assert cluster("topicClusterList", *words).out == "DefaultCluster\n"
    made = cluster("update-topic", "--cluster-name", "DefaultCluster", "-t", "Spelled")
    assert made.status == 0


def test_a_bug_is_called_one(cluster: Mq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mq.cli.listing.topic_names", lambda session: 1 / 0)
    finished = cluster("topicList")
    assert finished.status == 70
    assert finished.err == (
        "mq topicList: a bug in mq: ZeroDivisionError: division by zero\n"
        "hint: run it again with MQ_DEBUG=1 and report the traceback\n"
    )
    with pytest.raises(ZeroDivisionError):
        cluster("topicList", MQ_DEBUG="1")
