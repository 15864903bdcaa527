"""Access control of pulls and class uploads at a filter server, by the broker's accounts.

A filter server reads every topic of its broker, so it requires from consumers what the broker
would: permission to read the topic, as the group. A class is code that runs here: it is accepted
from administrators, and from the accounts that filterUploadAccounts names.
"""

from pathlib import Path

from mq.daemons.acl.addresses import parts_of
from mq.daemons.acl.errors import AclError
from mq.daemons.acl.files import AclFiles
from mq.daemons.broker.acl.access import AccessControl
from mq.daemons.channel import Channel
from mq.daemons.filtersrv.config import FiltersrvSettings
from mq.protocol.command import Command
from mq.protocol.signature import ACCESS_KEY

EVERY_ACCOUNT = "*"


class FilterAccess(AccessControl):
    """The guard of a filter server. Raises ConfigError if the ACL files are invalid."""

    def __init__(self, settings: FiltersrvSettings) -> None:
        own = settings.filtersrv
        super().__init__(AclFiles(Path(own.rocketmq_home or "."), own.acl_plain_file))
        parts = own.filter_upload_accounts.replace(",", ";").split(";")
        self._uploaders = frozenset(part.strip() for part in parts if part.strip())

    def check_upload(self, command: Command, channel: Channel) -> None:
        """Raises Refused unless the sender of an upload that has passed the guard may upload
        classes.
        """
        access_key = command.fields.get(ACCESS_KEY, "")
        if self._uploaders & {EVERY_ACCOUNT, access_key}:
            return
        parts = parts_of(channel.remote_address[0])
        if any(matches(parts) for matches in self.rules.global_matchers):
            return
        account = self.rules.accounts.get(access_key)
        if account is None or not account.admin:
            raise self.refusal(
                command.code,
                channel,
                AclError(
                    f"accessKey={access_key} may not upload classes: it is not an administrator, "
                    "and filterUploadAccounts does not name it"
                ),
            )
