"""Typed administrative calls: one method per request, and a few that query several brokers.

Methods whose first argument is `address` query the broker (or name server) at that "host:port". The
others find the peer through the name servers. All of them raise:

  BrokerError       the peer refused; the subclass gives the reason
  ConnectError, RequestTimeout
  BadAnswer         the answer cannot be decoded
  RouteNotFound     no name server knows a topic (or a group's retry topic)

They are coroutines for both kinds of session: `await` them in an event loop with `Session`, or pass
them to `blocking.run` with `BlockingSession`.
"""

from mq.client.admin.access import AccountAdmin, UserAdmin
from mq.client.admin.brokers import BrokerAdmin
from mq.client.admin.controllers import (
    ColdDataAdmin,
    ContainerAdmin,
    ControllerAdmin,
    ReplicationAdmin,
)
from mq.client.admin.groups import GroupAdmin
from mq.client.admin.messages import MessageAdmin
from mq.client.admin.name_servers import NameServerAdmin
from mq.client.admin.offsets import OffsetAdmin
from mq.client.admin.snodes import SnodeAdmin
from mq.client.admin.topics import TopicAdmin


class Admin(
    TopicAdmin,
    GroupAdmin,
    OffsetAdmin,
    MessageAdmin,
    BrokerAdmin,
    NameServerAdmin,
    ReplicationAdmin,
    ColdDataAdmin,
    ControllerAdmin,
    ContainerAdmin,
    AccountAdmin,
    UserAdmin,
    SnodeAdmin,
):
    """All administrative calls of one session."""


__all__ = ["Admin"]
