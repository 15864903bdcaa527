"""Administrative calls, typed: one method per request, and the few that ask several brokers.

Methods whose first argument is `address` ask the one broker (or name server) there, "host:port".
The others find out whom to ask from the name servers. All of them raise:

    BrokerError       the peer refused; its subclass tells why
    ConnectError, RequestTimeout
    BadAnswer         the answer cannot be read
    RouteNotFound     a topic (or a group's retry topic) that no name server knows

They are coroutines for either kind of session: `await` them in an event loop with `Session`, or
`blocking.run` them with `BlockingSession`.
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
