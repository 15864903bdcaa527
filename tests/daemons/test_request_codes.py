"""Methods declare the codes of their requests, and one table is built from them."""

import pytest

from mq.daemons.channel import Channel
from mq.daemons.dispatch import Reply
from mq.daemons.request_codes import handlers_of, serves
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command


class Pulls:
    @serves(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
    def pull(self, command: Command, channel: Channel) -> Reply:
        return None

    def other(self, command: Command, channel: Channel) -> Reply:
        return None


class Sends:
    @serves(RequestCode.SEND_MESSAGE)
    def send(self, command: Command, channel: Channel) -> Reply:
        return None


def test_the_table_has_each_code_of_each_component_and_its_method() -> None:
    pulls, sends = Pulls(), Sends()
    assert handlers_of(pulls, sends) == {
        RequestCode.PULL_MESSAGE: pulls.pull,
        RequestCode.LITE_PULL_MESSAGE: pulls.pull,
        RequestCode.SEND_MESSAGE: sends.send,
    }


def test_a_code_that_two_components_serve_is_an_error() -> None:
    with pytest.raises(ValueError, match=rf"twice: \[{int(RequestCode.SEND_MESSAGE)}\]"):
        handlers_of(Sends(), Sends())
