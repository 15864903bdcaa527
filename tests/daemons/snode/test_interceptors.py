"""Interceptors: what they get, what they may refuse, and that no reply is lost because of them."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mq.daemons.channel import Channel
from mq.daemons.config import ConfigError
from mq.daemons.dispatch import Dispatcher, Refused
from mq.daemons.listener import Listener
from mq.daemons.snode.interceptors import (
    Interceptor,
    InterceptorGroup,
    intercepted,
    load_interceptors,
)
from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command
from tests.daemons.peer import Peer

CODE = 310
HERE = __name__


class Recording(Interceptor):
    """Records its calls."""

    def __init__(self, seen: list[str] | None = None, name: str = "") -> None:
        self.seen = [] if seen is None else seen
        self.name = name

    def before_request(self, request: Command, channel: Channel) -> None:
        self.seen.append(f"{self.name}before {request.code}")

    def after_request(self, request: Command, channel: Channel, response: Command) -> None:
        self.seen.append(f"{self.name}after {response.code}")

    def on_exception(self, request: Command, channel: Channel, error: Exception) -> None:
        self.seen.append(f"{self.name}failed {type(error).__name__}")


class OnlyAfter:
    """A class without a base class, with one method."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def after_request(self, request: Command, channel: Channel, response: Command) -> None:
        self.codes.append(response.code)


class Raising(Interceptor):
    """Raises after each request."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def after_request(self, request: Command, channel: Channel, response: Command) -> None:
        raise self.error

    def on_exception(self, request: Command, channel: Channel, error: Exception) -> None:
        raise self.error


class RaisingBefore:
    """Raises before each request."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def before_request(self, request: Command, channel: Channel) -> None:
        raise self.error


class NeedsMore:
    """Cannot be instantiated without an argument."""

    def __init__(self, more: int) -> None: ...

    def before_request(self, request: Command, channel: Channel) -> None: ...


def serve(command: Command, channel: Channel) -> Command:
    return command.reply(7)


async def serve_later(command: Command, channel: Channel) -> Command:
    await asyncio.sleep(0)
    return command.reply(7)


def fail(command: Command, channel: Channel) -> Command:
    raise Refused(ResponseCode.NO_PERMISSION, "not you")


async def fail_later(command: Command, channel: Channel) -> Command:
    await asyncio.sleep(0)
    raise ConnectionError("the broker is gone")


Handler = Callable[[Command, Channel], Command | Awaitable[Command]]


def answer(handler: Handler, *interceptors: object) -> Command:
    """The reply to a client of a handler with these interceptors around it."""

    async def main() -> Command:
        group = InterceptorGroup("send", interceptors)
        dispatcher = Dispatcher({CODE: intercepted(handler, group)})
        async with Listener(dispatcher, "127.0.0.1", 0) as listener, Peer(listener.port) as peer:
            return await peer.ask(CODE)

    return asyncio.run(main())


@pytest.mark.parametrize("handler", [serve, serve_later])
def test_interceptors_get_requests_in_order_and_replies_in_reverse(handler: Handler) -> None:
    seen: list[str] = []
    assert answer(handler, Recording(seen, "a "), Recording(seen, "b ")).code == 7
    assert seen == ["a before 310", "b before 310", "b after 7", "a after 7"]


@pytest.mark.parametrize(
    ("handler", "code", "error"),
    [
        (fail, ResponseCode.NO_PERMISSION, "Refused"),
        (fail_later, ResponseCode.SYSTEM_ERROR, "ConnectionError"),
    ],
)
def test_interceptors_get_the_cause_of_a_failure(handler: Handler, code: int, error: str) -> None:
    recording = Recording()
    assert answer(handler, recording).code == code
    assert recording.seen == ["before 310", f"failed {error}"]


def test_a_class_may_have_one_method_only() -> None:
    only = OnlyAfter()
    assert answer(serve, only).code == 7
    assert only.codes == [7]


def test_a_refusal_keeps_its_code_and_reaches_the_other_interceptors() -> None:
    seen: list[str] = []
    refusing = RaisingBefore(Refused(ResponseCode.SYSTEM_BUSY, "later"))
    reply = answer(serve, Recording(seen), refusing)
    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_BUSY, "later")
    assert seen == ["before 310", "failed Refused"]


ERRORS = (KeyError("what"), asyncio.CancelledError("of something else"))


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_any_other_exception_before_a_request_is_a_system_error(error: BaseException) -> None:
    reply = answer(serve, RaisingBefore(error))
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark is not None and type(error).__name__ in reply.remark


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize(
    ("handler", "code"),
    [(serve, 7), (serve_later, 7), (fail, ResponseCode.NO_PERMISSION), (fail_later, 1)],
)
def test_an_exception_after_a_request_changes_no_reply(
    handler: Handler, code: int, error: BaseException
) -> None:
    recording = Recording()
    assert answer(handler, recording, Raising(error)).code == code
    assert len(recording.seen) == 2  # the others are called nevertheless


def test_exceptions_of_interceptors_are_counted_by_class() -> None:
    group = InterceptorGroup("send", [Raising(KeyError("what"))])
    request = Command(CODE)
    channel: Channel = None  # type: ignore[assignment]  # nobody here looks at it
    group.after(request, channel, request.reply())
    group.failed(request, channel, ValueError())
    assert group.failures == {f"{HERE}.Raising": 2}


def test_a_handler_without_interceptors_is_called_directly() -> None:
    assert intercepted(serve, InterceptorGroup("send")) is serve


def test_classes_are_made_from_the_names_in_a_setting() -> None:
    made = load_interceptors(f" {HERE}.OnlyAfter,{HERE}.Recording, ", "sendMessageInterceptors")
    assert [type(one).__name__ for one in made] == ["OnlyAfter", "Recording"]
    assert load_interceptors("", "sendMessageInterceptors") == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Recording", "is not the dotted name of a class"),
        ("os.system('true').x", "is not the dotted name of a class"),
        ("no.such.module.Class", "cannot load no.such.module.Class: ModuleNotFoundError"),
        (f"{HERE}.Missing", f"cannot load {HERE}.Missing: AttributeError"),
        (f"{HERE}.serve", "is not a class with one of before_request"),
        ("collections.Counter", "is not a class with one of before_request"),
        (f"{HERE}.NeedsMore", f"cannot instantiate {HERE}.NeedsMore: TypeError"),
    ],
)
def test_an_invalid_interceptor_is_refused_with_the_name_of_the_setting(
    name: str, why: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load_interceptors(name, "sendMessageInterceptors")
    assert str(raised.value).startswith("sendMessageInterceptors: ")
    assert why in str(raised.value)
