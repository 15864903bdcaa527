"""Who may change what a name server or a controller keeps: off by default, as Java asks nobody.

Reads are for everyone. A write is taken from an address of writeAllowList, or, with aclEnable, from
who signs as an administrator of the ACL files: whoever registers a broker has every message of a
topic sent to where he likes. A code that is neither, as one that is served some day without a row
in mq.protocol.codes, is for administrators alone.
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
    """The guard of a daemon that answers as a role. ``home`` is the folder of relative ACL files.

    Raises ConfigError where those cannot be used.
    """

    # Nothing is checked in a thread: a registration must not be overtaken meanwhile.
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
        """Take writeAllowList as the settings have it now."""
        self._allowed = parse_networks(self._settings.writers.write_allow_list)

    def reload(self) -> None:
        """Read the ACL files again; what cannot be used changes nothing."""
        if self.signers is not None:
            self.signers.reload()

    def guard(self, command: Command, channel: Channel) -> None:
        """Raises Refused (NO_PERMISSION) unless who sent this may do it."""
        if command.code in self._reads:
            return
        try:
            self._check(command, channel.remote_address[0])
        except AclError as error:
            self.refused += 1
            raise refusal(command.code, channel, error) from None

    def guard_dialect(self, command: Command, channel: Channel) -> None:
        """There is one dialect here: what comes was forgotten, and is refused."""
        raise Refused(ResponseCode.NO_PERMISSION, f"request {command.code} has no access control")

    def guard_direct(
        self, code: int, fields: Mapping[str, str], body: bytes, channel: Channel
    ) -> None:
        """There is no hot path here: what comes was forgotten, and is refused."""
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
                f"{error}: this {self._daemon} takes request {command.code} from administrators of "
                f"its ACL files (aclEnable) and from addresses on its {ALLOW_LIST}"
            ) from None
        if account is not None and not account.admin:
            raise AclError(
                f"Need admin permission for request code={command.code}, "
                f"but accessKey={account.access_key} is not"
            )


def access_of(settings: GuardedSettings, role: Role, home: str | None) -> WriteAccess | None:
    """The guard that the settings ask for. Raises ConfigError where it cannot be made."""
    return WriteAccess(settings, role, home) if settings.writers.asks_who_writes else None


def reload_access(settings: GuardedSettings, access: WriteAccess | None) -> None:
    """Read accounts and writeAllowList again, as SIGHUP asks; what cannot be used changes
    nothing."""
    if access is not None:
        access.reload()
    try:
        settings.read_allow_list_again()
    except ConfigError as error:
        log.error("%s stays as it was: %s", ALLOW_LIST, error)
        return
    if access is not None:
        access.reload_addresses()
    elif settings.writers.asks_who_writes:
        log.warning("access control is off since the start: restart to use %s", ALLOW_LIST)
