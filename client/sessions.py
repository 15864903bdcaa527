"""Which session a client works with: one that it is given, or one of its own."""

from collections.abc import Sequence
from typing import Any

from mq.client.errors import ClientError
from mq.client.options import ClientOptions, take
from mq.client.session import Session


def session_for(
    given: Session | str | Sequence[str], client: ClientOptions | None, keywords: dict[str, Any]
) -> tuple[Session, ClientOptions]:
    """The session that is given or one of these name servers, and the options of its user.

    Takes from `keywords` what is a field of the options. Raises as `Caller.options_for`.
    """
    if isinstance(given, Session):
        options = given.options_for(client, keywords)
        if options.snode and not given.options.snode:
            raise ClientError("this session goes to brokers: open one with snode=True")
        return given, options
    options = take(client or ClientOptions(), keywords)
    return make_session(given, options), options


def make_session(namesrv: str | Sequence[str], options: ClientOptions) -> Session:
    """A session as the options say: to brokers, or through snodes. Raises as `Session`."""
    if options.snode:
        from mq.client.snode.session import SnodeSession  # loaded by who needs it

        return SnodeSession(namesrv, options)
    return Session(namesrv, options)
