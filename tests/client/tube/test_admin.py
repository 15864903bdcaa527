"""Errors of administrative requests when masters cannot answer."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from mq.client.errors import BadAnswer
from mq.client.tube.admin import TubeAdmin, Unreachable
from mq.protocol.tube.strings import Address

TOKEN = "secret"


@contextmanager
def redirecting(location: Callable[[int], str]) -> Iterator[TubeAdmin]:
    """An administrator who asks a standby master, which says where the active one is."""

    class Standby(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(302)
            self.send_header("Location", location(self.server.server_port))  # type: ignore[attr-defined]
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Standby) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            masters = [Address("127.0.0.1", 8715)]
            yield TubeAdmin(masters, web_port=server.server_port, token=TOKEN, timeout=60)
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:99999/webapi.htm",
        "http://[::1/webapi.htm",
        "https://127.0.0.1:1/webapi.htm",
        "nowhere",
        "",
    ],
)
def test_a_redirection_that_leads_nowhere_is_no_answer(location: str) -> None:
    with redirecting(lambda _: location) as admin, pytest.raises(BadAnswer, match="a redirection"):
        admin.change("admin_delete_topic_info")


def test_masters_that_redirect_in_a_circle_are_left() -> None:
    def circle(port: int) -> str:
        return f"http://127.0.0.1:{port}/webapi.htm"

    with redirecting(circle) as admin, pytest.raises(BadAnswer, match="more than 3 times"):
        admin.query("admin_query_topic_info")


def test_of_two_masters_the_one_is_named_that_cannot_be_reached() -> None:
    with redirecting(lambda _: "http://127.0.0.1:1/webapi.htm") as admin:
        with pytest.raises(Unreachable, match=r"^127\.0\.0\.1:1: where \S+ says") as caught:
            admin.change("admin_delete_topic_info")
        assert TOKEN not in str(caught.value)
