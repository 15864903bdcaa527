"""Access control of changes at a name server or a controller: off by default, like Java.

Reads are open to all. A write is accepted from an address in writeAllowList, or, with aclEnable, if
an administrator of the ACL files has signed it: a client that registers a broker receives every
message of a topic. A code that is neither a read nor a write, such as a future one without a row in
mq.protocol.codes, is for administrators only.
"""

import logging
from collections.abc import Container, Mapping
from pathlib import Path

from mq.daemons.acl.errors import AclError
from mq.daemons.acl.files import AclFiles
from mq.daemons.acl.networks import is_in, parse_networks
from mq.daemons.acl.signers import Signers, refusal
from mq.daemons.acl.writers_config import ALLOW_LIST, GuardedSettings
from mq.daemons.channel import Channel
from mq.daemons.config import ConfigError
from mq.daemons.dispatch import Refused
from mq.protocol.codes import ResponseCode, answered_by
from mq.protocol.command import Command
from mq.protocol.requests import RequestKind, Role

log = logging.getLogger(__name__)


class WriteAccess:
    """The guard of a daemon in a role. ``home`` is the folder of relative ACL files.

    Raises ConfigError if those are invalid.
    """

    # Nothing is checked in a thread, so that no request overtakes a registration.
    reads_body_of: Container[int] = ()

    def __init__(self, settings: GuardedSettings, role: Role, home: str | None) -> None:
        self._settings = settings
        self._daemon = settings.daemon
        codes = list(answered_by(role))
        self._reads = frozenset(int(code) for code in codes if code.kind is RequestKind.READ)
        self._writes = frozenset(map(int, codes)) - self._reads
        config = settings.writers
        files = AclFiles(Path(home or "."), config.acl_plain_file) if config.acl_enable else None
        self.signers = None if files is None else Signers(files)
        self.refused = 0
        self.reload_addresses()

    def reload_addresses(self) -> None:
        """Apply the current writeAllowList of the settings."""
        self._allowed = parse_networks(self._settings.writers.write_allow_list)

    def reload(self) -> None:
        """Read the ACL files again; invalid ones change nothing."""
        if self.signers is not None:
            self.signers.reload()

    def guard(self, command: Command, channel: Channel) -> None:
        """Raises Refused (NO_PERMISSION) unless the sender may make this request."""
        if command.code in self._reads:
            return
        try:
            self._check(command, channel.remote_address[0])
        except AclError as error:
            self.refused += 1
            raise refusal(command.code, channel, error) from None

    def guard_dialect(self, command: Command, channel: Channel) -> None:
        """Refuse: these daemons have one dialect, so a request here is an oversight."""
        raise Refused(ResponseCode.NO_PERMISSION, f"request {command.code} has no access control")

    def guard_direct(
        self, code: int, fields: Mapping[str, str], body: bytes, channel: Channel
    ) -> None:
        """Refuse: these daemons have no hot path, so a request here is an oversight."""
        raise Refused(ResponseCode.NO_PERMISSION, f"request {code} has no access control")

    def _check(self, command: Command, host: str) -> None:
        if command.code in self._writes and is_in(host, self._allowed):
            return
        if self.signers is None:
            raise AclError(f"{host} is not on the {ALLOW_LIST} of this {self._daemon}")
        try:
            account = self.signers.signer(command.fields, bytes(command.body), host)
        except AclError as error:
            raise AclError(
                f"{error}: this {self._daemon} accepts request {command.code} from administrators "
                f"of its ACL files (aclEnable) and from addresses on its {ALLOW_LIST}"
            ) from None
        if account is not None and not account.admin:
            raise AclError(
                f"Need admin permission for request code={command.code}, "
                f"but accessKey={account.access_key} is not"
            )


def access_of(settings: GuardedSettings, role: Role, home: str | None) -> WriteAccess | None:
    """The configured guard. Raises ConfigError if its files are invalid."""
    return WriteAccess(settings, role, home) if settings.writers.asks_who_writes else None


def reload_access(settings: GuardedSettings, access: WriteAccess | None) -> None:
    """Read accounts and writeAllowList again, for SIGHUP; invalid ones change nothing."""
    if access is not None:
        access.reload()
    try:
        settings.read_allow_list_again()
    except ConfigError as error:
        log.error("keeping the old %s: %s", ALLOW_LIST, error)
        return
    if access is not None:
        access.reload_addresses()
    elif settings.writers.asks_who_writes:
        log.warning("access control was off at the start; restart to use %s", ALLOW_LIST)
