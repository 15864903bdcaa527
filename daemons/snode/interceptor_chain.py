"""The interceptor chain of a snode: the limits of flow control, and the operator's classes."""

from pathlib import Path

from mq.daemons.dispatch import Handler
from mq.daemons.snode.config import SnodeConfig
from mq.daemons.snode.flow_control import FlowControl
from mq.daemons.snode.interceptors import InterceptorGroup, intercepted, load_interceptors
from mq.protocol.codes import PULLS, RequestCode, SnodeCode

SEND_CODES = frozenset(
    (
        *(int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.SEND_BATCH_MESSAGE)),
        int(RequestCode.CONSUMER_SEND_MSG_BACK),
    )
)
PULL_CODES = frozenset(
    (
        *map(int, PULLS),
        int(SnodeCode.SNODE_PULL_MESSAGE),
    )
)


class InterceptorChain:
    """The groups of interceptors, and `flow`, which is the first of the server's.

    Raises ConfigError for a class that cannot be instantiated, and for an invalid file of limits.
    """

    def __init__(self, config: SnodeConfig) -> None:
        self.flow = FlowControl(Path(config.rocketmq_home or ".") / config.flow_control_file)
        own = load_interceptors(config.remoting_server_interceptors, "remotingServerInterceptors")
        send = load_interceptors(config.send_message_interceptors, "sendMessageInterceptors")
        consume = load_interceptors(
            config.consume_message_interceptors, "consumeMessageInterceptors"
        )
        self.server = InterceptorGroup("server", [self.flow, *own])
        self.send = InterceptorGroup("send", send)
        self.consume = InterceptorGroup("consume", consume)
        self._sees_sends = bool(own or send)

    @property
    def groups(self) -> tuple[InterceptorGroup, InterceptorGroup, InterceptorGroup]:
        return self.server, self.send, self.consume

    @property
    def sees_sends(self) -> bool:
        """Whether an interceptor or limit must see each send now."""
        limits = self.flow.limits
        return bool(self._sees_sends or limits.counts or limits.sizes)

    def wrap(self, code: int, handler: Handler) -> Handler:
        """Wrap a handler with the interceptors of its kind, and the server's around them."""
        if code in SEND_CODES:
            handler = intercepted(handler, self.send)
        elif code in PULL_CODES:
            handler = intercepted(handler, self.consume)
        return intercepted(handler, self.server)
