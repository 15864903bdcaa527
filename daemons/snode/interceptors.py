"""Interceptors: the operator's code around requests that a snode serves.

There are three groups, each configured by a setting with the dotted names of classes:

  server   around every request on the port
  send     around sends (310, 320, 36)
  consume  around pulls (11, 351)

A class is instantiated once, without arguments, and may have any of the methods of `Interceptor`.
They are plain functions on the event loop, so they must be quick. The names come only from the file
and the command line of the snode: requests cannot change these settings.

An exception of an interceptor never loses a reply. Before a request, `Refused` refuses it with that
code, any other exception with SYSTEM_ERROR and its text, as in the snode branch; after one, the
exception is logged and counted, and the reply is sent unchanged.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Iterable
from importlib import import_module
from typing import Any

from mq.daemons.channel import Channel
from mq.daemons.config import ConfigError
from mq.daemons.dispatch import Handler, Refused, Reply
from mq.daemons.supervision import describe
from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command

log = logging.getLogger(__name__)

METHODS = ("before_request", "after_request", "on_exception")


class Interceptor:
    """The methods that an interceptor may have; a class need not derive from this."""

    def before_request(self, request: Command, channel: Channel) -> None:
        """Called before the request is served. An exception refuses the request."""

    def after_request(self, request: Command, channel: Channel, response: Command) -> None:
        """Called before the reply is sent, whatever its code."""

    def on_exception(self, request: Command, channel: Channel, error: Exception) -> None:
        """Called when the request failed: it was refused, or its broker could not be reached."""


class InterceptorGroup:
    """The interceptors of one group, in order; after a request in reverse order.

    `failures` counts their exceptions after requests, by class.
    """

    def __init__(self, name: str, interceptors: Iterable[object] = ()) -> None:
        self.name = name
        self.failures: Counter[str] = Counter()
        given = list(interceptors)
        self._before = [one for one in given if hasattr(one, "before_request")]
        self._after = [one for one in reversed(given) if hasattr(one, "after_request")]
        self._failed = [one for one in reversed(given) if hasattr(one, "on_exception")]

    def __bool__(self) -> bool:
        return bool(self._before or self._after or self._failed)

    def before(self, request: Command, channel: Channel) -> None:
        """Raises Refused for a request that one of them refuses."""
        one: Any
        for one in self._before:
            try:
                one.before_request(request, channel)
            except (Refused, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # a CancelledError here is not about this task
                text, name = describe(error), _name(one)
                log.error("%s interceptor %s refused request %d: %s",
                          self.name, name, request.code, text,
                          extra={"failure": f"interceptor {name}"})  # fmt: skip
                raise Refused(ResponseCode.SYSTEM_ERROR, text) from error

    def after(self, request: Command, channel: Channel, response: Command) -> None:
        """Pass a response to the interceptors before it is sent. Never raises."""
        one: Any
        for one in self._after:
            try:
                one.after_request(request, channel, response)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                self._count(one, error)

    def failed(self, request: Command, channel: Channel, error: Exception) -> None:
        """Pass a failure to the interceptors. Never raises."""
        one: Any
        for one in self._failed:
            try:
                one.on_exception(request, channel, error)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as failure:
                self._count(one, failure)

    def _count(self, one: object, error: BaseException) -> None:
        name = _name(one)
        self.failures[name] += 1
        log.error("%s interceptor %s failed: %s", self.name, name, describe(error),
                  exc_info=error, extra={"failure": f"interceptor {name}"})  # fmt: skip


def intercepted(handler: Handler, group: InterceptorGroup) -> Handler:
    """Wrap a handler with a group; no overhead without interceptors.

    A handler that keeps the channel and replies later calls `after` or `failed` itself.
    """
    if not group:
        return handler

    def call(request: Command, channel: Channel) -> Reply | Awaitable[Reply]:
        try:
            group.before(request, channel)
            result = handler(request, channel)
        except Exception as error:
            group.failed(request, channel, error)
            raise
        if isinstance(result, Awaitable):
            return finish(request, channel, result)
        if result is not None:
            group.after(request, channel, result)
        return result

    async def finish(request: Command, channel: Channel, result: Awaitable[Reply]) -> Reply:
        try:
            reply = await result
        except Exception as error:
            group.failed(request, channel, error)
            raise
        if reply is not None:
            group.after(request, channel, reply)
        return reply

    return call


def load_interceptors(names: str, setting: str) -> list[object]:
    """Instantiate the interceptors that a setting names: dotted classes, separated by commas.

    Raises:
        ConfigError: one is not a class, cannot be instantiated, or has none of the methods.
    """
    return [_load(name, setting) for name in map(str.strip, names.split(",")) if name]


def _load(name: str, setting: str) -> object:
    module, dot, attribute = name.rpartition(".")
    if not dot or not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"{setting}: {name!r} is not the dotted name of a class")
    try:
        kind = getattr(import_module(module), attribute)
    except Exception as error:  # loading a module may raise anything
        raise ConfigError(f"{setting}: cannot load {name}: {describe(error)}") from error
    if not isinstance(kind, type) or not any(hasattr(kind, method) for method in METHODS):
        raise ConfigError(f"{setting}: {name} is not a class with one of {', '.join(METHODS)}")
    try:
        return kind()
    except Exception as error:
        raise ConfigError(f"{setting}: cannot instantiate {name}: {describe(error)}") from error


def _name(one: object) -> str:
    return f"{type(one).__module__}.{type(one).__qualname__}"
