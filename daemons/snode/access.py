"""Access control of a snode: the accounts of 4.9 and the permissions of requests, as at a broker.

Only the two request codes with another meaning than at a broker are checked separately: a pull in
the snode dialect needs the permissions of a pull, a retry topic the permission to read as the
group.
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
    """The rules in force. Raises ConfigError if the files are invalid at the start."""

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
        raise AclError(f"cannot read the request: {error}") from None
