"""Who may change what a name server tells: off by default, as Java's name server asks nobody.

Reads are for everyone, for every client reads routes. A write is taken from an address of
writeAllowList, or, with aclEnable, from who signs as an administrator of the ACL files: whoever
registers a broker has every message of a topic sent to where he likes. A code that is neither, as
one that is served some day without a row in mq.protocol.requests, is for administrators alone.
"""

from collections.abc import Container, Mapping
from pathlib import Path

from mq.daemons.acl.errors import AclError
from mq.daemons.acl.files import AclFiles
from mq.daemons.acl.networks import is_in, parse_networks
from mq.daemons.acl.signers import Signers, refusal
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.namesrv.config import ALLOW_LIST, NamesrvConfig, NamesrvSettings
from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command
from mq.protocol.requests import NAME_SERVER, RequestKind, answered_by

READS = frozenset(int(row.code) for row in answered_by(NAME_SERVER) if row.kind is RequestKind.READ)
WRITES = frozenset(int(row.code) for row in answered_by(NAME_SERVER)) - READS


class NameServerAccess:
    """The guard of a name server. Raises ConfigError where the ACL files cannot be used."""

    # Nothing is checked in a thread: a registration must not be overtaken meanwhile.
    reads_body_of: Container[int] = ()

    def __init__(self, settings: NamesrvSettings) -> None:
        self._settings = settings
        config = settings.namesrv
        self.signers = _signers(config) if config.acl_enable else None
        self.refused = 0
        self.reload_addresses()

    def reload_addresses(self) -> None:
        """Take writeAllowList as the settings have it now."""
        self._allowed = parse_networks(self._settings.namesrv.write_allow_list)

    def reload(self) -> None:
        """Read the ACL files again; what cannot be used changes nothing."""
        if self.signers is not None:
            self.signers.reload()

    def guard(self, command: Command, channel: Channel) -> None:
        """Raises Refused (NO_PERMISSION) unless who sent this may do it."""
        if command.code in READS:
            return
        try:
            self._check(command, channel.remote_address[0])
        except AclError as error:
            self.refused += 1
            raise refusal(command.code, channel, error) from None

    def guard_direct(
        self, code: int, fields: Mapping[str, str], body: bytes, channel: Channel
    ) -> None:
        """A name server has no hot path: what comes here was forgotten, and is refused."""
        raise Refused(ResponseCode.NO_PERMISSION, f"request {code} has no access control")

    def _check(self, command: Command, host: str) -> None:
        if command.code in WRITES and is_in(host, self._allowed):
            return
        if self.signers is None:
            raise AclError(f"{host} is not on the {ALLOW_LIST} of this name server")
        try:
            account = self.signers.signer(command.fields, bytes(command.body), host)
        except AclError as error:
            raise AclError(
                f"{error}: this name server takes request {command.code} from administrators of "
                f"its ACL files (aclEnable) and from addresses on its {ALLOW_LIST}"
            ) from None
        if account is not None and not account.admin:
            raise AclError(
                f"Need admin permission for request code={command.code}, "
                f"but accessKey={account.access_key} is not"
            )


def access_of(settings: NamesrvSettings) -> NameServerAccess | None:
    """The guard that the settings ask for. Raises ConfigError where it cannot be made."""
    return NameServerAccess(settings) if settings.namesrv.asks_who_writes else None


def _signers(config: NamesrvConfig) -> Signers:
    return Signers(AclFiles(Path(config.rocketmq_home or "."), config.acl_plain_file))
