"""Access control of a snode: the accounts of 4.9 and what requests need of them, as at a broker.

Only the two numbers that mean something else here than there are looked at apart: a pull of the
dialect of snodes needs what a pull does, a retry topic the right to read as the group.
"""

from mq.daemons.acl.accounts import SUB
from mq.daemons.acl.errors import AclError
from mq.daemons.broker.acl.access import AccessControl
from mq.protocol.codes import SnodeCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.headers.pull import PullMessageRequestHeader
from mq.protocol.headers.snode import CreateRetryTopicRequestHeader
from mq.protocol.names import RETRY_PREFIX

Need = tuple[str, int]


class SnodeAccess(AccessControl):
    """The rules in force. Raises ConfigError where the files cannot be used at the start."""

    def check(self, command: Command, host: str) -> None:
        """Raises AclError unless a request from this address is allowed."""
        if command.code not in (SnodeCode.SNODE_PULL_MESSAGE, SnodeCode.CREATE_RETRY_TOPIC):
            super().check(command, host)
            return
        account = self.signer(command.fields, bytes(command.body), host)
        if account is not None:
            for resource, needed in _needs(command):
                account.check(resource, needed)


def _needs(command: Command) -> list[Need]:
    try:
        if command.code == SnodeCode.SNODE_PULL_MESSAGE:
            asked = command.read_header(PullMessageRequestHeader)
            return [(asked.topic, SUB), (RETRY_PREFIX + asked.consumer_group, SUB)]
        header = command.read_header(CreateRetryTopicRequestHeader)
        return [(RETRY_PREFIX + header.group_name, SUB)]
    except RemoteProtocolError as error:
        raise AclError(f"the request cannot be read: {error}") from None
