"""Selects the session of a client: a given one, or one of its own."""

from collections.abc import Sequence
from typing import Any

from mq.client.errors import ClientError
from mq.client.options import ClientOptions, take
from mq.client.transport.session import Session


def session_for(
    given: Session | str | Sequence[str], client: ClientOptions | None, keywords: dict[str, Any]
) -> tuple[Session, ClientOptions]:
    """Return the given session, or a new one for these name servers, and the client's options.

    Removes the fields of the options from `keywords`. Raises what `Caller.options_for` raises.
    """
    if isinstance(given, Session):
        options = given.options_for(client, keywords)
        if options.snode and not given.options.snode:
            raise ClientError("this session connects to brokers: open one with snode=True")
        return given, options
    options = take(client or ClientOptions(), keywords)
    return make_session(given, options), options


def make_session(namesrv: str | Sequence[str], options: ClientOptions) -> Session:
    """Create a session according to the options, to brokers or to snodes. Raises what `Session`
    raises.
    """
    if options.snode:
        from mq.client.snode.session import SnodeSession  # imported only when it is used

        return SnodeSession(namesrv, options)
    return Session(namesrv, options)
