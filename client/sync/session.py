"""Blocking calls: an event loop in a thread of its own, and the threads that wait for its
results.
"""

import asyncio
import contextlib
import functools
import os
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, cast

from mq.client.errors import ClientError
from mq.client.machine.threads import LoopThread, ReentrantLock
from mq.client.options import ClientKeywords, ClientOptions, take
from mq.client.snode.sessions import make_session
from mq.client.transport.session import Session as AsyncSession

A = ParamSpec("A")
T = TypeVar("T")

_CLOSED = "the client was closed meanwhile"
_INHERITED = "a client cannot be used after a fork: create another one in this process"
_OWN_THREAD = "this call would wait for itself: use mq.client in coroutines"


class Session:
    """Connections to a cluster that blocking clients share. A context manager.

        with Session("127.0.0.1:9876") as session:
            producer, admin = Producer(session, "shop"), Admin(session)

    Its loop runs in a thread from `open` to `close`. Several threads may use it concurrently. It
    does not survive a fork: a forked process must create its own.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        options: ClientOptions | None = None,
        **keywords: Unpack[ClientKeywords],
    ) -> None:
        """See `mq.client.Session`. Raises ClientError for invalid addresses."""
        self.options = take(options or ClientOptions(), cast("dict[str, Any]", keywords))
        self._namesrv = namesrv
        self._thread: LoopThread | None = None  # set while it is open
        self._last_thread: LoopThread | None = None
        self._session: AsyncSession | None = None
        self._opening = ReentrantLock()  # its holder opens the session
        self._process = os.getpid()

    def open(self) -> None:
        """Start the loop. Safe to call again. Raises ClientError after a fork."""
        if self.is_inherited:
            raise ClientError(_INHERITED)
        with self._opening:
            if self._thread is None:
                self._thread = self._last_thread = LoopThread("mq-client")
                try:
                    self._session = self.run(self._opened())
                except BaseException:
                    self.close()
                    raise

    async def _opened(self) -> AsyncSession:
        session = make_session(self._namesrv, self.options)
        await session.open()
        return session

    def close(self) -> None:
        """Close the connections and end the thread. Safe to call again.

        Raises ClientError in the loop's own thread, which would wait for itself.
        """
        self.check_thread()
        thread, session = self._thread, self._session
        self._thread = self._session = None
        if thread is None or self.is_inherited:
            return
        try:
            if session is not None:
                wait_for(thread, session.close())
        finally:
            thread.stop()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def asynchronous(self) -> AsyncSession:
        """The session of the loop. Raises ClientError if this session is not open."""
        if self._session is None:
            raise ClientError("the session is not open: use it in a with block, or call open()")
        return self._session

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and return or raise its result.

        Ctrl-C cancels it. Raises ClientError if it cannot be run: when the session is closed, after
        a fork, and in the loop's own thread, which would wait for itself.
        """
        thread = self._thread
        refusal = self._refusal(thread)
        if thread is None or refusal:
            coroutine.close()
            raise ClientError(refusal)
        return wait_for(thread, coroutine)

    @property
    def is_inherited(self) -> bool:
        """Whether this object was created by the process that forked this one."""
        return self._process != os.getpid()

    def check_thread(self) -> None:
        """Raise ClientError in the loop's own thread, which would wait for itself."""
        if self._last_thread is not None and self._last_thread.is_current():
            raise ClientError(_OWN_THREAD)

    def _refusal(self, thread: LoopThread | None) -> str:
        if self.is_inherited:
            return _INHERITED
        if thread is None:
            return "the client is closed, or was not opened: use it in a with block"
        if thread.is_current():
            return _OWN_THREAD
        return ""


def wait_for(thread: LoopThread, coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that runs in another thread's loop; cancels it if the wait
    is interrupted.
    """
    tasks: list[asyncio.Task[Any]] = []
    try:
        future = thread.submit(_noted(coroutine, tasks))
    except RuntimeError:
        coroutine.close()
        raise ClientError(_CLOSED) from None
    try:
        return future.result()
    except CancelledError:  # by the end of the loop: no other code knows the task
        raise ClientError(_CLOSED) from None
    except BaseException:
        if not future.done():  # wait for its end before the caller continues
            with contextlib.suppress(RuntimeError, CancelledError):
                thread.submit(_ended(tasks)).result()
        raise


async def _noted(coroutine: Coroutine[Any, Any, T], tasks: list[asyncio.Task[Any]]) -> T:
    task = asyncio.current_task()
    assert task is not None
    tasks.append(task)
    return await coroutine


async def _ended(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


C = TypeVar("C")


class Blocking(Generic[C]):
    """A client with blocking calls: `_client` does the work, in the loop of `session`."""

    def __init__(
        self,
        session: Session | str | Sequence[str],
        make: Callable[[AsyncSession], C],
        client: ClientOptions | None,
    ) -> None:
        """`make` is called in the loop when the client is opened."""
        self._owns_session = not isinstance(session, Session)
        self.session = session if isinstance(session, Session) else Session(session, client)
        self._make = make
        self._made: C | None = None
        self._changing = ReentrantLock()  # its holder opens or closes the client
        self._is_closing = False

    @property
    def _client(self) -> C:
        if self._made is None:
            raise ClientError("the client is not open: use it in a with block, or call open()")
        return self._made

    def open(self) -> None:
        """Connect and start. Safe to call again.

        It waits for a close that is running, and for another thread that is opening the client.
        Raises ClientError in the loop's own thread, and after a fork.
        """
        if self._made is not None:
            return
        if self.session.is_inherited:  # the lock's holder may not exist in this process
            raise ClientError(_INHERITED)
        self.session.check_thread()
        with self._changing:
            if self._made is None:
                self._open()

    def _open(self) -> None:
        if self._owns_session:
            self.session.open()
        try:
            self._made = self.session.run(self._opened())
        except BaseException:
            if self._owns_session:
                self.session.close()
            raise

    async def _opened(self) -> C:
        made = self._make(self.session.asynchronous)
        begin = getattr(made, "open", None)
        if begin is not None:
            try:
                await begin()
            except BaseException:
                await asyncio.shield(made.close())  # type: ignore[attr-defined]
                raise
        return made

    def close(self) -> None:
        """Close the client as that of `mq.client`. Safe to call again.

        It waits for another thread that is opening or closing the client, because the session must
        last that long. Raises ClientError in the loop's own thread, and after a fork for a client
        that was open.
        """
        if self.session.is_inherited:  # the lock's holder may not exist in this process
            made, self._made = self._made, None
            if made is not None:
                raise ClientError(_INHERITED)
            return
        self.session.check_thread()
        with self._changing:
            if self._is_closing:  # called by a signal handler during a close
                return
            self._is_closing = True
            try:
                self._close()
            finally:
                self._is_closing = False

    def _close(self) -> None:
        made, self._made = self._made, None
        try:
            if made is not None and hasattr(made, "close"):
                self.session.run(made.close())
        finally:
            if self._owns_session:
                self.session.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.session.run(coroutine)


def waiting(
    method: Callable[Concatenate[Any, A], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, A], T]:
    """Return a blocking method that runs a client's coroutine method."""

    @functools.wraps(method)
    def call(self: Blocking[Any], /, *args: A.args, **kwargs: A.kwargs) -> T:
        coroutine: Coroutine[Any, Any, T] = getattr(self._client, method.__name__)(*args, **kwargs)
        return self._run(coroutine)

    return call


def at_once(method: Callable[Concatenate[Any, A], T]) -> Callable[Concatenate[Any, A], T]:
    """Return the same for a method that does not wait, but must run in the loop."""

    @functools.wraps(method)
    def call(self: Blocking[Any], /, *args: A.args, **kwargs: A.kwargs) -> T:
        async def there() -> T:
            result: T = getattr(self._client, method.__name__)(*args, **kwargs)
            return result

        return self._run(there())

    return call


def own_options(
    session: Session | str | Sequence[str], client: ClientOptions | None, given: dict[str, Any]
) -> ClientOptions:
    """Return the options of a client; removes those given as keywords from `given`."""
    shared = session.options if isinstance(session, Session) else ClientOptions()
    return take(client or shared, given)
